"""Controlled rounding: a real table becomes whole numbers that keep every row and column sum."""

import itertools
from collections import deque

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Floats, Integers


def round_table(table: Floats, rows: Integers, columns: Integers) -> Integers:
    """Round every entry down or up so that both sums are exact.

    A_tk <- floor(A_tk) or floor(A_tk) + 1,   so |change| <= 1 an entry and at most sqrt(K C) in Euclidean distance

    First each row raises the entries with the largest fractions, which is nearest for the row alone. Then units move
    from columns that have too many to columns that have too few, along the shortest paths and in the rows where that
    costs least.

    Args:
        table: the table A [K, C], non-negative, its sums right up to a solver's noise: of up to 1e12 samples, for with
            more that noise is whole samples.
        rows: exact row sums [K].
        columns: exact column sums [C].

    Raises RuntimeError where the sums of `table` are too far off for any rounding. Our own step: the RADFed paper does
    not say how to round.
    """
    if table.shape[0] < table.shape[1]:
        return round_table(table.T, columns, rows).T
    floors = np.floor(np.maximum(table, 0.0))
    raised = rows - floors.sum(axis=1)
    if raised.min(initial=0) < 0 or raised.max(initial=0) > columns.size:
        raise RuntimeError(f"rounding {table.shape[0]} x {table.shape[1]} entries: the sums of the rows are wrong")
    ups = _Ups(np.maximum(table, 0.0) - floors, raised.astype(np.int64))
    excess = ups.chosen.sum(axis=0) - (columns - floors.sum(axis=0).astype(np.int64))
    while excess.any():
        path = ups.shortest_path(excess)
        amount = ups.move(path, min(excess[path[0]], -excess[path[-1]]))
        excess[path[0]] -= amount
        excess[path[-1]] += amount
    rounded: Integers = floors.astype(np.int64) + ups.chosen
    return rounded


class _Ups:
    # Which entries are rounded up, and in how many rows a unit could move from column j to column k.

    def __init__(self, fractions: Floats, raised: Integers) -> None:
        self._fractions = fractions
        falling = np.argsort(-fractions, axis=1, kind="stable")
        self.chosen = np.zeros(fractions.shape, np.bool_)
        np.put_along_axis(self.chosen, falling, np.arange(fractions.shape[1]) < raised[:, None], axis=1)
        self._movable = _movable(self.chosen)

    def shortest_path(self, excess: Integers) -> list[int]:
        # From a column with too many to the nearest one with too few, breadth first. No row serves twice on it: a row
        # that could would allow a shorter one.
        before: dict[int, int | None] = {int(column): None for column in np.flatnonzero(excess > 0)}
        queue = deque(before)
        while queue:
            column = queue.popleft()
            ends = np.flatnonzero((self._movable[column] > 0) & (excess < 0))
            if ends.size:
                return _walk_back(before, column, int(ends[np.argmin(excess[ends])]))
            for following in np.flatnonzero(self._movable[column] > 0).tolist():
                if following not in before:
                    before[following] = column
                    queue.append(following)
        raise RuntimeError(
            f"rounding {' x '.join(map(str, self.chosen.shape))} entries: the sums of the columns are wrong"
        )

    def move(self, path: list[int], most: int) -> int:
        # Moves as many units along a path as fit, and says how many.
        edges = list(itertools.pairwise(path))
        amount = int(min(most, *(self._movable[edge] for edge in edges)))
        for start, end in edges:
            rows = np.flatnonzero(self.chosen[:, start] & ~self.chosen[:, end])
            costs = self._fractions[rows, start] - self._fractions[rows, end]
            cheapest = rows[np.argsort(costs, kind="stable")[:amount]]
            self._movable -= _movable(self.chosen[cheapest])
            self.chosen[cheapest, start], self.chosen[cheapest, end] = False, True
            self._movable += _movable(self.chosen[cheapest])
        return amount


def _movable(chosen: npt.NDArray[np.bool_]) -> Floats:
    # For columns j, k: rows in which j is rounded up and k down.
    ups = chosen.astype(np.float64)
    return ups.T @ (1.0 - ups)


def _walk_back(before: dict[int, int | None], column: int, end: int) -> list[int]:
    path = [end]
    at: int | None = column
    while at is not None:
        path.append(at)
        at = before[at]
    return path[::-1]
