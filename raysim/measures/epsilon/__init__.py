"""Differential privacy of a run: what it has spent, and the output that epsilon does not cover."""
