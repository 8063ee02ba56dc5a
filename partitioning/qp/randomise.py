"""Algorithm 3 of the RADFed paper: walk from the optimal table to a random one nearby."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from partitioning.common.checks import Floats, positive, whole
from partitioning.common.errors import InputError
from partitioning.qp.problem import Problem

_DRAWN = 2**16  # moves drawn at once

_Move = tuple[int, int, int, int, float]  # clients i, i'; configurations u, u'; share of the smaller entry


@dataclass(frozen=True)
class Walk:
    """Lengths and steps of Algorithm 3 (RADFed, section IV-D: P = 1e5, Q = 5e5, xi = 0.002).

    Deviation: the text's min{A_ij, A_i'j', xi} reads xi as a number of samples. The authors' code takes it as a share,
    min{A_ij, A_i'j'} xi, and ends the burn-in at a ratio of 1.1 to 1.2; this class follows the code.

    Args:
        burn_in: P, largest number of moves in the first phase.
        search: Q, number of moves in the second phase.
        step: xi, largest share of the smaller of two entries that a move takes.
        ratio: ratio of the loss's square root to the optimum's that ends the first phase.
    """

    burn_in: int = 100_000
    search: int = 500_000
    step: float = 0.002
    ratio: float = 1.1

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        whole("burn_in", self.burn_in, least=0)
        whole("search", self.search, least=1)
        if positive("step", self.step) > 1:
            raise InputError(f"step is {self.step!r}: give a share above 0, 1 at most")
        if positive("burn_in_ratio", self.ratio) < 1:
            raise InputError(f"burn_in_ratio is {self.ratio!r}: give 1 or more (1 is the optimum)")


@dataclass(frozen=True)
class WalkResult:
    """Result of a walk: the table, the number of moves in the first phase, and the losses before and after."""

    table: Floats
    burned_in: int
    optimum: float
    loss: float


def randomise(problem: Problem, optimum: Floats, walk: Walk, random: np.random.Generator) -> WalkResult:
    """Walk away from the optimum by random moves, then return the best table of a second walk (RADFed, Algorithm 3).

        (i, u), (i', u') random entries,   e ~ uniform(0, xi min{A_iu, A_i'u'})
        A_iu -= e,   A_i'u' -= e,   A_iu' += e,   A_i'u += e

    Every move keeps both sums, and no entry becomes negative. The loss is updated from the changed entries. The printed
    "A_ij, otherwise" must be A_mn. Deviations: see `Walk`. If the optimum is 0, no ratio to it can be reached, and the
    burn-in takes all its moves.

    Args:
        problem: problem (1) or (2).
        optimum: solution of the problem [K, U].
        walk: lengths and steps.
        random: generator of the moves.
    """
    state = _WalkState(problem, optimum)
    start = state.loss
    goal = start * walk.ratio**2 if start > 1e-12 * float(problem.rows.sum()) ** 2 else np.inf
    burned_in = 0
    for move in itertools.islice(_moves(problem, walk.step, random), walk.burn_in):
        if state.loss >= goal:
            break
        state.move(*move)
        burned_in += 1
    best = _search(state, itertools.islice(_moves(problem, walk.step, random), walk.search))
    return WalkResult(best, burned_in, start, problem.loss(best))


def _search(state: "_WalkState", moves: Iterator[_Move]) -> Floats:
    # Return the best table of the walk. A copy costs as much as many moves. Hence copy only when the walk leaves the
    # best table, and restore the two rows that the leaving move changed.
    best, copied, is_there = np.inf, state.table(), False
    for move in moves:
        i, j, *_ = move
        before = (state.row(i), state.row(j)) if is_there else ()
        state.move(*move)
        if state.loss < best:
            best, is_there = state.loss, True
        elif is_there and state.loss > best:
            copied, is_there = state.table(), False
            copied[[i, j]] = before
    return state.table() if is_there else copied


def _moves(problem: Problem, step: float, random: np.random.Generator) -> Iterator[_Move]:
    clients, configurations = problem.shape
    while True:
        rows = random.integers(clients, size=(2, _DRAWN)).tolist()
        columns = random.integers(configurations, size=(2, _DRAWN)).tolist()
        shares = random.uniform(0.0, step, size=_DRAWN).tolist()
        yield from zip(*rows, *columns, shares, strict=True)


class _WalkState:
    # Table of a walk, in plain lists: a move touches a dozen numbers, and numpy would take ten times as long.

    def __init__(self, problem: Problem, table: Floats) -> None:
        self.loss = problem.loss(table)
        self._entries: list[list[float]] = table.tolist()
        self._deviations: list[list[float]] = problem.deviations(table).tolist()
        self._places: list[list[int]] = problem.places.tolist()

    def table(self) -> Floats:
        return np.array(self._entries)

    def row(self, client: int) -> list[float]:
        return self._entries[client].copy()

    def move(self, i: int, j: int, u: int, v: int, share: float) -> None:
        # Take from (i, u) and (j, v); give to (i, v) and (j, u).
        mine, other = self._entries[i], self._entries[j]
        size = share * min(mine[u], other[v])
        if not size or i == j or u == v:
            return
        mine[u] -= size
        other[v] -= size
        mine[v] += size
        other[u] += size
        ours, theirs = self._deviations[i], self._deviations[j]
        rise = 0.0
        for d, e in zip(self._places[u], self._places[v], strict=True):
            if d != e:
                rise += ours[e] - ours[d] + theirs[d] - theirs[e] + 2 * size
                ours[d] -= size
                theirs[e] -= size
                ours[e] += size
                theirs[d] += size
        self.loss += 2 * size * rise
