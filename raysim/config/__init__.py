"""The experiment file: its typed tables, reading, checks, and the user's own code."""
