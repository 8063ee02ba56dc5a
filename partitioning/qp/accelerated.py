"""Problem (2) on large tables: accelerated projected gradient steps."""

import numpy as np

from partitioning.common.checks import Floats
from partitioning.qp.problem import Problem
from partitioning.qp.transport import project

_STEPS = 5000
_PROGRESS, _WINDOW = 3e-8, 20  # stop once the loss falls by less than this share in a window of steps


def solve(problem: Problem) -> Floats:
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
