"""Loggers: who else is told of a run's rounds, beside its own files."""
