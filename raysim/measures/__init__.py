"""Measures of a run: what a model is worth on the samples that there are."""

from raysim.measures.evaluate import Evaluation, Targets, evaluate
from raysim.measures.selection import Selection

__all__ = ["Evaluation", "Selection", "Targets", "evaluate"]
