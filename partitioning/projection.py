"""Problem (1) of the RADFed paper: the table of samples nearest to the one that was drawn."""

import importlib
import warnings
from typing import Any

import numpy as np

from partitioning.checks import Floats, Integers

# A gap of 1e-12 in the objective is 1e-6 in an entry. Where rounding errors stop the solver earlier, cvxpy
# says "inaccurate" if it reached at least the second set, which are the solver's own defaults.
_TOLERANCES = {
    **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12),
    **dict.fromkeys(("reduced_tol_gap_abs", "reduced_tol_gap_rel", "reduced_tol_feas"), 1e-8),
}


def project(target: Floats, rows: Integers, columns: Integers) -> Floats:
    """Return the non-negative table with given sums that is nearest to `target`.

    min_{A >= 0} sum_tk (A_tk - target_tk)^2   subject to   sum_k A_tk = rows_t,   sum_t A_tk = columns_k

    Args:
        target: the samples wished for [K, C], c_tk n_t.
        rows: samples a client [K].
        columns: samples a class [C]; the same total as `rows`.

    Raises RuntimeError where the solver does not end at the optimum.
    RADFed, section IV-A, problem (1), which writes n_t for a share where we have whole samples, n_t N. It is
    strictly convex, so the optimum is unique; Clarabel finds it to about 1e-6 of a mean client.
    """
    cp: Any = importlib.import_module("cvxpy")  # takes a second; its atoms have no types

    scale = max(rows.mean(), 1.0)  # an average client of size 1: tolerances mean the same for any data set
    table = cp.Variable(target.shape, nonneg=True)
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(table - target / scale)),
        [cp.sum(table, axis=1) == rows / scale, cp.sum(table, axis=0) == columns / scale],
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            problem.solve(solver=cp.CLARABEL, **_TOLERANCES)
    except cp.error.SolverError as error:
        raise RuntimeError(f"problem (1) on {_shape(target)}: the solver failed: {error}") from error
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE) or table.value is None:
        raise RuntimeError(f"problem (1) on {_shape(target)}: the solver ended {problem.status!r}, not optimal")
    nearest: Floats = np.asarray(table.value, dtype=np.float64) * scale
    return nearest


def _shape(target: Floats) -> str:
    return f"{target.shape[0]} clients x {target.shape[1]} classes"
