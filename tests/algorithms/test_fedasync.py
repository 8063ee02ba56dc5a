"""FedAsync: both delays against plain references, and its identities."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Adam,
    Algorithm,
    Arrivals,
    Assign,
    Census,
    Concurrent,
    DivergedError,
    DrawnDevices,
    Equal,
    Hinge,
    InputError,
    Layout,
    Local,
    Mix,
    Packed,
    Participation,
    Polynomial,
    Purpose,
    Samples,
    Sharing,
    State,
    WeightedMix,
    begin,
    fedasync,
    fedavg,
    generator,
    matching,
    next_round,
    phases,
    radfed,
)
from algorithms.core.report import Report, UpdateRows
from algorithms.fedprox import with_proximal
from algorithms.rounds.asynchronous import AsyncProgress
from raysim.fleet.inline import InlineFleet
from tests.kit.arrivals import LOCAL, Federation, simulate
from tests.kit.federation import Samples as Data
from tests.kit.federation import clients, perceptron
from tests.kit.reference import update
from tests.kit.rounds import same, train

SIZES = (11, 4, 1, 23, 0, 8)
HALF = Participation(fraction=0.5)
DEVICES = DrawnDevices(compute=20, spread=1.0, down=1e4, up=1e3, latency=0.1)


# The references: written from the paper, eager where the engine is lazy.


def f(kind: str, staleness: int, a: float, b: float) -> float:
    if kind == "constant":
        return 1.0
    if kind == "polynomial":
        return (staleness + 1) ** -a
    return 1.0 if staleness <= b else 1 / (a * (staleness - b) + 1)


def mix(module: torch.nn.Module, arrived: torch.nn.Module, alpha: float) -> torch.nn.Module:
    mixed, new = deepcopy(module), arrived.state_dict()
    old = module.state_dict()
    mixed.load_state_dict(
        {
            name: (1 - alpha) * value + alpha * new[name] if value.is_floating_point() else max(value, new[name])
            for name, value in old.items()
        }
    )
    return mixed


def on_devices(data: list[Data], rounds: int, m: int, concurrency: int, nbytes: int, **how: Any) -> tuple[Any, float]:
    """A heap of events in virtual time; the model, and when its last arrival was."""
    module, local = perceptron(True).double(), with_proximal(LOCAL, how["rho"])
    heap: list[Any] = []
    sent = now = 0

    def send(version: int) -> None:
        nonlocal sent
        sent += 1
        idle = sorted(set(range(len(data))) - {event[2] for event in heap})
        client = idle[generator(0, Purpose.COHORT, sent).integers(len(idle))]
        speed = 20 * np.exp(generator(0, Purpose.DEVICE, 0, client).standard_normal())
        due = now + 0.1 + nbytes / 1e4 + len(data[client][1]) / speed + nbytes / 1e3
        model = deepcopy(module)
        rate = 0.1 * 0.9 ** (version // m)
        trained = update(model, data[client], sent, client, replace(local, lr=rate))
        heappush(heap, (due, sent, client, version, model if trained else None))

    for _ in range(concurrency):
        send(0)
    for version in range(rounds * m):
        now, _, _, base, arrived = heappop(heap)
        if arrived is not None:
            module = mix(module, arrived, how["alpha"] * f(how["kind"], version - base, how["a"], how["b"]))
        send(version + 1)
    return module, now


def as_drawn(data: list[Data], rounds: int, m: int, most: int, **how: Any) -> torch.nn.Module:
    """All versions are stored; each arrival draws the one that it trained on."""
    local, versions = with_proximal(LOCAL, how["rho"]), [perceptron(True).double()]
    for t in range(rounds * m):
        rng = generator(0, Purpose.COHORT, t + 1)
        staleness = int(rng.integers(min(most, t) + 1))
        client, model = int(rng.integers(len(data))), deepcopy(versions[t - staleness])
        rate = 0.1 * 0.9 ** ((t - staleness) // m)
        trained = update(model, data[client], t + 1, client, replace(local, lr=rate))
        alpha = how["alpha"] * f(how["kind"], staleness, how["a"], how["b"])
        versions.append(mix(versions[-1], model, alpha) if trained else versions[-1])
    return versions[-1]


HOW = [
    {"kind": "constant", "alpha": 0.6, "rho": 0.5, "a": 0.0, "b": 0.0},
    {"kind": "polynomial", "alpha": 0.9, "rho": 0.0, "a": 0.5, "b": 0.0},
    {"kind": "hinge", "alpha": 0.9, "rho": 0.1, "a": 10.0, "b": 1.0},
]


def composed(how: dict[str, Any], **delay: Any) -> Algorithm:
    own = {"constant": (), "polynomial": ("a",), "hinge": ("a", "b")}[how["kind"]]
    numbers = {name: how[name] for name in own}
    server = WeightedMix(how["alpha"])
    return fedasync(HALF, LOCAL, server, staleness=how["kind"], proximal=how["rho"], **numbers, **delay)


def close(state: State, module: torch.nn.Module, fleet: InlineFleet) -> None:
    assert state.model.floats.dtype == np.float64
    for name, value in fleet.layouts.shared.unpack(state.model).items():
        np.testing.assert_allclose(value, module.state_dict()[name].numpy(), atol=1e-9, rtol=0, err_msg=name)


@pytest.mark.parametrize(("how", "concurrency"), [(HOW[0], 2), (HOW[1], 5), (HOW[2], 6), (HOW[2], 2)])
def test_on_devices_it_matches_a_heap_of_events(how: dict[str, Any], concurrency: int, federation: Federation) -> None:
    data = clients(SIZES)
    state, fleet, states = simulate(federation, composed(how, concurrency=concurrency), data, 5, devices=DEVICES)
    nbytes = fleet.layouts.shared.nbytes
    module, now = on_devices(data, 5, 3, concurrency, nbytes, **how)
    close(state, module, fleet)
    rounds = [each.report.measures["simulated_seconds"] for each in states[1:] if each.report]
    assert sum(rounds) == pytest.approx(now) and min(rounds) >= 0


@pytest.mark.parametrize(("how", "most"), [(HOW[0], 0), (HOW[1], 4), (HOW[2], 9), (HOW[1], 9)])
def test_with_drawn_staleness_it_matches_a_list_of_versions(
    how: dict[str, Any], most: int, federation: Federation
) -> None:
    data = clients(SIZES)
    state, fleet, _ = simulate(federation, composed(how, max_staleness=most), data, 5, devices=DEVICES)
    close(state, as_drawn(data, 5, 3, most, **how), fleet)
    assert state.report is not None and not state.report.measures  # this time is not in seconds


@pytest.mark.parametrize("delay", [{"concurrency": 1}, {"max_staleness": 0}])
def test_without_delay_it_is_sequential_training(delay: dict[str, int], federation: Federation) -> None:
    data, local = clients((11, 4, 9, 23)), replace(LOCAL, lr_decay=1.0)
    algorithm = fedasync(Participation(), local, WeightedMix(1.0), proximal=0, **delay)  # type: ignore[arg-type]
    fleet = federation(data, perceptron())
    state, updated = begin(perceptron(), fleet, 0), []
    for _ in range(3):
        state = next_round(state, algorithm, fleet)
        assert state.report is not None
        updated.append(state.report.updates)
    assert all((rows.report["staleness"] == 0).all() and (rows.weights == 1).all() for rows in updated)
    module = perceptron()
    for number, client in enumerate(UpdateRows.joined(updated).clients.tolist(), start=1):
        train(module, data[client], local, number, client)
    assert same(state.model, fleet.layouts.shared.pack(module.state_dict()))


@pytest.mark.parametrize("delay", [{"concurrency": 4}, {"max_staleness": 5}])
def test_bytes_do_not_depend_on_the_block(delay: dict[str, int], federation: Federation) -> None:
    models = [
        simulate(federation, composed(HOW[1], **delay), clients(SIZES), 4, block=block)[0].model for block in (1, 2, 6)
    ]
    assert same(models[0], models[1]) and same(models[0], models[2])


@pytest.mark.parametrize("delay", [{"concurrency": 4}, {"max_staleness": 5}])
def test_what_is_under_way_survives_a_copy(delay: dict[str, int], federation: Federation) -> None:
    algorithm = composed(HOW[2], **delay)
    state, fleet, states = simulate(federation, algorithm, clients(SIZES), 4, devices=DEVICES)
    again = replace(states[2], memory=pickle.loads(pickle.dumps(states[2].memory)))
    for _ in range(2):
        again = next_round(again, algorithm, fleet)
    assert same(again.model, state.model)
    assert again.report and state.report
    np.testing.assert_array_equal(again.report.blocks, state.report.blocks)
    np.testing.assert_equal(vars(again.report.updates), vars(state.report.updates))


def test_what_is_kept_between_rounds(federation: Federation) -> None:
    algorithm = replace(composed(HOW[0], concurrency=3), schedule=Arrivals(Participation(cohort=1), Concurrent(3)))
    _, _, states = simulate(federation, algorithm, clients((8, 8, 8, 8, 8)), 4)
    personal = [AsyncProgress(**state.of("arrivals")) for state in states[1:]]
    # Equal devices and sizes: who was sent first arrives first. Three are computed side by side; each arrival sends
    # another, whose version is stored until its time comes.
    assert [sorted(own.computed) for own in personal] == [[2, 3], [3], [], [5, 6]]
    assert [sorted(own.versions) for own in personal] == [[1], [1, 2], [1, 2, 3], [4]]
    assert [[flight.number for flight in own.timeline.flights] for own in personal] == [
        [2, 3, 4],
        [3, 4, 5],
        [4, 5, 6],
        [5, 6, 7],
    ]
    rows = UpdateRows.joined([state.report.updates for state in states[1:] if state.report])
    assert rows.report["staleness"].tolist() == [0, 1, 2, 2]


def test_protocol_bytes(federation: Federation) -> None:
    data = clients(SIZES)
    _, fleet, states = simulate(federation, composed(HOW[0], concurrency=5), data, 3)
    each = fleet.layouts.shared.nbytes
    found = [(state.report.bytes_up / each, state.report.bytes_down / each) for state in states if state.report]
    assert found == [(3, 5 + 3), (3, 3), (3, 3)]  # at first five are sent, and one after every arrival
    _, _, states = simulate(federation, composed(HOW[0], max_staleness=4), data, 3)
    staleness = [int(generator(0, Purpose.COHORT, t + 1).integers(min(4, t) + 1)) for t in range(40)]
    sent = [sum(t - s <= version for t, s in enumerate(staleness)) for version in (3, 6, 9)]
    assert [state.report.bytes_down / each for state in states if state.report] == np.diff([0, *sent]).tolist()


def test_statistics_that_nobody_tracks_are_not_sent(federation: Federation) -> None:
    algorithm = fedasync(HALF, replace(LOCAL, statistics="untracked"), concurrency=3)
    state, fleet, _ = simulate(federation, algorithm, clients(SIZES), 1)
    each = algorithm.model_bytes(fleet.layouts)
    assert each < fleet.layouts.shared.nbytes and state.report is not None
    assert (state.report.bytes_up, state.report.bytes_down) == (3 * each, 6 * each)


def test_clients_without_samples_change_nothing(federation: Federation) -> None:
    for delay in ({"concurrency": 2}, {"max_staleness": 2}):
        state, _, states = simulate(federation, composed(HOW[0], **delay), clients((0, 0, 1, 0)), 3)
        assert same(state.model, states[0].model)
        assert state.report is not None and (state.report.updates.weights == 0).all()
        assert state.of("arrivals")["timeline"].version == 6


def test_counters_are_the_largest(federation: Federation) -> None:
    algorithm = fedasync(Participation(), Local(batch_size=4), max_staleness=3)
    state, _, states = simulate(federation, algorithm, clients((8, 40)), 6)
    counted = [int(each.model.integers[0]) for each in states]
    assert counted == sorted(counted) and counted[-1] > 0
    assert state.model.integers.dtype == np.int64


def test_a_weighting_of_ones_own_reads_the_staleness(federation: Federation) -> None:
    def fresh(report: Report) -> float:
        return float(report["staleness"] == 0)

    algorithm = replace(fedasync(HALF, LOCAL, concurrency=4), weighting=fresh)
    _, _, states = simulate(federation, algorithm, clients((8, 8, 8, 8, 8, 8)), 3)
    rows = UpdateRows.joined([state.report.updates for state in states[1:] if state.report])
    assert set(rows.weights) == {0.0, 1.0} and (rows.weights == (rows.column("staleness") == 0)).all()
    with pytest.raises(InputError, match=r"must read only samples.* and reads 'staleness'"):
        replace(fedavg(HALF, LOCAL), weighting=fresh)


def test_a_weight_that_is_not_finite_is_left_out_or_named(federation: Federation) -> None:
    def wild(report: Report) -> float:
        return np.nan if report["samples"] == 8 else 1.0

    for policy in ("leave-out", "last"):
        algorithm = replace(fedasync(HALF, replace(LOCAL, nonfinite=policy), concurrency=4), weighting=wild)
        _, _, states = simulate(federation, algorithm, clients(SIZES), 4)
        rows = UpdateRows.joined([state.report.updates for state in states[1:] if state.report])
        of_wild = rows.clients == SIZES.index(8)
        assert of_wild.any() and not rows.weights[of_wild].any() and not rows.column("steps")[of_wild].any()
        assert {rows.nonfinite[place] for place in np.flatnonzero(of_wild)} == {"the weight"}
    with pytest.raises(DivergedError, match=r"client 5 in round \d: the weight is not finite after the client update"):
        simulate(federation, replace(fedasync(HALF, LOCAL, concurrency=4), weighting=wild), clients(SIZES), 4)


def test_any_server_rule_may_take_what_arrives(federation: Federation) -> None:
    models = [
        simulate(federation, fedasync(HALF, LOCAL, server, staleness="constant", concurrency=3), clients(SIZES), 3)[0]
        for server in (WeightedMix(0.6), Mix(0.5), Assign(), Adam(lr=0.1, tau=0.1))
    ]
    assert len({state.model.floats.tobytes() for state in models}) == 4
    assert all(np.isfinite(state.model.floats).all() for state in models)


class Fits:
    """Server rule of one's own that knows the number of training clients."""

    def __init__(self, clients: int = 0) -> None:
        self._clients = clients

    def fitted(self, census: Census) -> "Fits":
        return Fits(len(census.clients))

    def __call__(self, model: Packed, mean: Packed, total: float, memory: Any, layout: Layout) -> Any:
        return mean, {"clients": np.array(self._clients)}


def test_a_rule_is_fitted_to_the_clients(federation: Federation) -> None:
    state, _, _ = simulate(federation, fedasync(HALF, LOCAL, Fits()), clients(SIZES), 1)
    assert state.of("server")["clients"] == len(SIZES)


def test_a_phase_with_another_schedule_begins_with_nobody_under_way(federation: Federation) -> None:
    first = fedasync(HALF, LOCAL, concurrency=5)
    both = phases(first, (1, replace(first, weighting=Equal())), (2, fedavg(HALF, LOCAL)), (3, first))
    _, _, states = simulate(federation, both, clients(SIZES), 4)
    assert [each.of("arrivals")["timeline"].version for each in states[1:]] == [3, 6, 6, 3]
    assert states[4].of("arrivals")["first"] == 3


# The parts.


def test_staleness_functions_by_hand() -> None:
    fresh, stale = {"staleness": 0.0}, {"staleness": 8.0}
    assert (Polynomial()(fresh), Polynomial()(stale), Polynomial(2.0)(stale)) == (1, pytest.approx(1 / 3), 1 / 81)
    assert (Hinge()(fresh), Hinge()({"staleness": 4.0}), Hinge()(stale)) == (1, 1, 1 / 41)
    assert Polynomial()({"samples": 3.0}) == Hinge()({"samples": 3.0}) == 1  # what is never stale


def test_the_weighted_mix_by_hand() -> None:
    layout = Layout.of(torch.nn.Linear(1, 1, bias=False))
    model, mean = (layout.pack({"weight": torch.tensor([[value]])}) for value in (1.0, 3.0))
    mixed, memory = WeightedMix(0.5)(model, mean, 0.25, {}, layout)
    assert mixed.floats[0] == 1.25 and memory == {}
    whole, _ = WeightedMix(1.0)(model, mean, 1.0, {}, layout)
    assert isinstance(whole, Packed) and whole.floats[0] == 3
    with pytest.raises(InputError, match=r"server.alpha x weight = 1.5: must be at most 1"):
        WeightedMix(0.5)(model, mean, 3.0, {}, layout)


PERSONAL = Sharing(statistics="personal")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: replace(fedasync(HALF, LOCAL), sharing=PERSONAL),
            "with asynchronous arrivals: must be shared",
        ),
        (lambda: fedavg(HALF, LOCAL, WeightedMix(0.5)), "server.rule = 'weighted-mix' with synchronous rounds: "),
        (lambda: radfed(HALF, LOCAL, WeightedMix(0.5)), "server.rule = 'weighted-mix' with synchronous rounds: "),
        (lambda: replace(fedasync(HALF, LOCAL), weighting=Samples()), "'weighted-mix.* with weighting = .samples"),
        (lambda: fedasync(HALF, LOCAL, Mix(0.5)), "server = Mix.* with weighting = .* of single arrivals: must be 'we"),
        (lambda: fedasync(replace(HALF, by="size"), LOCAL), 'algorithm.sampling = "size"'),
        (lambda: fedasync(HALF, LOCAL, concurrency=0), "algorithm.concurrency = 0: must be a whole number >= 1"),
        (
            lambda: fedasync(HALF, LOCAL, max_staleness=-1),
            "algorithm.max_staleness = -1: must be a whole number from 0",
        ),
        (lambda: fedasync(HALF, LOCAL, max_staleness=2, concurrency=2), r"= \(2, 2\): must be one of them"),
        (lambda: fedasync(HALF, LOCAL, staleness="linear"), "algorithm.staleness = 'linear'"),  # type: ignore[arg-type]
        (lambda: fedasync(HALF, LOCAL, staleness="constant", a=1.0), 'algorithm.a = 1.0 with .* "constant"'),
        (lambda: fedasync(HALF, LOCAL, b=1.0), 'algorithm.b = 1.0 with algorithm.staleness = "polynomial"'),
        (lambda: fedasync(HALF, LOCAL, a=-1.0), "algorithm.a = -1.0: must be a finite number >= 0"),
        (lambda: fedasync(HALF, LOCAL, staleness="hinge", b=-1.0), "algorithm.b = -1.0"),
        (lambda: fedasync(HALF, LOCAL, proximal=-1.0), "algorithm.proximal = -1.0"),
        (lambda: fedasync(HALF, LOCAL, proximal=np.inf), "algorithm.proximal = inf"),
        (lambda: matching(0.5), "must be a number >= 1"),
        (lambda: Arrivals(Participation(), Concurrent(7)).size(6), "algorithm.concurrency = 7: must be at most 6"),
        (lambda: Arrivals(Participation(cohort=7)).size(6), "algorithm.cohort = 7"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_too_few_clients_are_refused_at_the_first_step(federation: Federation) -> None:
    fleet = federation(clients(SIZES), perceptron())
    with pytest.raises(InputError, match=r"algorithm.concurrency = 9: must be at most 6"):
        next_round(begin(perceptron(), fleet, 0), fedasync(HALF, LOCAL, concurrency=9), fleet)
