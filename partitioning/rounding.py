"""Controlled rounding: a real table becomes whole numbers that keep every row and column sum."""

import numpy as np

from partitioning.checks import Floats, Integers


def round_table(table: Floats, rows: Integers, columns: Integers) -> Integers:
    """Round every entry down or up so that both sums are exact and most entries go to the nearer side.

    min_x sum_tk (1 - 2 f_tk) x_tk   over x in [0, 1],   sum_k x_tk = rows_t - sum_k floor A_tk, columns alike

    with f the fractional parts of A; then A <- floor A + x. The cost is the change of sum |x - f|.

    Args:
        table: the table A [K, C], non-negative, its sums right up to the solver's noise.
        rows: exact row sums [K].
        columns: exact column sums [C].

    Raises RuntimeError where the result would not be exact. Our own step: the RADFed paper does not say how
    to round.
    """
    floors = np.floor(np.maximum(table, 0.0))
    ups = _choose_ups(np.maximum(table, 0.0) - floors, rows - floors.sum(axis=1), columns - floors.sum(axis=0))
    rounded = (floors + np.rint(ups)).astype(np.int64)
    exact = np.array_equal(rounded.sum(axis=1), rows) and np.array_equal(rounded.sum(axis=0), columns)
    if not exact or rounded.min() < 0:
        raise RuntimeError(f"rounding {table.shape[0]} x {table.shape[1]} entries did not keep the sums")
    return rounded


def _choose_ups(fractions: Floats, rows: Floats, columns: Floats) -> Floats:
    # A transportation polytope with whole margins has whole vertices, and the simplex method ends at one.
    # Every entry may move, also one whose fraction is the solver's noise, so noise cannot make it infeasible.
    from scipy import sparse
    from scipy.optimize import linprog

    clients, classes = fractions.shape
    by_row = sparse.kron(sparse.eye_array(clients), np.ones((1, classes)))
    by_column = sparse.kron(np.ones((1, clients)), sparse.eye_array(classes))
    solution = linprog(  # type: ignore[call-overload]  # its stubs know no sparse A_eq
        (1.0 - 2.0 * fractions).ravel(),
        A_eq=sparse.vstack([by_row, by_column], format="csc"),
        b_eq=np.concatenate([rows, columns]),
        bounds=(0.0, 1.0),
        method="highs-ds",
        options={"presolve": False},  # finds nothing here and takes a hundred times as long as the simplex
    )
    if solution.status != 0:
        raise RuntimeError(f"rounding {clients} x {classes} entries: {' '.join(solution.message.split())}")
    return np.asarray(solution.x, dtype=np.float64).reshape(clients, classes)
