"""Measures of a run: what a model is worth on the samples that there are."""

from raysim.measures.evaluate import Evaluation, Targets, evaluate
from raysim.measures.twins import Twin, check_twins, twins_of, verdict

__all__ = ["Evaluation", "Targets", "Twin", "check_twins", "evaluate", "twins_of", "verdict"]
