"""A run: from its options and its plan to the main loop, its records and its end."""
