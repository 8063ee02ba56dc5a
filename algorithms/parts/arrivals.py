"""Asynchronous schedule: dispatched clients, the versions they start from, and their order of arrival.

The clock is virtual. The timeline follows from seeds and sizes alone, never from training or the machine's speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.errors import InputError, require
from algorithms.engine.keys import Purpose, generator
from algorithms.parts.schedule import Sample

MOST_STALENESS = 10_000
"""Largest `max_staleness`. The timeline holds about as many client updates at once."""


@dataclass(frozen=True)
class Flight:
    """Client update between its dispatch and its arrival, or planned for a later version.

    Args:
        number: counter of the dispatch, which keys all its draws, starting at 1.
        client: client id.
        base: version that it starts from: the number of arrivals aggregated by then.
        due: time of arrival on the delay's clock.
    """

    number: int
    client: int
    base: int
    due: float


@dataclass(frozen=True)
class Dispatcher:
    """Draws of the clients to dispatch, and the durations of their updates.

    Args:
        seed: seed of the run.
        clients: ids of the training clients, ascending, [K].
        cohort: arrivals a round.
        seconds: duration of a client's update, in seconds, by client id.
    """

    seed: int
    clients: NDArray[np.int64]
    cohort: int
    seconds: Callable[[int], float]

    def draw(self, rng: np.random.Generator, busy: Sequence[int] = ()) -> int:
        """Draw a client; all clients outside `busy` have the same chance."""
        place = int(rng.integers(len(self.clients) - len(busy)))
        taken = np.sort(np.searchsorted(self.clients, busy))
        # `place` counts only free clients: move it up by one for each busy client at or before it.
        others = taken - np.arange(len(taken))
        return int(self.clients[place + np.searchsorted(others, place, side="right")])

    def rng(self, number: int) -> np.random.Generator:
        """Return the random stream of a dispatch."""
        return generator(self.seed, Purpose.COHORT, number)


@dataclass(frozen=True)
class Timeline:
    """State of the virtual clock.

    Args:
        version: number of arrivals; each arrival makes a version of the model.
        now: time of the last arrival.
        flights: known client updates that have not arrived.
    """

    version: int = 0
    now: float = 0.0
    flights: tuple[Flight, ...] = ()

    @property
    def under_way(self) -> list[Flight]:
        """Dispatched client updates: their version exists."""
        return [flight for flight in self.flights if flight.base <= self.version]

    @property
    def sent(self) -> int:
        """Number of dispatched client updates, including arrived ones."""
        return self.version + len(self.under_way)

    @property
    def next(self) -> Flight:
        """Next arrival; of two at the same time, the one with the lower dispatch number."""
        return min(self.flights, key=lambda flight: (flight.due, flight.number))

    def arrived(self) -> Timeline:
        """Let the next client update arrive and make its version."""
        flight = self.next
        rest = tuple(other for other in self.flights if other is not flight)
        return replace(self, version=self.version + 1, now=flight.due, flights=rest)

    def departed(self, delay: Delay, dispatcher: Dispatcher) -> Timeline:
        """Add the client updates that start from the present version."""
        return replace(self, flights=self.flights + delay.departures(self, dispatcher))


@dataclass(frozen=True)
class Concurrent:
    """Constant number of clients that train at a time, each at the speed of its device.

    After each arrival another client starts at once, drawn uniformly among those that do not train.

    Args:
        concurrency: number of clients, >= 1; None for the number of arrivals a round.
    """

    concurrency: int | None = None

    def __post_init__(self) -> None:
        whole = self.concurrency is None or (isinstance(self.concurrency, int) and self.concurrency >= 1)
        name = "algorithm.concurrency"
        require(whole, name, self.concurrency, "a whole number >= 1", "leave it out for the cohort's size")

    @property
    def counts_seconds(self) -> bool:
        """Whether the clock counts virtual seconds."""
        return True

    def check(self, clients: int, cohort: int) -> None:
        """Raise InputError if there are fewer clients than `concurrency`."""
        if self.concurrency is not None and self.concurrency > clients:
            raise InputError(
                f"algorithm.concurrency = {self.concurrency}: must be at most {clients}, the number of training "
                f"clients; set algorithm.concurrency = {clients}"
            )

    def departures(self, timeline: Timeline, dispatcher: Dispatcher) -> tuple[Flight, ...]:
        """Return new client updates, which start from the timeline's version."""
        flights = list(timeline.flights)
        while len(flights) < (self.concurrency or dispatcher.cohort):
            number = timeline.version + len(flights) + 1
            client = dispatcher.draw(dispatcher.rng(number), [flight.client for flight in flights])
            due = timeline.now + dispatcher.seconds(client)
            flights.append(Flight(number, client, timeline.version, due))
        return tuple(flights[len(timeline.flights) :])


@dataclass(frozen=True)
class Drawn:
    """Staleness drawn uniformly for each arrival, from 0 to a maximum, and at most that of the initial model.

        s_t ~ U{0..max},  s_t <= t:  arrival t + 1 trained on version t - s_t

    The clock counts arrivals. Clients are drawn uniformly too, including those that already train. An update of
    staleness s lasts for s + 1 of the intervals between arrivals. After the first `max` arrivals, max / 2 + 1 clients
    therefore train at the same time on average.

    Args:
        max_staleness: from 0 to 10,000; None for the largest value with an average parallelism of at most the arrivals
            a round; see `matching`.

    RADFed, section IV-E, also matches the average parallelism to that of synchronous rounds, by simulation. It reports
    18, 19, 18, 28 and 31 for MNIST, Cifar10, Covertype, Shakespeare and eICU. These fit cohorts of a tenth of *all*
    clients, 10, 10, 10, 14 and 16 of 100, 100, 100, 143 and 164; the mean above then gives 18, 18, 18, 26 and 30. Its
    cohorts come from the training clients alone (60, 60, 60, 85 and 98): a tenth is 6, 6, 6, 8 and 9, which gives 10,
    10, 10, 14 and 16. The value None takes a cohort of training clients; the paper's numbers can be given directly.
    """

    max_staleness: int | None = None

    def __post_init__(self) -> None:
        most, name = self.max_staleness, "algorithm.max_staleness"
        whole = most is None or (isinstance(most, int) and 0 <= most <= MOST_STALENESS)
        require(whole, name, most, f"a whole number from 0 to {MOST_STALENESS}", f"set {name} = 10")

    @property
    def counts_seconds(self) -> bool:
        """Whether the clock counts virtual seconds; it counts arrivals."""
        return False

    def check(self, clients: int, cohort: int) -> None:
        """Accept any number of clients."""

    def departures(self, timeline: Timeline, dispatcher: Dispatcher) -> tuple[Flight, ...]:
        """Return client updates that start from the timeline's version, and known later ones."""
        most = matching(dispatcher.cohort) if self.max_staleness is None else self.max_staleness
        flights = []
        # Arrival `number` meets version number - 1. The last one added here is the first that may need this version.
        latest = timeline.version + most + 1
        for number in range(latest if timeline.version else 1, latest + 1):
            rng = dispatcher.rng(number)
            staleness = int(rng.integers(min(most, number - 1) + 1))
            flights.append(Flight(number, dispatcher.draw(rng), number - 1 - staleness, number))
        return tuple(flights)


def parallelism(max_staleness: int) -> float:
    """Return the average number of clients that train at a time with staleness from U{0..max}: max / 2 + 1."""
    return max_staleness / 2 + 1


def matching(parallel: float) -> int:
    """Return the largest maximum staleness with an average parallelism of at most m: floor(2 (m - 1)).

    Args:
        parallel: m, the clients of a synchronous round, >= 1.

    Raises:
        InputError: `parallel` is below 1.
    """
    holds = isfinite(parallel) and parallel >= 1
    require(holds, "the clients that train at a time", parallel, "a number >= 1", "give the cohort's size")
    return floor(2 * (parallel - 1))


Delay: TypeAlias = Concurrent | Drawn
"""Durations of client updates, in units of the delay's own clock."""


@dataclass(frozen=True)
class Arrivals:
    """Asynchronous schedule: every arrival is aggregated at once, and a round is a cohort's number of arrivals.

    Args:
        sample: rule that sets the number of arrivals a round.
        delay: durations of client updates: `Concurrent`, from devices, or `Drawn`, as in the paper.

    Raises:
        InputError: `sample` does not draw uniformly, or has inactive clients.
    """

    sample: Sample = Sample()
    delay: Delay = Concurrent()

    def __post_init__(self) -> None:
        if self.sample.by != "uniform":
            raise InputError(
                f'algorithm.sampling = "{self.sample.by}" with asynchronous arrivals: must be "uniform", because no '
                'cohort is drawn; set algorithm.sampling = "uniform"'
            )
        always = self.sample.active == 1
        allowed = "1.0 with asynchronous arrivals"
        require(always, "algorithm.active", self.sample.active, allowed, "leave it out")

    def size(self, clients: int) -> int:
        """Return the number of arrivals a round.

        Raises:
            InputError: there are fewer clients than the concurrency or the cohort's size.
        """
        size = self.sample.size(clients)
        self.delay.check(clients, size)
        return size
