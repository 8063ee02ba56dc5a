"""HierFAVG against its equations, and edges beside other methods."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Assign,
    Census,
    DrawnDevices,
    Edges,
    InputError,
    Local,
    Mix,
    Momentum,
    Participation,
    Purpose,
    Server,
    begin,
    fedavg,
    fedavgm,
    fedbn,
    feddyn,
    fixbn,
    generator,
    hierfavg,
    next_round,
)
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, FP64, Values, agree, drawn, engine, mean, module, sgd, train
from tests.kit.rounds import same, simulate

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4, steps=3)
PARTICIPATION = Participation(fraction=0.5)
SIZES = np.array([len(y) for _, y in DATA])


def step(server: Server, then: Values, averaged: Values, speed: Values) -> Values:
    """The cloud's step from a model to the mean; `speed` is its momentum, changed in place."""
    if isinstance(server, Assign):
        return averaged
    parameters = dict(module().named_parameters())
    found = dict(averaged)
    for name, value in then.items():
        change = averaged[name] - value
        if isinstance(server, Mix) and value.is_floating_point():
            found[name] = value + 0.6 * change
        elif isinstance(server, Momentum) and name in parameters:
            speed[name] = 0.9 * speed.get(name, torch.zeros_like(value)) + change
            found[name] = value + speed[name]
    return found


@pytest.mark.parametrize("server", [Assign(), Mix(0.6), Momentum(beta=0.9)])
def test_hierfavg_matches_a_loop(federation: Federation, server: Server) -> None:
    edges = Edges(number=2, cloud_every=3)
    algorithm = hierfavg(PARTICIPATION, LOCAL, server).having(edges)
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state, edge = begin(module(), fleet, 0, 8), edges.assigned(fleet.census, 0)
    cloud, speed, models, weights = module().state_dict(), dict[str, Any](), [module(), module()], np.zeros(2)
    for number in range(1, 9):
        state = next_round(state, algorithm, fleet, last=number == 8)
        cohort = PARTICIPATION.draw(np.arange(6), 0, number)
        for e, model in enumerate(models):
            members = [int(client) for client in cohort if edge[client] == e]
            trained = [deepcopy(model) for _ in members]
            for own, client in zip(trained, members, strict=True):
                train(own, DATA[client], drawn(LOCAL, DATA[client], number, client), sgd(LOCAL.lr))
            if members:
                model.load_state_dict(mean(trained, SIZES[members].tolist()))
            weights[e] += SIZES[members].sum()
        averaged = mean(models, weights.tolist())
        agree(state, fleet, averaged if number in (1, 2, 4, 5, 7) else step(server, cloud, averaged, speed))
        assert state.report is not None and state.report.aggregated == (number in (3, 6, 8))
        if state.report.aggregated:
            cloud = {name: torch.from_numpy(v.copy()) for name, v in fleet.layouts.shared.unpack(state.model).items()}
            for model in models:
                model.load_state_dict(cloud)
            weights[:] = 0
    assert "models" not in state.of("edges")


@pytest.mark.parametrize("server", [Assign(), Momentum()])
def test_one_edge_is_fedavg(federation: Federation, server: Server) -> None:
    """To the last bit, and with several edges up to rounding, if the cloud aggregates every round."""
    plain, _ = engine(federation, fedavg(PARTICIPATION, LOCAL, server), 5)
    one, _ = engine(federation, hierfavg(PARTICIPATION, LOCAL, server).having(Edges(1)), 5)
    several, _ = engine(federation, hierfavg(PARTICIPATION, LOCAL, server).having(Edges(3)), 5)
    assert same(one.model, plain.model) and one.report is not None and plain.report is not None
    assert (one.report.bytes_up, one.report.bytes_down) == (plain.report.bytes_up, plain.report.bytes_down)
    assert not same(several.model, plain.model)
    np.testing.assert_allclose(several.model.floats, plain.model.floats, rtol=0, atol=1e-12)


def test_edges_divide_the_clients() -> None:
    samples = np.array([5, 1, 9, 3, 7, 2, 8])
    census = Census(np.arange(7), samples, sites=np.array([4, 4, 2, 2, 9, 9, 9]), facts={"label": samples % 3})
    drawn_edges = Edges(3).assigned(census, 5)
    order = generator(5, Purpose.EDGES).permutation(7)
    assert drawn_edges[order].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert Edges(3, "size").assigned(census, 0).tolist() == [1, 0, 2, 0, 1, 0, 2]
    assert Edges(7, "size").assigned(census, 0).tolist() == [3, 0, 6, 2, 4, 1, 5]
    assert Edges(None, "site").assigned(census, 0).tolist() == [1, 1, 0, 0, 2, 2, 2]
    assert np.diff(np.bincount(Edges(2, "spread").assigned(census, 0), samples % 3 == 2)).item() in (-1, 0, 1)
    by_label = Edges(2, "label").assigned(census, 0)
    assert sorted((samples % 3)[by_label == 0]) == sorted(samples % 3)[:4]


def test_links_count_apart(federation: Federation) -> None:
    """A round takes an edge's slowest client; the cloud waits for the slowest edge and its own link."""
    devices = DrawnDevices(compute=10.0, spread=1.0, latency=1.0, up=1e3)
    edges = Edges(3, cloud_every=2, down=50.0, up=20.0, latency=7.0)
    algorithm = hierfavg(Participation(), LOCAL).having(edges)
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    fleet.census = census = replace(fleet.census, devices=devices)
    edge, size = edges.assigned(census, 0), fleet.layouts.shared.nbytes
    state, found, expected = begin(module(), fleet, 0, 3), [], []
    for number in range(1, 4):
        begins = number != 2
        state = next_round(state, algorithm, fleet, last=number == 3)
        report = state.report
        assert report is not None
        rows = report.updates
        slowest = np.zeros(3)
        for client, used in zip(rows.clients.tolist(), rows.column("used").tolist(), strict=True):
            slowest[edge[client]] = max(slowest[edge[client]], devices.seconds(0, client, used, size, size))
        down, up = 3 * size * begins, 3 * size * (number > 1)
        assert (report.measures["cloud_bytes_down"], report.measures["cloud_bytes_up"]) == (down, up)
        assert report.bytes_up == report.bytes_down == 6 * size
        found.append(report.measures["simulated_seconds"])
        expected.append(slowest)
    period = (expected[0] + expected[1]).max() + 14 + size / 50 + size / 20
    assert sum(found[:2]) == pytest.approx(period)
    assert found[2] == pytest.approx(expected[2].max() + 14 + size / 50 + size / 20)


def test_an_edge_without_clients_keeps_its_model_and_sends_none(federation: Federation) -> None:
    algorithm = hierfavg(Participation(cohort=1), LOCAL).having(Edges(3, cloud_every=2))
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state = next_round(start := begin(module(), fleet, 0, 2), algorithm, fleet)
    kept = [same(model, start.model) for model in state.of("edges")["models"]]
    assert sorted(kept) == [False, True, True]
    (trained,) = (model for model, stays in zip(state.of("edges")["models"], kept, strict=True) if not stays)
    assert same(state.model, trained)
    state = next_round(state, algorithm, fleet)
    assert state.report is not None
    assert state.report.measures["cloud_bytes_up"] in (size := fleet.layouts.shared.nbytes, 2 * size)


def test_personal_state_and_its_average_are_those_of_the_method(federation: Federation) -> None:
    plain, _ = engine(federation, fedbn(PARTICIPATION, LOCAL), 4)
    tree, _ = engine(federation, fedbn(PARTICIPATION, LOCAL).having(Edges(1)), 4)
    assert same(plain.average, tree.average) and same(plain.model, tree.model)
    several, _ = engine(federation, fedbn(PARTICIPATION, LOCAL).having(Edges(3)), 4)
    np.testing.assert_allclose(several.average.floats, plain.average.floats, rtol=0, atol=1e-12)


def test_a_rule_gets_the_weight_of_a_round(federation: Federation) -> None:
    """FedDyn's v moves by the mean change of a period, times the share of a round's clients, however long it is."""
    algorithm = feddyn(Participation(), LOCAL, alpha=0.1).having(Edges(2, cloud_every=3))
    state, _ = engine(federation, algorithm, 3)
    start = engine(federation, algorithm, 0)[0]
    v = state.of("server")["v"]
    layout = federation(DATA, module(), algorithm.sharing, compute=FP64).layouts.shared
    change = (state.model.floats - v - start.model.floats)[layout.parameters]
    np.testing.assert_allclose(v[layout.parameters], change, rtol=1e-9, atol=1e-12)


def test_phases_switch_only_when_the_cloud_aggregates(federation: Federation) -> None:
    algorithm = fixbn(PARTICIPATION, LOCAL, fix_after=2).having(Edges(2, cloud_every=3))
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state, phases = begin(module(), fleet, 0, 6), []
    for _ in range(4):
        state = next_round(state, algorithm, fleet)
        phases.append(state.phase)
    assert phases == [0, 0, 1, 1]


def test_a_later_option_replaces_the_edges() -> None:
    algorithm = hierfavg(PARTICIPATION, LOCAL).having(Edges(7))
    assert algorithm.option(Edges) == Edges(7)
    assert fedavgm(PARTICIPATION, LOCAL).having(Edges(7)).own_round == algorithm.own_round


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Edges(0), "edges.number = 0: must be a whole number >= 1"),
        (lambda: Edges(cloud_every=0), "edges.cloud_every = 0: must be a whole number >= 1"),
        (lambda: Edges(by="sise"), "edges.by = 'sise': must be"),  # type: ignore[arg-type]
        (lambda: Edges(2, "domain"), 'edges.number = 2: must be left out with edges.by = "domain"'),
        (lambda: Edges(up=-1.0), "edges.up = -1.0: must be a finite number >= 0"),
        (lambda: Edges(9).assigned(Census(np.arange(3), np.ones(3, np.int64)), 0), "edges.number = 9: must be at most"),
        (lambda: Edges(by="site").assigned(Census(np.arange(3), np.ones(3, np.int64)), 0), "edges.by = 'site': must"),
    ],
)
def test_wrong_edges_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InputError) as refused:
        make()
    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_the_last_round_aggregates(federation: Federation) -> None:
    algorithm = hierfavg(PARTICIPATION, LOCAL).having(Edges(2, cloud_every=100))
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state = simulate(algorithm, fleet, module(), 3)
    assert state.report is not None and state.report.aggregated and not state.between_aggregations
