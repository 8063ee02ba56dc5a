"""Errors, files, units and background work, shared by all rooms."""
