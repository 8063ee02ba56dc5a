"""Evaluations and other measures of a run."""
