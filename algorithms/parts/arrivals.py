"""Asynchronous schedule: dispatched clients, the versions they start from, and their order of arrival.

Time is virtual: the timeline follows from seeds and sizes alone, never from training or the machine's speed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import floor, inf, isfinite, nextafter
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError, require
from algorithms.core.keys import Purpose, generator
from algorithms.parts.schedule import Participation, title_of

TRIES = 64
"""Clients that are tried before the availability of all is looked up."""

MOST_STALENESS = 10_000
"""Largest `max_staleness`. The timeline holds about as many client updates at once."""


@dataclass(frozen=True)
class Flight:
    """Client update between its dispatch and its arrival, or planned for a later version.

    Args:
        number: counter of the dispatch, which keys all its draws, starting at 1.
        client: client id.
        base: number of arrivals by its dispatch, which gives the version that it starts from.
        due: time of arrival, in the delay's own units.
        sent: time of dispatch.
        seconds: duration of the client update.
        lost: whether the client's device becomes unavailable at `due`, so that its update never arrives.
    """

    number: int
    client: int
    base: int
    due: float
    sent: float = 0.0
    seconds: float = 0.0
    lost: bool = False


@dataclass(frozen=True)
class Dispatcher:
    """Draws of the clients to dispatch, and the durations of their updates.

    Args:
        seed: seed of the run.
        clients: ids of the training clients, ascending, [K].
        cohort: arrivals a round.
        seconds: duration of a client's update, in seconds, by client id.
        devices: devices that are not always available; None if all are.
        before: numbers that keyed draws of earlier phases.
    """

    seed: int
    clients: NDArray[np.int64]
    cohort: int
    seconds: Callable[[int], float]
    devices: Devices | None = None
    before: int = 0

    def draw(self, rng: np.random.Generator, busy: Sequence[int] = (), now: float = 0.0) -> int | None:
        """Draw a client; all available clients that are not busy have the same chance. Return None if there is none.

        Args:
            rng: random stream of the dispatch.
            busy: places of busy clients in `clients`, ascending.
            now: time of the dispatch.
        """
        if self.devices is not None:
            return self._draw_available(rng, busy, now, self.devices)
        if len(busy) == len(self.clients):
            return None
        place = int(rng.integers(len(self.clients) - len(busy)))
        # `place` counts only free clients: move it up by one for each busy client at or before it.
        before = bisect_right(range(len(busy)), place, key=lambda number: busy[number] - number)
        return int(self.clients[place + before])

    def _draw_available(
        self, rng: np.random.Generator, busy: Sequence[int], now: float, devices: Devices
    ) -> int | None:
        # A few tries find a client at a cost that does not depend on the population; all are looked up only if not.
        for _ in range(TRIES):
            place = int(rng.integers(len(self.clients)))
            client, at = int(self.clients[place]), bisect_left(busy, place)
            if (at == len(busy) or busy[at] != place) and devices.until(client, now) > now:
                return client
        is_free = devices.available(self.clients, now)
        is_free[list(busy)] = False
        free = self.clients[is_free]
        return int(free[rng.integers(len(free))]) if len(free) else None

    def wake(self, busy: Sequence[int], now: float) -> float:
        """Return the time at which a client that is not busy becomes available; infinity if none ever does."""
        if self.devices is None:
            return inf
        wait = np.delete(self.devices.wait(self.clients, now), list(busy))
        return max(now + float(wait.min(initial=inf)), nextafter(now, inf))

    def flight(self, number: int, client: int, base: int, now: float) -> Flight:
        """Return a client's update that is dispatched at a time."""
        seconds = self.seconds(client)
        until = inf if self.devices is None else self.devices.until(client, now)
        due = now + seconds
        return Flight(number, client, base, min(due, until), now, seconds, until < due)

    def rng(self, number: int) -> np.random.Generator:
        """Return the random stream of a dispatch."""
        return generator(self.seed, Purpose.COHORT, self.before + number)


@dataclass(frozen=True)
class Timeline:
    """State of the virtual time between two rounds.

    Args:
        version: number of arrivals; each arrival makes a version of the model, or enters a buffer.
        now: time of the last arrival.
        flights: known client updates that have not arrived, by number.
        lost: number of client updates that never arrive, because their clients vanished.
    """

    version: int = 0
    now: float = 0.0
    flights: tuple[Flight, ...] = ()
    lost: int = 0

    @property
    def known(self) -> int:
        """Number of the last dispatch that is known."""
        return self.version + self.lost + len(self.flights)

    @property
    def sent(self) -> int:
        """Number of dispatched client updates, including arrived and lost ones."""
        return self.version + self.lost + sum(flight.base <= self.version for flight in self.flights)


class EventQueue:
    """Events within a round: a timeline that moves, with its flights in a heap.

    Args:
        timeline: timeline to begin with.
        delay: durations of client updates.
        dispatcher: draws of clients.
    """

    def __init__(self, timeline: Timeline, delay: Delay, dispatcher: Dispatcher) -> None:
        self.version, self.now, self.lost = timeline.version, timeline.now, timeline.lost
        self._delay, self._dispatcher = delay, dispatcher
        self._heap = [(flight.due, flight.number, flight) for flight in timeline.flights]
        heapify(self._heap)
        # Places of the clients under way among the dispatcher's, ascending.
        self.busy = sorted(self._place(flight) for flight in timeline.flights)
        self._bases = Counter(flight.base for flight in timeline.flights)

    @property
    def timeline(self) -> Timeline:
        """The timeline now."""
        return Timeline(self.version, self.now, tuple(sorted(self.flights, key=lambda each: each.number)), self.lost)

    @property
    def flights(self) -> list[Flight]:
        """Known client updates that have not arrived, in no order."""
        return [flight for _, _, flight in self._heap]

    @property
    def under_way(self) -> list[Flight]:
        """Dispatched client updates that will arrive: their version exists."""
        return [flight for flight in self.flights if flight.base <= self.version and not flight.lost]

    def __len__(self) -> int:
        return len(self._heap)

    def _place(self, flight: Flight) -> int:
        return int(self._dispatcher.clients.searchsorted(flight.client))

    def add(self, flight: Flight) -> None:
        """Add a client update."""
        heappush(self._heap, (flight.due, flight.number, flight))
        insort(self.busy, self._place(flight))
        self._bases[flight.base] += 1

    @property
    def coming(self) -> Flight:
        """Client update of the next event."""
        return self._heap[0][2]

    def next(self) -> Flight:
        """Move to the next event, and return its client update: it arrives, or its client vanishes.

        Of two events at the same time, the one with the lower dispatch number comes first.
        """
        self.now, _, flight = heappop(self._heap)
        del self.busy[bisect_left(self.busy, self._place(flight))]
        self._bases[flight.base] -= 1
        if not self._bases[flight.base]:
            del self._bases[flight.base]
        self.version, self.lost = self.version + (not flight.lost), self.lost + flight.lost
        return flight

    @property
    def bases(self) -> Collection[int]:
        """Numbers of arrivals by which the known client updates are dispatched."""
        return self._bases.keys()

    def depart(self) -> None:
        """Send the clients that start from the present version.

        Raises:
            InputError: no client is under way, and none ever becomes available.
        """
        while self._delay.departures(self, self._dispatcher):
            wake = self._dispatcher.wake(self.busy, self.now)
            if self._heap and wake >= self._heap[0][0]:
                break
            if wake == inf:
                raise InputError(nobody(self.now))
            self.now = wake


def nobody(now: float) -> str:
    """Return the error of a time after which no client is ever available again."""
    return (
        f"devices.table: no training client is available after {now:g} virtual seconds; set a period in the table, so "
        "that its intervals repeat, or run fewer rounds"
    )


@dataclass(frozen=True)
class Concurrent:
    """Constant number of clients that train at a time, each at the speed of its device.

    After each arrival another client starts at once, drawn uniformly among those that do not train.

    Args:
        concurrency: number of clients, >= 1; None for the number of arrivals a round.
    """

    concurrency: int | None = None

    counts_seconds: ClassVar[bool] = True
    """Whether the virtual time is in seconds."""

    def __post_init__(self) -> None:
        whole = self.concurrency is None or (isinstance(self.concurrency, int) and self.concurrency >= 1)
        name = "algorithm.concurrency"
        require(whole, name, self.concurrency, "a whole number >= 1", "leave it out for the cohort's size")

    def check(self, clients: int, cohort: int) -> None:
        """Raise InputError if there are fewer clients than `concurrency`."""
        if self.concurrency is not None and self.concurrency > clients:
            raise InputError(
                f"algorithm.concurrency = {self.concurrency}: must be at most {clients}, the number of training "
                f"clients; set algorithm.concurrency = {clients}"
            )

    def departures(self, events: EventQueue, dispatcher: Dispatcher) -> bool:
        """Send clients until enough are under way; return whether too few are, because no other one is available."""
        while len(events) < (self.concurrency or dispatcher.cohort):
            number = events.version + events.lost + len(events) + 1
            client = dispatcher.draw(dispatcher.rng(number), events.busy, events.now)
            if client is None:
                return dispatcher.devices is not None
            events.add(dispatcher.flight(number, client, events.version, events.now))
        return False


@dataclass(frozen=True)
class Drawn:
    """Staleness drawn uniformly for each arrival, from 0 to a maximum, and at most that of the initial model.

        s_t ~ U{0..max},  s_t <= t:  arrival t + 1 trained on version t - s_t

    Time counts arrivals. Clients are drawn uniformly too, including those that already train. An update of
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

    counts_seconds: ClassVar[bool] = False
    """Whether the virtual time is in seconds; it counts arrivals."""

    def __post_init__(self) -> None:
        most, name = self.max_staleness, "algorithm.max_staleness"
        whole = most is None or (isinstance(most, int) and 0 <= most <= MOST_STALENESS)
        require(whole, name, most, f"a whole number from 0 to {MOST_STALENESS}", f"set {name} = 10")

    def check(self, clients: int, cohort: int) -> None:
        """Accept any number of clients."""

    def departures(self, events: EventQueue, dispatcher: Dispatcher) -> bool:
        """Add client updates that start from the present version, and known later ones; no client is waited for."""
        most = matching(dispatcher.cohort) if self.max_staleness is None else self.max_staleness
        # Arrival `number` meets version number - 1. The last one added here is the first that may need this version.
        latest = events.version + most + 1
        for number in range(latest if events.version else 1, latest + 1):
            rng = dispatcher.rng(number)
            staleness = int(rng.integers(min(most, number - 1) + 1))
            client = dispatcher.draw(rng)
            if client is not None:
                events.add(Flight(number, client, number - 1 - staleness, number))
        return False


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
"""Durations of client updates, in units of the delay's own."""


@dataclass(frozen=True)
class Arrivals:
    """Asynchronous schedule: client updates are aggregated as they arrive; a round is a cohort's number of arrivals.

    Args:
        participation: rule that sets the number of arrivals a round.
        delay: durations of client updates: `Concurrent`, from devices, or `Drawn`, as in the paper.
        buffer: B, arrivals an aggregation, >= 1; None for the arrivals a round. The weight of an aggregation is the
            mean of its updates' weights.
        counts: what an update of version s contributes to version t: its "model" w_k, or its "change", as the model
            w_k - w_s + w_t. Entries that are no parameters contribute w_k in both.

    Raises:
        InputError: `participation` does not draw uniformly, has inactive clients or ends rounds; `buffer` is below 1.
    """

    participation: Participation = Participation()
    delay: Delay = Concurrent()
    buffer: int | None = 1
    counts: Literal["model", "change"] = "model"
    sends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.participation.by != "uniform":
            name = title_of(self.participation.by)
            raise InputError(
                f'algorithm.sampling = "{name}" with asynchronous arrivals: must be "uniform", because no '
                'cohort is drawn; set algorithm.sampling = "uniform"'
            )
        always = self.participation.active == 1
        allowed = "1.0 with asynchronous arrivals"
        require(always, "algorithm.active", self.participation.active, allowed, "leave it out")
        if key := self.participation.reporting.needs_virtual_time:
            raise InputError(f"{key} with asynchronous arrivals: must be left out, because no round waits; remove it")
        whole = self.buffer is None or (isinstance(self.buffer, int) and self.buffer >= 1)
        require(whole, "algorithm.buffer", self.buffer, "a whole number >= 1", "leave it out for the cohort's size")

    def size(self, clients: int) -> int:
        """Return the number of arrivals a round.

        Raises:
            InputError: there are fewer clients than the concurrency or the cohort's size.
        """
        size = self.participation.size(clients)
        self.delay.check(clients, size)
        return size
