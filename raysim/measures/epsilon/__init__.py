"""Epsilon of a run: the accounting of what it has spent, and the output that it does not cover."""
