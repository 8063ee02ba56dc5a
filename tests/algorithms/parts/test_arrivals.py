"""Asynchronous arrivals: who is under way, who is drawn, and how stale an update is."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from algorithms import Concurrent, Drawn, Participation, matching, parallelism
from algorithms.parts.arrivals import Delay, Dispatcher, EventQueue, Flight, Timeline


def timelines(delay: Delay, clients: int, cohort: int, arrivals: int) -> list[Timeline]:
    """The timeline after each arrival; the update of client k takes k + 1 seconds."""
    dispatcher = Dispatcher(0, np.arange(clients), cohort, lambda client: client + 1.0)
    events = EventQueue(Timeline(), delay, dispatcher)
    events.depart()
    found = [events.timeline]
    for _ in range(arrivals):
        events.next()
        events.depart()
        found.append(events.timeline)
    return found


def coming(timeline: Timeline) -> Flight:
    return min(timeline.flights, key=lambda flight: (flight.due, flight.number))


def under_way(timeline: Timeline) -> list[Flight]:
    return [flight for flight in timeline.flights if flight.base <= timeline.version]


def test_so_many_are_always_under_way() -> None:
    for size in (1, 4, 10):
        states = timelines(Concurrent(size), clients=10, cohort=3, arrivals=300)
        assert all(len({flight.client for flight in each.flights}) == size == len(each.flights) for each in states)
        assert all(each.sent == each.version + size for each in states)
        times = [each.now for each in states]
        assert times == sorted(times)
    assert len(timelines(Concurrent(), clients=10, cohort=3, arrivals=1)[0].flights) == 3


def test_among_equal_devices_the_order_is_that_of_the_dispatches() -> None:
    events = EventQueue(Timeline(), Concurrent(), Dispatcher(0, np.arange(9), 4, lambda client: 1.0))
    events.depart()
    numbers = []
    for version in range(20):
        flight = events.next()
        numbers.append((flight.number, version - flight.base))
        events.depart()
    assert numbers == [(i + 1, min(i, 3)) for i in range(20)]


def test_idle_clients_have_equal_chances() -> None:
    dispatcher = Dispatcher(0, np.array([3, 5, 8, 13, 21, 34]), 3, lambda client: 1.0)
    for busy in ([], [3], [34, 5], [21, 3, 13], [3, 5, 8, 13, 21]):
        idle = [client for client in (3, 5, 8, 13, 21, 34) if client not in busy]
        for number in range(30):
            place = int(dispatcher.rng(number).integers(len(idle)))
            busy_places = sorted(dispatcher.clients.searchsorted(busy).tolist())
            assert dispatcher.draw(dispatcher.rng(number), busy_places) == idle[place]


def test_ten_thousand_clients_under_way_cost_an_arrival_little() -> None:
    class Busy(list[int]):
        looks = 0

        def __getitem__(self, place: Any) -> Any:
            Busy.looks += 1
            return super().__getitem__(place)

        def __iter__(self) -> Iterator[int]:
            raise AssertionError("a draw goes through all busy clients")

    dispatcher = Dispatcher(0, np.arange(0, 60_000, 3), 10_000, lambda client: 1.0)
    busy = Busy(range(0, 20_000, 2))
    drawn = [dispatcher.draw(dispatcher.rng(number), busy) for number in range(20)]
    assert all(client is not None and client // 3 % 2 for client in drawn) and Busy.looks < 20 * 20


def test_drawn_staleness_is_uniform_and_never_older_than_the_initial_model() -> None:
    staleness = [each.version - coming(each).base for each in timelines(Drawn(4), clients=7, cohort=3, arrivals=1000)]
    assert all(0 <= value <= min(4, number) for number, value in enumerate(staleness))
    counts = Counter(staleness)
    assert set(counts) == {0, 1, 2, 3, 4} and all(abs(count / 1000 - 0.2) < 0.03 for count in counts.values())


@pytest.mark.parametrize("most", [0, 1, 10])
def test_the_average_parallelism_of_drawn_staleness(most: int) -> None:
    states = timelines(Drawn(most), clients=50, cohort=3, arrivals=2000)
    staleness = [each.version - coming(each).base for each in states[:-1]]
    running = [len(under_way(each)) for each in states[:-1]]
    # Each arrival of staleness s was under way in s + 1 intervals; those that did not arrive yet are left over.
    left = sum(states[-2].version + 1 - flight.base for flight in under_way(states[-2]) if flight.due > states[-1].now)
    assert sum(running) == sum(value + 1 for value in staleness) + left
    assert np.mean(running) == pytest.approx(parallelism(most), rel=0.03)


def test_the_staleness_that_matches_a_cohort() -> None:
    assert [parallelism(most) for most in (0, 1, 2, 10)] == [1, 1.5, 2, 6]
    assert [matching(parallel) for parallel in (1, 1.5, 1.9, 2, 6)] == [0, 1, 1, 2, 10]
    for parallel in range(1, 40):
        assert parallelism(matching(parallel)) == parallel < parallelism(matching(parallel) + 1)
    matched, exact = (timelines(Drawn(most), 50, 6, 30) for most in (None, 10))
    assert matched == exact


def test_the_staleness_of_radfed_s_comparison() -> None:
    reported = (18, 19, 18, 28, 31)  # for MNIST, Cifar10, Covertype, Shakespeare, eICU
    tenth = Participation(fraction=0.1)
    of_all = [matching(tenth.size(clients)) for clients in (100, 100, 100, 143, 164)]
    assert of_all == [18, 18, 18, 26, 30]
    assert all(0 <= theirs - ours <= 2 for theirs, ours in zip(reported, of_all, strict=True))
    of_training_clients = [matching(tenth.size(clients)) for clients in (60, 60, 60, 85, 98)]
    assert of_training_clients == [10, 10, 10, 14, 16]
