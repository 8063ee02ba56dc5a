"""The part `schedule`: the cohort of each round, and the rounds that end in an aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, isfinite
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import InputError, require, require_one
from algorithms.core.keys import Purpose, generator

LateUpdates = Literal["drop", "stale"]


@dataclass(frozen=True)
class Reporting:
    """End of a synchronous round in virtual time.

    The server selects ceil(over x m) clients. The round ends when m client updates have arrived, when the deadline
    passes, or when no further update can arrive, whichever is first.

    Args:
        over: factor of over-selection, >= 1.
        deadline: seconds after which a round ends, > 0; None for no deadline.
        late: client updates that arrive after the end of their round. "drop" ignores them. "stale" counts them in the
            round in which they arrive, s rounds later, with 1 / sqrt(1 + s) of their weight, and applies their change
            to the present model: w_k - w_(t-s) + w_t.

    Raises:
        InputError: a number is out of range, or "stale" stands without a factor or a deadline.

    Paper: Bonawitz et al., "Towards Federated Learning at Scale: System Design", 2019, sections 2.2 and 9, which
    selects 130 % of the clients. The weight of a stale update is FedBuff's.
    """

    over: float = 1.0
    deadline: float | None = None
    late: LateUpdates = "drop"

    def __post_init__(self) -> None:
        holds = isfinite(self.over) and self.over >= 1
        require(holds, "algorithm.over", self.over, "a number >= 1", "set algorithm.over = 1.3")
        holds = self.deadline is None or (isfinite(self.deadline) and self.deadline > 0)
        require(holds, "algorithm.deadline", self.deadline, "a number of seconds > 0", "leave it out for no deadline")
        require_one("algorithm.late", self.late, get_args(LateUpdates), 'set algorithm.late = "drop"')
        if self.late == "stale" and self.over == 1 and self.deadline is None:
            raise InputError(
                'algorithm.late = "stale" without algorithm.over and algorithm.deadline: must stand with one of them, '
                "because no update is late otherwise; set algorithm.deadline"
            )

    @property
    def needs_virtual_time(self) -> str:
        """Key of a setting that only makes sense in virtual time; "" if there is none."""
        if self.over > 1:
            return f"algorithm.over = {self.over}"
        return "" if self.deadline is None else f"algorithm.deadline = {self.deadline}"

    def selected(self, size: int) -> int:
        """Return the number of clients to select for a cohort of m."""
        return size if self.over == 1 else ceil(round(self.over * size, 9))


def draw_weighted(
    weights: NDArray[np.float64], size: int, rng: np.random.Generator, fixed: bool = True
) -> NDArray[np.int64]:
    """Draw indices one after the other without replacement, each in proportion to its weight.

    The `size` largest of log(u_k) / w_k, with u_k uniform in (0, 1]: O(K) a draw (Efraimidis and Spirakis 2006).

    Args:
        weights: >= 0, [K]; an index of weight 0 is never drawn.
        size: number of indices, at most K.
        rng: source of the draws.
        fixed: whether `size` is fixed. Otherwise too few weights above 0 give fewer indices, and none gives equal
            chances: weights that change during a run must not end it.

    Raises:
        InputError: `size` is fixed, and fewer weights are above 0.
    """
    positive = int(np.count_nonzero(weights > 0))
    if not fixed and not positive:
        return rng.choice(len(weights), size, replace=False, shuffle=False)
    if not fixed:
        size = min(size, positive)
    if positive < size:
        raise InputError(
            f"a cohort of {size} clients, {positive} of them with a chance above 0: must be at most {positive}; "
            'set a smaller algorithm.cohort, or algorithm.sampling = "uniform"'
        )
    with np.errstate(divide="ignore"):  # a weight of 0 gives minus infinity, which comes last
        keys = -rng.standard_exponential(len(weights)) / weights
    drawn: NDArray[np.int64] = np.argpartition(keys, len(weights) - size)[len(weights) - size :]
    return drawn


CohortRule: TypeAlias = "Literal['uniform', 'size', 'poisson'] | CohortOption"
FewerClients = Literal["wait", "drop"]


@runtime_checkable
class CohortOption(Protocol):
    """Option of a round that draws its cohort, or the chances of its clients; see `algorithms.parts.option`."""

    name: ClassVar[str]

    def check_cohort(self, size: int, clients: int) -> None:
        """Raise InputError if the option contradicts the size of the cohort, or the number of training clients."""


def title_of(by: CohortRule) -> object:
    """Return a rule of sampling as the experiment file names it; the rule itself if the file names it by other keys."""
    return by if isinstance(by, str) else "oort" if by.name == "oort" else getattr(by, "title", by)


@dataclass(frozen=True)
class Participation:
    """Cohort drawn without replacement: m = max(1, floor(fraction K)), or a number; or Poisson sampling.

    In Poisson sampling every client joins independently with probability q = fraction. The cohort's size varies, and
    may be 0. `size` returns its expectation qK, rounded down.

    Args:
        fraction: share of the K training clients, in (0, 1].
        cohort: number of clients instead, >= 1.
        by: chance of a client to be drawn next: equal ("uniform"), in proportion to its samples ("size"), or to its
            gradients (`Importance`); the clients with the largest losses (`PowerOfChoice`); or those that a rule of
            one's own chooses (`OwnSelection`). "poisson" is Poisson sampling. An option draws in its own way.
        active: chance that a client is available in a round, in (0, 1]. If too few clients are available with a chance
            above 0, the cohort is smaller. If no chance is above 0, all are equal.
        reporting: end of a round in virtual time.

    Raises:
        InputError: a number is out of range, both `fraction` and `cohort` are given, or `cohort` with "poisson".
    """

    fraction: float | None = None
    cohort: int | None = None
    by: CohortRule = "uniform"
    active: float = 1.0
    reporting: Reporting = Reporting()

    def __post_init__(self) -> None:
        one = self.fraction is None or self.cohort is None
        both = (self.cohort, self.fraction)
        require(one, "algorithm.cohort, algorithm.fraction", both, "one of them", "remove the other")
        known = self.by in ("uniform", "size", "poisson") or isinstance(self.by, CohortOption)
        allowed = '"uniform", "size" or "poisson"'
        require(known, "algorithm.sampling", self.by, allowed, 'set algorithm.sampling = "uniform"')
        if self.by == "poisson" and self.cohort is not None:
            raise InputError(
                f'algorithm.cohort = {self.cohort} with algorithm.sampling = "poisson": must be left out, because the '
                "cohort's size varies; set algorithm.fraction, the probability that a client joins"
            )
        share = isfinite(self.active) and 0 < self.active <= 1
        require(share, "algorithm.active", self.active, "in (0, 1]", "set algorithm.active = 1.0")
        if self.cohort is not None:
            whole = isinstance(self.cohort, int) and self.cohort >= 1
            require(whole, "algorithm.cohort", self.cohort, "a whole number >= 1", "set algorithm.cohort = 1")
        if self.fraction is not None:
            share = isfinite(self.fraction) and 0 < self.fraction <= 1
            require(share, "algorithm.fraction", self.fraction, "in (0, 1]", "set algorithm.fraction = 1.0")

    @property
    def rate(self) -> float:
        """Share of the clients; in Poisson sampling the probability q that a client joins the cohort."""
        return 1.0 if self.fraction is None else self.fraction

    def size(self, clients: int) -> int:
        """Return the cohort's size m; in Poisson sampling, its expectation.

        Args:
            clients: number of training clients.

        Raises:
            InputError: `cohort` is above `clients`, or the number of candidates does not fit.
        """
        size = self.share(clients) if self.cohort is None else self.cohort
        if self.cohort is not None and size > clients:
            raise InputError(
                f"algorithm.cohort = {self.cohort}: must be at most {clients}, the number of training clients; "
                f"set algorithm.cohort = {clients}"
            )
        if isinstance(self.by, CohortOption):
            self.by.check_cohort(size, clients)
        return size

    def share(self, clients: int) -> int:
        """Return the size of the cohort's fraction of some clients, at least 1."""
        # 0.29 x 100 is 28.999999999999996 in binary; rounding restores the product that was written down.
        return max(1, floor(round(self.rate * clients, 9)))

    def present(self, clients: int, seed: int, round_number: int) -> NDArray[np.bool_]:
        """Return whether each of some clients is active in a round, [clients]."""
        return generator(seed, Purpose.ACTIVE, round_number).random(clients) < self.active

    def draw(
        self,
        clients: NDArray[np.int64],
        seed: int,
        round_number: int,
        weights: NDArray[Any] | None = None,
        size: int | None = None,
        fixed: bool = True,
    ) -> NDArray[np.int64]:
        """Draw the cohort of a round.

        Args:
            clients: ids of the clients to draw from, ascending, [n].
            seed: seed of the run.
            round_number: round, starting at 1.
            weights: unnormalised chance of each client, [n]; ignored with "uniform".
            size: number of clients to draw, at most n; None for the cohort of n clients.
            fixed: whether sampling by size needs as many clients with samples.

        Returns:
            Ids of the cohort in ascending order, [m]; perhaps fewer in Poisson sampling, or if not all clients are
            active.

        Raises:
            InputError: with "size", fewer clients have samples than are to be drawn.
        """
        size = self.size(len(clients)) if size is None else size
        if self.active < 1:
            active = self.present(len(clients), seed, round_number)
            clients, weights = clients[active], weights if weights is None else weights[active]
        rng = generator(seed, Purpose.COHORT, round_number)
        if self.by == "poisson":
            return np.sort(clients[rng.random(len(clients)) < self.rate])
        if size >= len(clients):
            return np.sort(clients)
        if self.by == "uniform" or weights is None:
            return np.sort(clients[rng.choice(len(clients), size, replace=False, shuffle=False)])
        fixed = fixed and self.by == "size" and self.active == 1
        return np.sort(clients[draw_weighted(weights.astype(np.float64), size, rng, fixed)])


class Schedule(Protocol):
    """Cohorts, and the order of client updates and aggregations."""

    sends: ClassVar[bool]
    """Whether clients send models."""

    @property
    def participation(self) -> Participation:
        """Rule that draws the clients of a round."""
        ...

    def size(self, clients: int) -> int:
        """Return the number of client updates a round; raise InputError if `clients` is too small."""
        ...


@dataclass(frozen=True)
class Rounds:
    """Synchronous rounds. Every `aggregate_every`-th aggregates the models; the others redistribute them.

    Args:
        participation: rule that draws a round's cohort.
        aggregate_every: RADFed's S, >= 1; with 1 every round aggregates.
        fewer: travelling models without a client, if a round has fewer clients than the first round after an
            aggregation had. "wait" keeps the models with most client updates for the next round; "drop" drops the
            models that get no client.
    """

    participation: Participation = Participation()
    aggregate_every: int = 1
    fewer: FewerClients = "wait"
    sends: ClassVar[bool] = True
    """Whether clients send models."""

    def __post_init__(self) -> None:
        name, every = "algorithm.aggregate_every", self.aggregate_every
        require(isinstance(every, int) and every >= 1, name, every, "a whole number >= 1", f"set {name} = 1")
        require_one("algorithm.fewer", self.fewer, get_args(FewerClients), 'set algorithm.fewer = "wait"')

    def size(self, clients: int) -> int:
        """Return the number of client updates a round: the cohort's size."""
        return self.participation.size(clients)

    def aggregates(self, round_number: int) -> bool:
        """Return whether a round ends in an aggregation; the first round is 1."""
        return round_number % self.aggregate_every == 0

    def deal(self, size: int, seed: int, round_number: int) -> NDArray[np.int64]:
        """Return the travelling model of each client of the cohort: the round's own random permutation."""
        return generator(seed, Purpose.DEAL, round_number).permutation(size)
