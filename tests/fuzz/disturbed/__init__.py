"""Runs that are disturbed at drawn moments, and end with the bytes of undisturbed ones."""
