"""Which solver: cvxpy's for tables of moderate size, one that knows the structure above."""

from dataclasses import dataclass

from partitioning.common.checks import Floats
from partitioning.common.threads import one_thread
from partitioning.qp import accelerated, generic
from partitioning.qp.problem import Problem
from partitioning.qp.transport import project

GENERIC_ENTRIES = 20_000
"""The largest table, clients x classes, that "auto" gives to cvxpy."""

FEATURE_ENTRIES = 100_000
"""The largest table of problem (2), clients x configurations, that "auto" gives to cvxpy."""


@dataclass(frozen=True)
class Solution:
    """A table that solves a problem [K, U], by which solver, its loss, and the largest error of a sum in samples."""

    table: Floats
    solver: str
    loss: float
    residual: float


@one_thread
def solve(problem: Problem, solver: str = "auto") -> Solution:
    """Solve problem (1) or (2).

    Args:
        problem: what to solve.
        solver: a solver of cvxpy ("clarabel", "osqp", "scs", ...), "structured", or "auto": Clarabel up to
            `GENERIC_ENTRIES` entries, or `FEATURE_ENTRIES` with features, and "structured" above. "structured" projects
            onto the transportation polytope (`transport.project`), once for problem (1), whose optimum is one, and
            after each gradient step for problem (2) (`accelerated.solve`).

    Whatever the solver, the result is projected onto the tables whose sums are exact. Raises InputError for an unknown
    solver, RuntimeError where it fails.
    """
    if solver == "auto":
        most = FEATURE_ENTRIES if problem.has_features else GENERIC_ENTRIES
        solver = "clarabel" if problem.rows.size * problem.columns.size <= most else "structured"
    if solver != "structured":
        table = project(generic.solve(problem, solver), problem.rows, problem.columns)
    elif problem.has_features:
        table = accelerated.solve(problem)
    else:
        table = project(problem.wanted, problem.rows, problem.columns)
    return Solution(table, solver, problem.loss(table), problem.residual(table))
