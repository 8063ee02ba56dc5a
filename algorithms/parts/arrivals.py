"""The schedule of asynchronous algorithms: who is under way, from which version, and who arrives next.

The clock is virtual, and the timeline follows from seeds and sizes alone: never from what was trained, nor from how
fast this machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.errors import InputError, require
from algorithms.engine.keys import Purpose, generator
from algorithms.parts.schedule import Sample


@dataclass(frozen=True)
class Flight:
    """A visit that is under way, or is known to begin with a version to come.

    Args:
        number: the counter of all its draws, the first being 1.
        client: who is visited.
        base: the version that it begins with: how many arrivals have merged by then.
        due: when it arrives, by the delay's clock.
    """

    number: int
    client: int
    base: int
    due: float


@dataclass(frozen=True)
class Dispatcher:
    """Who may be sent, and for how long.

    Args:
        seed: the run's.
        clients: all of them, ascending [K].
        cohort: arrivals a round.
        seconds: what a client's visit lasts.
    """

    seed: int
    clients: NDArray[np.int64]
    cohort: int
    seconds: Callable[[int], float]

    def draw(self, rng: np.random.Generator, busy: Sequence[int] = ()) -> int:
        """A client, all that are not busy having the same chance."""
        place = int(rng.integers(len(self.clients) - len(busy)))
        taken = np.sort(np.searchsorted(self.clients, busy))
        # `place` counts the others alone: each busy client that has no more of them before it moves it up by one.
        others = taken - np.arange(len(taken))
        return int(self.clients[place + np.searchsorted(others, place, side="right")])

    def rng(self, number: int) -> np.random.Generator:
        """What decides on a dispatch."""
        return generator(self.seed, Purpose.COHORT, number)


@dataclass(frozen=True)
class Timeline:
    """The state of the virtual clock.

    Args:
        version: arrivals so far, each of which made a version of the model.
        now: when the last one was.
        flights: those that are to arrive, as far as they are known.
    """

    version: int = 0
    now: float = 0.0
    flights: tuple[Flight, ...] = ()

    @property
    def under_way(self) -> list[Flight]:
        """Those that were sent: their version is there."""
        return [flight for flight in self.flights if flight.base <= self.version]

    @property
    def sent(self) -> int:
        """How many were sent so far, those that arrived included."""
        return self.version + len(self.under_way)

    @property
    def next(self) -> Flight:
        """Who arrives next; of two at the same time, the one sent first."""
        return min(self.flights, key=lambda flight: (flight.due, flight.number))

    def arrived(self) -> Timeline:
        """The next one has arrived, and its version is there."""
        flight = self.next
        rest = tuple(other for other in self.flights if other is not flight)
        return replace(self, version=self.version + 1, now=flight.due, flights=rest)

    def departed(self, delay: Delay, dispatcher: Dispatcher) -> Timeline:
        """All are known that begin with this version."""
        return replace(self, flights=self.flights + delay.departures(self, dispatcher))


class Delay(Protocol):
    """How long visits are under way, in whatever its clock counts."""

    @property
    def counts_seconds(self) -> bool:
        """Whether the clock counts virtual seconds."""
        ...

    def check(self, clients: int, cohort: int) -> None:
        """Raise InputError where so many clients, with such a cohort, are too few."""
        ...

    def departures(self, timeline: Timeline, dispatcher: Dispatcher) -> tuple[Flight, ...]:
        """The visits that begin with the timeline's version, and later ones as far as they are known with it."""
        ...


@dataclass(frozen=True)
class Concurrent:
    """So many clients are always under way, for as long as their devices take.

    Whoever arrives is followed at once by another client, drawn uniformly among those that are not under way.

    Args:
        concurrency: how many, >= 1; None for as many as a round has arrivals.
    """

    concurrency: int | None = None

    def __post_init__(self) -> None:
        whole = self.concurrency is None or (isinstance(self.concurrency, int) and self.concurrency >= 1)
        name = "algorithm.concurrency"
        require(whole, name, self.concurrency, "a whole number >= 1", "leave it out for the cohort's size")

    @property
    def counts_seconds(self) -> bool:
        return True

    def check(self, clients: int, cohort: int) -> None:
        if self.concurrency is not None and self.concurrency > clients:
            raise InputError(
                f"algorithm.concurrency = {self.concurrency}: must be at most {clients}, the number of training "
                f"clients; set algorithm.concurrency = {clients}"
            )

    def departures(self, timeline: Timeline, dispatcher: Dispatcher) -> tuple[Flight, ...]:
        flights = list(timeline.flights)
        while len(flights) < (self.concurrency or dispatcher.cohort):
            number = timeline.version + len(flights) + 1
            client = dispatcher.draw(dispatcher.rng(number), [flight.client for flight in flights])
            due = timeline.now + dispatcher.seconds(client)
            flights.append(Flight(number, client, timeline.version, due))
        return tuple(flights[len(timeline.flights) :])


@dataclass(frozen=True)
class Drawn:
    """Each arrival's staleness is drawn, uniformly from 0 to the largest, at most that of the initial model.

        s_t ~ U{0..max},  s_t <= t:  arrival t + 1 trained on version t - s_t

    The clock counts arrivals. Clients are drawn uniformly too, whether or not they are under way already. A visit of
    staleness s is under way in s + 1 of the intervals between arrivals, so on average, after the first `max` arrivals,
    max / 2 + 1 clients train at the same time.

    Args:
        max_staleness: >= 0; None for the largest at which, on average, no more clients train at the same time than
            a round has arrivals: see `matching`.

    RADFed, section IV-E, matches the average parallelism to that of synchronous rounds too, by simulation, and reports
    18, 19, 18, 28 and 31 for MNIST, Cifar10, Covertype, Shakespeare and eICU. That fits cohorts of a tenth of *all*
    clients, 10, 10, 10, 14 and 16 of 100, 100, 100, 143 and 164, for which the mean above gives 18, 18, 18, 26 and 30.
    Of the training clients alone, from which its cohorts come (60, 60, 60, 85 and 98), a tenth is 6, 6, 6, 8 and 9,
    which gives 10, 10, 10, 14 and 16. What "matched" takes is a cohort of training clients; the paper's numbers may be
    written as they are.
    """

    max_staleness: int | None = None

    def __post_init__(self) -> None:
        whole = self.max_staleness is None or (isinstance(self.max_staleness, int) and self.max_staleness >= 0)
        name = "algorithm.max_staleness"
        require(whole, name, self.max_staleness, "a whole number >= 0", f"set {name} = 10")

    @property
    def counts_seconds(self) -> bool:
        return False

    def check(self, clients: int, cohort: int) -> None:
        """Any number of clients will do."""

    def departures(self, timeline: Timeline, dispatcher: Dispatcher) -> tuple[Flight, ...]:
        most = matching(dispatcher.cohort) if self.max_staleness is None else self.max_staleness
        flights = []
        # Arrival `number` meets version number - 1: this version is the first that the last of them may begin with.
        latest = timeline.version + most + 1
        for number in range(latest if timeline.version else 1, latest + 1):
            rng = dispatcher.rng(number)
            staleness = int(rng.integers(min(most, number - 1) + 1))
            flights.append(Flight(number, dispatcher.draw(rng), number - 1 - staleness, number))
        return tuple(flights)


def parallelism(max_staleness: int) -> float:
    """How many clients train at the same time, on average, where staleness is drawn from U{0..max}: max / 2 + 1."""
    return max_staleness / 2 + 1


def matching(parallel: float) -> int:
    """The largest max at which no more than so many clients train at the same time, on average: floor(2 (m - 1)).

    Args:
        parallel: the m clients of a synchronous round, >= 1.

    Raises:
        InputError: fewer than one.
    """
    holds = isfinite(parallel) and parallel >= 1
    require(holds, "the clients that train at the same time", parallel, "a number >= 1", "give the cohort's size")
    return floor(2 * (parallel - 1))


@dataclass(frozen=True)
class Arrivals:
    """Asynchronous: every arrival merges at once, and as many as a cohort has make a round.

    Args:
        sample: says how many arrivals that is.
        delay: how long visits are under way: `Concurrent`, on devices, or `Drawn`, as the paper does it.

    Raises:
        InputError: clients are to be drawn otherwise than uniformly.
    """

    sample: Sample = Sample()
    delay: Delay = Concurrent()

    def __post_init__(self) -> None:
        if self.sample.by != "uniform":
            raise InputError(
                f'algorithm.sampling = "{self.sample.by}" where arrivals merge one by one: must be "uniform", for no '
                'cohort is drawn; set algorithm.sampling = "uniform"'
            )
        always = self.sample.active == 1
        allowed = "1.0 where arrivals merge one by one"
        require(always, "algorithm.active", self.sample.active, allowed, "leave it out")

    def size(self, clients: int) -> int:
        """Arrivals a round.

        Raises:
            InputError: there are fewer clients than have to be under way, or than a cohort has.
        """
        size = self.sample.size(clients)
        self.delay.check(clients, size)
        return size
