"""Controlled rounding: make a real table integer and keep every row and column sum."""

import itertools
from collections import deque

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Floats, Integers


def round_table(table: Floats, rows: Integers, columns: Integers) -> Integers:
    """Round every entry down or up so that all row and column sums are exact.

        A_tk <- floor(A_tk) or floor(A_tk) + 1,   hence |change| <= 1 per entry and at most sqrt(K C) in Euclidean norm

    First, each row raises the entries with the largest fractions, the nearest choice for the row alone. Then units move
    from columns with an excess to columns with a deficit, along shortest paths and in the cheapest rows.

    The RADFed paper does not describe its rounding; this step is our own.

    Args:
        table: non-negative table A [K, C] with sums right up to a solver's error, for at most 1e12 samples: beyond
            that, the error is whole samples.
        rows: exact row sums [K].
        columns: exact column sums [C].

    Raises:
        RuntimeError: the sums of `table` are too wrong for any rounding.
    """
    if table.shape[0] < table.shape[1]:
        return round_table(table.T, columns, rows).T
    floors = np.floor(np.maximum(table, 0.0))
    fractions = np.maximum(table, 0.0) - floors
    raised = (rows - floors.sum(axis=1)).astype(np.int64)
    if raised.min(initial=0) < 0 or raised.max(initial=0) > columns.size:
        raise RuntimeError(f"rounding {table.shape[0]} x {table.shape[1]} entries: the sums of the rows are wrong")
    falling = np.argsort(-fractions, axis=1, kind="stable")
    is_up = np.zeros(fractions.shape, np.bool_)
    np.put_along_axis(is_up, falling, np.arange(fractions.shape[1]) < raised[:, None], axis=1)
    movable = _count_movable(is_up)
    excess = is_up.sum(axis=0) - (columns - floors.sum(axis=0).astype(np.int64))
    while excess.any():
        path = _shortest_path(movable, excess)
        if path is None:
            shape = " x ".join(map(str, is_up.shape))
            raise RuntimeError(f"rounding {shape} entries: the sums of the columns are wrong")
        amount = _move(path, min(excess[path[0]], -excess[path[-1]]), fractions, is_up, movable)
        excess[path[0]] -= amount
        excess[path[-1]] += amount
    rounded: Integers = floors.astype(np.int64) + is_up
    return rounded


def _count_movable(is_up: npt.NDArray[np.bool_]) -> Floats:
    # For columns j, k: number of rows with j rounded up and k rounded down, where a unit could move from j to k.
    ups = is_up.astype(np.float64)
    return ups.T @ (1.0 - ups)


def _shortest_path(movable: Floats, excess: Integers) -> list[int] | None:
    # Breadth-first path from a column with an excess to the nearest with a deficit. No row serves twice on it, because
    # such a row would allow a shorter path.
    before: dict[int, int | None] = {int(column): None for column in np.flatnonzero(excess > 0)}
    queue = deque(before)
    while queue:
        column = queue.popleft()
        ends = np.flatnonzero((movable[column] > 0) & (excess < 0))
        if ends.size:
            path: list[int] = [int(ends[np.argmin(excess[ends])])]
            at: int | None = column
            while at is not None:
                path.append(at)
                at = before[at]
            return path[::-1]
        for following in np.flatnonzero(movable[column] > 0).tolist():
            if following not in before:
                before[following] = column
                queue.append(following)
    return None


def _move(path: list[int], most: int, fractions: Floats, is_up: npt.NDArray[np.bool_], movable: Floats) -> int:
    # Move as many units along the path as fit, and return their number. Updates `is_up` and `movable`.
    edges = list(itertools.pairwise(path))
    amount = int(min(most, *(movable[edge] for edge in edges)))
    for start, end in edges:
        rows = np.flatnonzero(is_up[:, start] & ~is_up[:, end])
        costs = fractions[rows, start] - fractions[rows, end]
        cheapest = rows[np.argsort(costs, kind="stable")[:amount]]
        movable -= _count_movable(is_up[cheapest])
        is_up[cheapest, start], is_up[cheapest, end] = False, True
        movable += _count_movable(is_up[cheapest])
    return amount
