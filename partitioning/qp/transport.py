"""Projection onto a transportation polytope: the nearest table with given row and column sums.

A generic solver sees K C variables. The dual has one price per row and one per column. Given the column prices v, each
row's price follows exactly, which leaves a concave piecewise quadratic function of v alone. A few Newton steps reach
its maximum: with the right pattern of positive entries, a step is exact.
"""

from collections.abc import Iterator

import numpy as np

from partitioning.common.checks import Floats, Integers

_ENTRIES = 2**20  # entries of a piece of rows; only the table and temporary arrays of a piece are held
_STEPS = 500  # far above the 31 steps that 432 drawn problems needed, with alphas from 1e-12 to 1e6

_Point = tuple[Floats, Floats]
"""Column prices [C], and the gradient of the dual function there [C]: columns - sum_t A_tk."""


def project(target: Floats, rows: Integers, columns: Integers, *, tolerance: float = 1e-12) -> Floats:
    """Return the non-negative table with given sums that is nearest to `target`.

        min_{A >= 0} sum_tk (A_tk - target_tk)^2   subject to   sum_k A_tk = rows_t,   sum_t A_tk = columns_k
        A_tk = (target_tk + u_t + v_k)^+   with the prices u, v that satisfy both sums

    Memory: the result, and pieces of a million entries.

    Args:
        target: any table [K, C].
        rows: row sums [K], not negative.
        columns: column sums [C], with the same total N.
        tolerance: largest error of a column sum, as a share of N; row sums are exact up to rounding errors.

    Raises:
        RuntimeError: the projection does not converge.
    """
    if target.shape[0] < target.shape[1]:
        return project(target.T, columns, rows, tolerance=tolerance).T
    allowed = tolerance * max(float(columns.sum()), 1.0)
    point = _evaluate(np.zeros(columns.size), target, rows, columns)
    for _ in range(_STEPS):
        prices, slope = point
        if np.abs(slope).max() <= allowed:
            return np.concatenate([_fill(piece + prices, sums) for piece, sums in _pieces(target, rows)])
        point = _climb(point, target, rows, columns)
    raise RuntimeError(
        f"the projection of {target.shape[0]} x {target.shape[1]} entries is off by {np.abs(point[1]).max():.3g} "
        f"samples after {_STEPS} steps: ask for another solver, or scale the table"
    )


def _climb(point: _Point, target: Floats, rows: Integers, columns: Integers) -> _Point:
    # Take a Newton step of a length that leaves at most half of the slope along it and does not pass the maximum, hence
    # the dual rises. With many small clients and a large one the dual is full of edges. Classes that share no client
    # have no curvature between them; the largest number of the problem bounds the step until the search extends it.
    prices, gradient = point
    curvature = _curvature(prices, target, rows)
    damping = 1e-10 * max(float(np.trace(curvature)) / columns.size, 1.0)
    step = np.linalg.solve(curvature + damping * np.eye(columns.size), gradient)
    step -= step.mean()  # equal prices for all columns change nothing
    step *= min(1.0, float(max(np.abs(target).max(), rows.max())) / max(float(np.abs(step).max()), 1e-300))
    below, above = (0.0, float(gradient @ step)), None  # (length, slope along the step) on both sides of the maximum
    first, length = below[1], 1.0
    for _ in range(100):
        ahead = _evaluate(prices + length * step, target, rows, columns)
        slope = float(ahead[1] @ step)
        if 0 <= slope <= 0.5 * first:
            break
        if slope > 0:
            below = (length, slope)
        else:
            above = (length, slope)
        length = 4 * length if above is None else _between(below, above)
    return ahead


def _between(below: tuple[float, float], above: tuple[float, float]) -> float:
    # Zero of a straight line through both slopes. The clip shrinks the bracket by at least half if the zero is near its
    # upper end: the first step may be far too long, with an equal slope all the way.
    share = below[1] / (below[1] - above[1])
    return below[0] + (above[0] - below[0]) * float(np.clip(share, 0.02, 0.5))


def _evaluate(prices: Floats, target: Floats, rows: Integers, columns: Integers) -> _Point:
    slope = columns.astype(np.float64)
    for piece, sums in _pieces(target, rows):
        slope -= _fill(piece + prices, sums).sum(axis=0)
    return prices, slope


def _curvature(prices: Floats, target: Floats, rows: Integers) -> Floats:
    # Minus the dual's second derivative: the Laplacian of classes that share a client [C, C].
    curvature = np.zeros((prices.size, prices.size))
    for piece, sums in _pieces(target, rows):
        positive = (_fill(piece + prices, sums) > 0).astype(np.float64)
        curvature[np.diag_indices_from(curvature)] += positive.sum(axis=0)
        curvature -= (positive / np.maximum(positive.sum(axis=1), 1.0)[:, None]).T @ positive
    return curvature


def _fill(worth: Floats, sums: Integers) -> Floats:
    # Nearest row to `worth` with each sum: (worth + u)^+, where u follows from the entries that stay positive.
    falling = -np.sort(-worth, axis=1)
    excess = np.cumsum(falling, axis=1) - sums[:, None]
    number = np.arange(1, worth.shape[1] + 1)
    positive = np.maximum((falling * number > excess).sum(axis=1), 1)
    price = excess[np.arange(sums.size), positive - 1] / positive
    filled: Floats = np.maximum(worth - price[:, None], 0.0)
    return filled


def _pieces(target: Floats, rows: Integers) -> Iterator[tuple[Floats, Integers]]:
    step = max(1, _ENTRIES // target.shape[1])
    for start in range(0, rows.size, step):
        yield target[start : start + step], rows[start : start + step]
