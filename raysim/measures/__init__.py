"""Measures of a run: what a model is worth on the samples that there are."""

from raysim.measures.evaluate import Evaluation, Targets, evaluate

__all__ = ["Evaluation", "Targets", "evaluate"]
