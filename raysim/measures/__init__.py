"""Measures of a run: what a model is worth on the samples that there are."""
