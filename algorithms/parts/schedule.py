"""The part `schedule`: who is visited, in what order, and when the models merge."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isfinite
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.errors import InputError, require
from algorithms.engine.keys import Purpose, generator

if TYPE_CHECKING:
    from algorithms.parts.importance import Importance

By: TypeAlias = "Literal['uniform', 'size'] | Importance"


@dataclass(frozen=True)
class Sample:
    """A cohort drawn without replacement: m = max(1, floor(fraction K)), or a number.

    Args:
        fraction: share of the K training clients, in (0, 1].
        cohort: number of clients instead, >= 1.
        by: what the chance to be drawn next grows with: nothing ("uniform"), the number of samples ("size"), or how
            large the gradients have been (`Importance`, of whose cohorts clients without a chance are no part).
        active: the chance that a client can be drawn at all in a round, in (0, 1]; where fewer are active, and have a
            chance, than are to be drawn, the cohort is smaller. Where nobody has a chance, all have the same.

    Raises:
        InputError: out of range, or both given.
    """

    fraction: float | None = None
    cohort: int | None = None
    by: By = "uniform"
    active: float = 1.0

    def __post_init__(self) -> None:
        one = self.fraction is None or self.cohort is None
        both = (self.cohort, self.fraction)
        require(one, "algorithm.cohort, algorithm.fraction", both, "one of them", "remove the other")
        known = self.by in ("uniform", "size") or hasattr(self.by, "needs")
        require(known, "algorithm.sampling", self.by, '"uniform" or "size"', 'set algorithm.sampling = "uniform"')
        share = isfinite(self.active) and 0 < self.active <= 1
        require(share, "algorithm.active", self.active, "in (0, 1]", "set algorithm.active = 1.0")
        if self.cohort is not None:
            whole = isinstance(self.cohort, int) and self.cohort >= 1
            require(whole, "algorithm.cohort", self.cohort, "a whole number >= 1", "set algorithm.cohort = 1")
        if self.fraction is not None:
            share = isfinite(self.fraction) and 0 < self.fraction <= 1
            require(share, "algorithm.fraction", self.fraction, "in (0, 1]", "set algorithm.fraction = 1.0")

    def size(self, clients: int) -> int:
        """The cohort's size m among so many training clients.

        Raises:
            InputError: a number above `clients` was asked for.
        """
        if self.cohort is None:
            share = 1.0 if self.fraction is None else self.fraction
            # 0.29 x 100 is 28.999999999999996 in binary: the product that was written down is meant.
            return max(1, floor(round(share * clients, 9)))
        if self.cohort > clients:
            raise InputError(
                f"algorithm.cohort = {self.cohort}: must be at most {clients}, the number of training clients; "
                f"set algorithm.cohort = {clients}"
            )
        return self.cohort

    def draw(
        self,
        clients: NDArray[np.int64],
        seed: int,
        number: int,
        weights: NDArray[Any] | None = None,
        most: int | None = None,
        joins: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """The cohort of a round, in client-id order; it may be empty where not all clients are active.

        Args:
            clients: all that may be drawn [K].
            seed: the run's.
            number: the round, the first being 1.
            weights: each client's chance, unnormalised [K]; not looked at where they are uniform.
            most: no more than so many are drawn.
            joins: the first round of each client [K]; a `fraction` is of those that have joined.

        Raises:
            InputError: fewer clients have samples than are to be drawn by size.
        """
        size = self.size(len(clients))
        if joins is not None:
            joined = joins <= number
            clients, weights = clients[joined], weights if weights is None else weights[joined]
            size = size if self.fraction is None else self.size(len(clients))
        if self.active < 1:
            there = generator(seed, Purpose.ACTIVE, number).random(len(clients)) < self.active
            clients, weights = clients[there], weights if weights is None else weights[there]
        size = min(size, len(clients), len(clients) if most is None else most)
        if size == len(clients):
            return np.sort(clients)
        rng = generator(seed, Purpose.COHORT, number)
        chances = 0 if weights is None or self.by == "uniform" else int(np.count_nonzero(weights > 0))
        if self.by not in ("uniform", "size") or self.active < 1:
            # Chances change, and so does who is there: no reason to end a run that has begun.
            size = min(size, chances) if chances else size
        if weights is None or (not chances and (self.by != "size" or self.active < 1)):
            return np.sort(clients[rng.choice(len(clients), size, replace=False, shuffle=False)])
        return np.sort(clients[draw_weighted(weights.astype(np.float64), size, rng)])


def draw_weighted(weights: NDArray[np.float64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw places one after the other without replacement, each with a chance in proportion to its weight.

    The `size` largest of log(u_k) / w_k, with u_k uniform in (0, 1]: O(K) a draw (Efraimidis and Spirakis 2006).

    Args:
        weights: >= 0 [K]; a place of weight 0 is never drawn.
        size: how many, at most K.
        rng: draws.

    Raises:
        InputError: fewer places have a weight above 0.
    """
    positive = int(np.count_nonzero(weights > 0))
    if positive < size:
        raise InputError(
            f"the cohort has {size} clients and {positive} have a chance to be drawn: must be at most as many; "
            'ask for a smaller cohort, or algorithm.sampling = "uniform"'
        )
    with np.errstate(divide="ignore"):  # a weight of 0: minus infinity, which is last
        keys = -rng.standard_exponential(len(weights)) / weights
    drawn: NDArray[np.int64] = np.argpartition(keys, len(weights) - size)[len(weights) - size :]
    return drawn


class Schedule(Protocol):
    """Who is visited, in what order, and when the models merge."""

    @property
    def sample(self) -> Sample:
        """How the clients of a round are drawn."""
        ...

    def size(self, clients: int) -> int:
        """Visits a round among so many training clients; InputError where they are too few."""
        ...


@dataclass(frozen=True)
class Rounds:
    """Synchronous rounds; the models merge every `aggregate_every`-th and are redistributed in between.

    Args:
        sample: how a round's cohort is drawn.
        merge_every: RADFed's S, >= 1; with 1 every round merges.
        fewer: what becomes of travelling models where a round has fewer clients than there are models: those that
            have made most visits "wait" for the next round, or are dropped ("drop"), and fewer go on to the merge.
            There are as many models as the first round after a merge has clients.
    """

    sample: Sample = Sample()
    aggregate_every: int = 1
    fewer: Literal["wait", "drop"] = "wait"

    def __post_init__(self) -> None:
        whole = isinstance(self.aggregate_every, int) and self.aggregate_every >= 1
        name = "algorithm.merge_every"
        require(whole, name, self.aggregate_every, "a whole number >= 1", "set algorithm.merge_every = 1")
        known = self.fewer in ("wait", "drop")
        require(known, "algorithm.fewer", self.fewer, '"wait" or "drop"', 'set algorithm.fewer = "wait"')

    def size(self, clients: int) -> int:
        """Visits a round: the cohort's size."""
        return self.sample.size(clients)

    def aggregates(self, number: int) -> bool:
        """Whether a round, the first being 1, ends in a merge."""
        return number % self.aggregate_every == 0

    def deal(self, size: int, seed: int, number: int) -> NDArray[np.int64]:
        """Which travelling model each member of the cohort gets: the round's own random permutation."""
        return generator(seed, Purpose.DEAL, number).permutation(size)
