"""Algorithm 3 of the RADFed paper: from the optimal table to a random one near it."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from partitioning.common.checks import Floats, positive, whole
from partitioning.common.errors import InputError
from partitioning.qp.problem import Problem

_DRAWN = 2**16  # moves that are drawn at once

_Move = tuple[int, int, int, int, float]  # clients i, i', configurations u, u', and the share of the smaller entry


@dataclass(frozen=True)
class Walk:
    """How far Algorithm 3 walks.

    Args:
        burn_in: P, the most moves of the first phase.
        search: Q, the moves of the second phase.
        step: xi, the largest share that a move takes of the smaller of the two entries it takes from.
        ratio: the first phase ends once the loss's square root is this many times the optimum's.

    RADFed, section IV-D: P = 1e5, Q = 5e5, xi = 0.002. The text's min{A_ij, A_i'j', xi} reads xi as a number of
    samples; the authors' code takes it as a share, min{A_ij, A_i'j'} xi, and ends the burn-in at 1.1 to 1.2, as we do.
    """

    burn_in: int = 100_000
    search: int = 500_000
    step: float = 0.002
    ratio: float = 1.1

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        whole("burn_in", self.burn_in, least=0)
        whole("search", self.search, least=1)
        if positive("step", self.step) > 1:
            raise InputError(f"step is {self.step!r}: give a share above 0, 1 at most")
        if positive("burn_in_ratio", self.ratio) < 1:
            raise InputError(f"burn_in_ratio is {self.ratio!r}: give 1 or more, the optimum being 1")


@dataclass(frozen=True)
class Walked:
    """Where a walk ended: the table, the moves of its first phase, and the losses before and after."""

    table: Floats
    burned_in: int
    optimum: float
    loss: float


def randomise(problem: Problem, optimum: Floats, walk: Walk, random: np.random.Generator) -> Walked:
    """Walk away from the optimum by random rectangles, then keep the best table of a second walk.

    (i, u), (i', u') random entries,   e ~ uniform(0, xi min{A_iu, A_i'u'})
    A_iu -= e,   A_i'u' -= e,   A_iu' += e,   A_i'u += e

    Every move keeps both sums and no entry becomes negative. The loss is updated from the entries that move.

    Args:
        problem: problem (1) or (2).
        optimum: its solution [K, U].
        walk: how far.
        random: draws the moves.

    RADFed, Algorithm 3. The printed "A_ij, otherwise" must be A_mn. Deviations: see `Walk`; where the optimum is 0, no
    ratio to it can be reached and the burn-in takes all its moves.
    """
    state = _State(problem, optimum)
    start = state.loss
    goal = start * walk.ratio**2 if start > 1e-12 * float(problem.rows.sum()) ** 2 else np.inf
    burned_in = 0
    for move in itertools.islice(_moves(problem, walk.step, random), walk.burn_in):
        if state.loss >= goal:
            break
        state.move(*move)
        burned_in += 1
    best = _search(state, itertools.islice(_moves(problem, walk.step, random), walk.search))
    return Walked(best, burned_in, start, problem.loss(best))


def _search(state: "_State", moves: Iterator[_Move]) -> Floats:
    # The best table after any move. Copying it takes as long as many moves, so it is copied only when left, with the
    # two rows that the leaving move changed put back.
    best, kept, is_there = np.inf, state.table(), False
    for move in moves:
        i, j, *_ = move
        before = (state.row(i), state.row(j)) if is_there else ()
        state.move(*move)
        if state.loss < best:
            best, is_there = state.loss, True
        elif is_there and state.loss > best:
            kept, is_there = state.table(), False
            kept[[i, j]] = before
    return state.table() if is_there else kept


def _moves(problem: Problem, step: float, random: np.random.Generator) -> Iterator[_Move]:
    clients, configurations = problem.shape
    while True:
        people = random.integers(clients, size=(2, _DRAWN)).tolist()
        columns = random.integers(configurations, size=(2, _DRAWN)).tolist()
        shares = random.uniform(0.0, step, size=_DRAWN).tolist()
        yield from zip(*people, *columns, shares, strict=True)


class _State:
    # A table under way. Plain lists: a move touches a dozen numbers, for which numpy takes ten times as long.

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
        # Takes from (i, u) and (j, v) what it gives to (i, v) and (j, u).
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
