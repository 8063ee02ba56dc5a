"""The quadratic programmes through cvxpy, on tables of moderate size."""

import importlib
import warnings
from typing import Any

import numpy as np

from partitioning.common.checks import Floats
from partitioning.common.errors import InputError, listing, suggestion
from partitioning.qp.problem import Problem

# A gap of 1e-12 in the objective is 1e-6 in an entry. If rounding errors stop Clarabel earlier, cvxpy reports
# "inaccurate" once it reached the second set, Clarabel's own defaults.
_TOLERANCES = {
    "clarabel": {
        **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12),
        **dict.fromkeys(("reduced_tol_gap_abs", "reduced_tol_gap_rel", "reduced_tol_feas"), 1e-8),
    },
    "osqp": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 200_000},
    "scs": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000},
}


def solve(problem: Problem, solver: str) -> Floats:
    """Return the optimal table [K, U] of a solver of cvxpy, with sums right up to its tolerance.

    Raises:
        InputError: the solver is not installed.
        RuntimeError: the solver does not end at the optimum.
    """
    cp: Any = importlib.import_module("cvxpy")  # takes a second; its atoms have no types

    # SciPy, SCIP and GLOP take no quadratic objective, and HiGHS gives up on ours.
    installed = [name.lower() for name in cp.installed_solvers() if name not in ("SCIPY", "HIGHS", "SCIP", "GLOP")]
    solver = str(solver).lower()
    if solver not in installed:
        raise InputError(
            f"solver is {solver!r}: give 'auto', 'structured' or one that cvxpy has installed "
            f"({listing(installed)})" + suggestion(solver, installed)
        )
    scale = max(problem.rows.mean(), 1.0)  # mean client size 1, so that tolerances do not depend on the data set
    table = cp.Variable(problem.shape, nonneg=True)
    realised = table @ problem.incidence if problem.has_features else table
    programme = cp.Problem(
        cp.Minimize(cp.sum_squares(realised - problem.wanted / scale)),
        [cp.sum(table, axis=1) == problem.rows / scale, cp.sum(table, axis=0) == problem.columns / scale],
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            programme.solve(solver=solver.upper(), **_TOLERANCES.get(solver, {}))
    except cp.error.SolverError as error:
        raise RuntimeError(f"{problem}: the solver {solver} failed: choose 'structured' or another one") from error
    if programme.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE) or table.value is None:
        raise RuntimeError(f"{problem}: the solver {solver} ended {programme.status!r}, not optimal")
    nearest: Floats = np.asarray(table.value, dtype=np.float64) * scale
    return nearest
