"""Solving the quadratic programmes: cvxpy for moderate tables, structured solvers for large ones."""

from dataclasses import dataclass

import numpy as np

from partitioning.common.checks import Floats
from partitioning.common.threads import one_thread
from partitioning.qp import generic
from partitioning.qp.problem import Problem
from partitioning.qp.transport import project

GENERIC_ENTRIES = 20_000
"""Largest table of problem (1), clients x classes, that "auto" gives to cvxpy."""

FEATURE_ENTRIES = 100_000
"""Largest table of problem (2), clients x configurations, that "auto" gives to cvxpy."""

_STEPS = 5000
_PROGRESS, _WINDOW = 3e-8, 20  # stop once the loss falls by less than this share in a window of steps


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
    problem (2) by a projection after each gradient step (`_accelerated`).

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
        table = _accelerated(problem)
    else:
        table = project(problem.wanted, problem.rows, problem.columns)
    return Solution(table, solver, problem.loss(table), problem.residual(table))


def _accelerated(problem: Problem) -> Floats:
    """Return a table [K, U] near the optimum, with sums exact up to 1e-11 of all samples.

        A <- P(Z - (Z S' - wanted) S / L),   Z <- A + (theta_i - 1) / theta_{i+1} (A - A_old)

    L is the curvature |S'|^2 on changes that keep the row sums. P is the projection of problem (1). The momentum
    restarts whenever the loss rises (Beck and Teboulle 2009; O'Donoghue and Candes 2015). Problem (2) has many optimal
    tables; the result depends on the start, in which every client has the global mix.
    """
    counts = problem.incidence
    curvature = max(float(np.linalg.norm(counts.toarray() - counts.mean(axis=0), 2)) ** 2, 1.0)  # 0 for one column
    table = np.outer(problem.rows, problem.columns / problem.columns.sum())
    ahead, theta, losses = table, 1.0, [problem.loss(table)]
    for _ in range(_STEPS):
        gradient = np.asarray(problem.deviations(ahead) @ counts.T)
        nearer = project(ahead - gradient / curvature, problem.rows, problem.columns, tolerance=1e-11)
        loss = problem.loss(nearer)
        if loss > losses[-1] and ahead is not table:
            ahead, theta = table, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * theta**2)) / 2
        ahead, theta = nearer + (theta - 1) / following * (nearer - table), following
        table = nearer
        losses.append(loss)
        if len(losses) > _WINDOW and losses[-1 - _WINDOW] - loss <= _PROGRESS * loss:
            break
    return table
