"""Fleets: what runs blocks of work, in this process or on Ray."""
