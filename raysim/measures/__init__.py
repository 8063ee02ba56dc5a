"""Measures of a run: what a model is worth on the samples that there are."""

from raysim.measures.evaluate import Evaluation, Targets, evaluate
from raysim.measures.selection import Selection
from raysim.measures.twins import Twin, check_measures, twins_of, verdict

__all__ = ["Evaluation", "Selection", "Targets", "Twin", "check_measures", "evaluate", "twins_of", "verdict"]
