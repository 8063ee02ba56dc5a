"""FedBuff: a heap of events in float64, clients that vanish, and its identities."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Assign,
    DeviceTable,
    InputError,
    Packed,
    Participation,
    Purpose,
    WeightedMix,
    fedasync,
    fedavg,
    fedbuff,
    generator,
    next_round,
    phases,
)
from algorithms.core.layout import Layout
from algorithms.parts.schedule import Reporting
from algorithms.rounds import asynchronous
from algorithms.rounds.timed import check_virtual_time
from raysim.fleet.inline import InlineFleet
from tests.kit.arrivals import LOCAL, simulate, table
from tests.kit.federation import Samples as Data
from tests.kit.federation import clients, perceptron
from tests.kit.reference import update
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
SIZES = (11, 4, 1, 23, 0, 8)
HALF = Participation(fraction=0.5)
SPEEDS = [8.0, 4.0, 3.0, 5.0, 6.0, 4.0]
DAY = [[(0.0, 5.0)], [(1.0, 4.0)], [(0.0, 2.0), (3.0, 6.0)], [(0.5, 6.0)], [(2.0, 3.0)], [(0.0, 1.0), (4.0, 5.5)]]


def events(
    data: list[Data], devices: DeviceTable, rounds: int, m: int, size: int, concurrency: int, alpha: float
) -> tuple[Layout, Packed, float, list[int]]:
    """Run every event of the paper's Algorithm 1 as it comes, eagerly; return the model, the time, who vanished."""
    module = perceptron(True).double()
    layout = Layout.of(module)
    parameters = {name for name, _ in module.named_parameters()}
    heap: list[Any] = []
    buffer: list[tuple[float, dict[str, torch.Tensor], dict[str, torch.Tensor]]] = []
    sent = arrivals = version = 0
    now, lost = 0.0, list[int]()

    def send() -> bool:
        nonlocal sent
        rng, busy = generator(0, Purpose.COHORT, sent + 1), {event[2] for event in heap}
        client = None
        for _ in range(64):
            tried = int(rng.integers(len(data)))
            if tried not in busy and devices.until(tried, now) > now:
                client = tried
                break
        if client is None:
            free = [k for k in range(len(data)) if k not in busy and devices.until(k, now) > now]
            if not free:
                return False
            client = free[int(rng.integers(len(free)))]
        sent += 1
        due, until = now + devices.seconds(0, client, len(data[client][1]), 0, 0), devices.until(client, now)
        start = deepcopy(module)
        model, rate = deepcopy(module), 0.1 * 0.9 ** (arrivals // m)
        trained = update(model, data[client], sent, client, replace(LOCAL, lr=rate))
        heappush(heap, (min(due, until), sent, client, version, start, model if trained else None, until < due))
        return True

    def fill() -> None:
        nonlocal now
        while len(heap) < concurrency:
            if send():
                continue
            free = set(range(len(data))) - {event[2] for event in heap}
            wake = now + min(float(devices.wait(np.array([k]), now)[0]) for k in free)
            if heap and wake >= heap[0][0]:
                return
            now = wake

    fill()
    while arrivals < rounds * m:
        now, _, client, base, start, arrived, vanished = heappop(heap)
        if vanished:
            lost.append(client)
        else:
            arrivals += 1
            weight = 0.0 if arrived is None else (1 + version - base) ** -0.5
            new = (arrived or start).state_dict()
            old, before = module.state_dict(), start.state_dict()
            change = {name: new[name] - before[name] + old[name] if name in parameters else new[name] for name in old}
            buffer.append((weight, change, new))
            if len(buffer) == size:
                total = sum(weight for weight, _, _ in buffer)
                if total:
                    share = alpha * total / size
                    mixed = {}
                    for name, value in old.items():
                        mean = sum(w * change[name] for w, change, _ in buffer) / total
                        counts = [new[name] for w, _, new in buffer if w]
                        mixed[name] = (
                            (1 - share) * value + share * mean if value.is_floating_point() else max([value, *counts])
                        )
                    module.load_state_dict(mixed)
                buffer, version = [], version + 1
        fill()
    return layout, layout.pack(module.state_dict()), now, lost


@pytest.mark.parametrize(("size", "concurrency", "absent"), [(1, 3, True), (3, 4, True), (2, 6, True), (3, 4, False)])
def test_it_matches_a_heap_of_events(size: int, concurrency: int, absent: bool, federation: Federation) -> None:
    data = clients(SIZES)
    devices = table(SPEEDS, DAY if absent else [[(0.0, inf)]] * 6, 6.0 if absent else inf)
    layout, model, now, lost = events(data, devices, 6, 3, size, concurrency, 0.8)
    algorithm = fedbuff(HALF, LOCAL, WeightedMix(0.8), buffer=size, concurrency=concurrency)
    state, fleet, states = simulate(federation, algorithm, data, 6, devices=devices)
    assert bool(lost) == absent
    for name, value in fleet.layouts.shared.unpack(state.model).items():
        np.testing.assert_allclose(value, layout.unpack(model)[name], atol=1e-9, rtol=0, err_msg=name)
    reports = [each.report for each in states[1:] if each.report]
    assert sum(each.measures["simulated_seconds"] for each in reports) == pytest.approx(state.now)
    assert state.now <= now + 1e-9
    found = [client for each in reports if each.dropped for client in each.dropped.clients.tolist()]
    assert found == lost[: len(found)]


def test_with_a_buffer_of_one_it_is_fedasync(federation: Federation) -> None:
    data, devices = clients(SIZES), table(SPEEDS)
    one = fedbuff(HALF, LOCAL, WeightedMix(0.6), buffer=1, concurrency=4, counts="model")
    other = fedasync(HALF, LOCAL, WeightedMix(0.6), concurrency=4, proximal=0.0)
    a, b = (simulate(federation, each, data, 4, devices=devices)[0] for each in (one, other))
    assert same(a.model, b.model)
    # Without staleness a change and a model are the same.
    ways: list[Any] = ["model", "change"]
    alone = [fedbuff(HALF, LOCAL, WeightedMix(0.6), buffer=1, concurrency=1, counts=counts) for counts in ways]
    a, b = (simulate(federation, each, data, 4, devices=devices)[0] for each in alone)
    np.testing.assert_allclose(a.model.floats, b.model.floats, atol=1e-12)


def test_the_last_round_aggregates_the_rest(federation: Federation) -> None:
    data, algorithm = clients(SIZES), fedbuff(HALF, LOCAL, buffer=5, concurrency=3)
    _, _, states = simulate(federation, algorithm, data, 4, devices=table(SPEEDS))
    aggregated = [each.report.aggregated for each in states[1:] if each.report]
    assert aggregated == [False, True, False, True]  # after 5, 10 and 12 arrivals
    assert [each.of("arrivals")["buffer"] is None for each in states[3:]] == [False, True]
    assert same(states[2].model, states[3].model) == (not aggregated[2])


def test_a_phase_ends_with_an_empty_buffer(federation: Federation) -> None:
    algorithm = phases(fedbuff(HALF, LOCAL, buffer=4, concurrency=3), (1, fedavg(HALF, LOCAL)))
    _, _, states = simulate(federation, algorithm, clients(SIZES), 5)
    assert [each.phase for each in states] == [0, 0, 0, 0, 1, 1]  # 12 arrivals are three buffers


def test_a_round_leaves_the_state_before_it_as_it_was(federation: Federation) -> None:
    # Those with few samples arrive first, so that the counters of the second round are larger.
    data, algorithm = clients((4, 4, 4, 12, 12, 12)), fedbuff(HALF, LOCAL, buffer=9, concurrency=6)
    _, fleet, states = simulate(federation, algorithm, data, 1, devices=table([1.0] * 3 + [2.4] * 3))
    before = next_round(states[0], algorithm, fleet)
    kept = pickle.loads(pickle.dumps(before.of("arrivals")["buffer"]))
    next_round(before, algorithm, fleet)
    np.testing.assert_equal(vars(before.of("arrivals")["buffer"].copy()), vars(kept.copy()))


@pytest.mark.parametrize("counts", ["model", "change"])
def test_what_is_under_way_survives_a_copy(counts: Any, federation: Federation) -> None:
    algorithm = fedbuff(HALF, LOCAL, buffer=2, concurrency=4, counts=counts)
    devices = table(SPEEDS, DAY, 6.0)
    state, fleet, states = simulate(federation, algorithm, clients(SIZES), 4, devices=devices)
    again = replace(states[2], memory=pickle.loads(pickle.dumps(states[2].memory)))
    for number in range(2):
        again = next_round(again, algorithm, fleet, last=number == 1)
    assert same(again.model, state.model) and again.now == state.now


@pytest.mark.parametrize("seed", range(3))
def test_properties_of_drawn_traces(seed: int, federation: Federation) -> None:
    rng = np.random.default_rng(seed)
    intervals = []
    for _ in range(8):
        times = np.sort(rng.choice(20, 4, replace=False)).astype(float).tolist()
        intervals.append(list(zip(times[::2], times[1::2], strict=True)))
    devices = table(rng.uniform(5, 30, 8).tolist(), intervals, 20.0)
    algorithm = fedbuff(Participation(cohort=3), LOCAL, buffer=2, concurrency=3)
    _, _, states = simulate(federation, algorithm, clients(rng.integers(1, 20, 8).tolist()), 10, devices=devices)
    sent = lost = arrived = 0
    for before, after in pairwise(states):
        assert after.report is not None and after.now >= before.now
        timeline = after.of("arrivals")["timeline"]
        flying = [flight.client for flight in timeline.flights]
        assert len(set(flying)) == len(flying) <= 3  # no client twice
        for flight in timeline.flights:
            assert devices.until(flight.client, flight.sent) >= flight.due  # nobody trains while absent
        lost += len(after.report.dropped) if after.report.dropped else 0
        arrived += len(after.report.updates)
        sent = timeline.sent
        assert sent == arrived + lost + len(flying)  # all accounts add up


@pytest.mark.parametrize("given", [{"buffer": 0}, {"staleness": "never"}, {"a": -1.0}, {"concurrency": 0}])
def test_numbers_out_of_range(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"algorithm.{next(iter(given))}"):
        fedbuff(HALF, LOCAL, **given)


def test_what_contradicts_arrivals() -> None:
    with pytest.raises(InputError, match=r"algorithm\.deadline = 2\.0 with asynchronous arrivals"):
        fedbuff(replace(HALF, reporting=Reporting(deadline=2.0)), LOCAL)
    with pytest.raises(InputError, match=r"algorithm\.max_staleness"):
        check_virtual_time(fedasync(HALF, LOCAL, max_staleness=2), table([1.0], [[(0.0, 1.0)]]))


class Reads:
    """Server rule that reads the clients' reports."""

    def __call__(self, model: Packed, mean: Packed, total: float, memory: Any, layout: Layout, updates: Any) -> Any:
        return mean, memory


def test_a_rule_that_reads_reports_needs_single_arrivals() -> None:
    assert fedbuff(HALF, LOCAL, Reads(), buffer=1)
    for buffer in (None, 2):
        with pytest.raises(InputError, match=r"with a buffer of arrivals: must not read the clients' reports"):
            fedbuff(HALF, LOCAL, Reads(), buffer=buffer)


def test_a_rule_of_the_mean_alone_leaves_no_weight_of_single_arrivals_out() -> None:
    assert fedbuff(HALF, LOCAL, Assign(), buffer=2, staleness="hinge")  # their weights differ within the mean
    assert fedbuff(HALF, LOCAL, Assign(), buffer=1, staleness="constant")
    with pytest.raises(InputError, match=r"weighting = Hinge.* of single arrivals: must be 'weighted-mix', because"):
        fedbuff(HALF, LOCAL, Assign(), buffer=1, staleness="hinge")


def test_updates_that_never_arrive_are_refused(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client is there for a second a day, and an update lasts longer."""
    monkeypatch.setattr(asynchronous, "VANISHED", 50)
    devices = table([0.5] * 6, [[(float(hour), hour + 1.0)] for hour in range(6)], 24.0)
    with pytest.raises(InputError, match=r"no update has arrived, of 60 that were sent by .* seconds"):
        simulate(federation, fedbuff(HALF, LOCAL), clients((11, 4, 17, 6, 9, 3)), 1, devices=devices)
