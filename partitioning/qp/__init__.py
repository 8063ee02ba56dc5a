"""The quadratic programmes of RADFed, section IV-A: solved, randomised and rounded."""

from partitioning.qp.problem import Problem
from partitioning.qp.randomise import Walk, Walked, randomise
from partitioning.qp.rounding import round_table
from partitioning.qp.solve import GENERIC_ENTRIES, Solution, solve
from partitioning.qp.transport import project

__all__ = ["GENERIC_ENTRIES", "Problem", "Solution", "Walk", "Walked", "project", "randomise", "round_table", "solve"]
