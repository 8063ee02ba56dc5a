"""Solving the quadratic programmes: cvxpy for moderate tables, structured solvers for large ones."""

from dataclasses import dataclass

from partitioning.common.checks import Floats
from partitioning.common.threads import one_thread
from partitioning.qp import accelerated, generic
from partitioning.qp.problem import Problem
from partitioning.qp.transport import project

GENERIC_ENTRIES = 20_000
"""Largest table of problem (1), clients x classes, that "auto" gives to cvxpy."""

FEATURE_ENTRIES = 100_000
"""Largest table of problem (2), clients x configurations, that "auto" gives to cvxpy."""


@dataclass(frozen=True)
class Solution:
    """Solution of a problem: table [K, U], name of the solver, loss, and largest error of a sum in samples."""

    table: Floats
    solver: str
    loss: float
    residual: float


@one_thread
def solve(problem: Problem, solver: str = "auto") -> Solution:
    """Solve problem (1) or (2), and project the result onto the tables with exact sums.

    "structured" solves problem (1) by one projection onto the transportation polytope (`transport.project`), and
    problem (2) by a projection after each gradient step (`accelerated.solve`).

    Args:
        problem: problem (1) or (2).
        solver: a solver of cvxpy ("clarabel", "osqp", "scs", ...), "structured", or "auto": Clarabel up to
            `GENERIC_ENTRIES` entries, or `FEATURE_ENTRIES` with features, and "structured" above.

    Raises:
        InputError: the solver is unknown.
        RuntimeError: the solver fails.
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
