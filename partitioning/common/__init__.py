"""Foundations of all rooms: errors, checks of values, random streams, columns, disk and cache."""
