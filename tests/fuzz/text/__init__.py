"""Hostile texts as names, labels and answers of a job server."""
