"""D-PSGD and SGP against their equations, and what they share."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Algorithm,
    Equal,
    InputError,
    Local,
    Mix,
    Participation,
    State,
    Topology,
    begin,
    dpsgd,
    fedavg,
    next_round,
    sgp,
)
from algorithms.options.topology import Mixing
from algorithms.rounds.gossip import sent_so_far
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, FP64, drawn, engine, module, sgd, train

Federation = Callable[..., InlineFleet]
ALL, HALF = Participation(), Participation(fraction=0.5)
LOCAL, ONE_STEP = Local(lr=0.05, batch_size=4), Local(lr=0.05, batch_size="full", steps=1)
CLIENTS = np.arange(len(DATA))


def own_models(state: State, fleet: InlineFleet) -> list[dict[str, np.ndarray]]:
    """The entries of each client's model."""
    locations = [state.personal.latest(client, state.round) for client in range(len(DATA))]
    packed = [fleet._worker.personal.read(each) if each else state.initial for each in locations]
    return [fleet.layouts.personal.unpack(each) for each in packed]


def dense(mixing: Mixing) -> np.ndarray:
    matrix = np.diag(mixing.own)
    matrix[mixing.receivers, mixing.senders] = mixing.shares
    return matrix


def reference(algorithm: Algorithm, rounds: int, local: Local) -> list[dict[str, np.ndarray]]:
    """The paper's equations on numpy vectors: the models of all clients after some rounds."""
    gossip, topology = algorithm.own_round, algorithm.option(Topology)
    assert topology is not None
    participation = algorithm.schedule.participation
    models = [module() for _ in DATA]
    weights, names = np.ones(len(DATA)), list(models[0].state_dict())
    for number in range(1, rounds + 1):
        cohort = participation.draw(CLIENTS, 0, number)
        present = np.isin(CLIENTS, cohort)
        matrix = dense(topology.matrix(CLIENTS, 0, number).among(present))
        np.testing.assert_allclose(matrix.sum(0), 1)
        trained = [deepcopy(model) for model in models]
        for client in cohort.tolist():
            train(trained[client], DATA[client], drawn(local, DATA[client], number, client), sgd(local.lr))
        after = matrix @ weights if gossip.push_sum else weights
        for name in names:
            x, y = (
                np.array([model.state_dict()[name].numpy().ravel() for model in each]) for each in (models, trained)
            )
            if x.dtype == np.int64:
                sent = x if gossip.order == "combine-then-adapt" else y
                mixed = np.array([max(y[i], *sent[row > 0]) for i, row in enumerate(matrix)])
            elif gossip.order == "combine-then-adapt" and "running" not in name:
                mixed = matrix @ x + (y - x)
            else:
                numerators = weights[:, None] * y if "running" in name else weights[:, None] * x + (y - x)
                mixed = matrix @ numerators / after[:, None]
            for client in cohort.tolist():
                value = trained[client].state_dict()[name]
                value.copy_(torch.from_numpy(mixed[client]).view_as(value))
        models, weights = trained, after
    return [{name: value.numpy() for name, value in model.state_dict().items()} for model in models]


def agree(found: list[dict[str, np.ndarray]], wanted: list[dict[str, np.ndarray]], tolerance: float = 1e-10) -> None:
    for own, values in zip(found, wanted, strict=True):
        for name, value in values.items():
            np.testing.assert_allclose(own[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


GRAPHS = [
    Topology("ring"),
    Topology("exponential", mixing="uniform"),
    Topology("erdos-renyi", probability=0.5, redraw="round"),
    Topology("file", edges=((0, 1, 0.3), (1, 2, 0.4), (2, 3, 0.2), (3, 4, 0.5), (4, 5, 0.5), (0, 3, 0.1))),
]


@pytest.mark.parametrize("order", ["adapt-then-combine", "combine-then-adapt"])
@pytest.mark.parametrize("topology", GRAPHS, ids=lambda topology: topology.graph)
@pytest.mark.parametrize("participation", [ALL, HALF], ids=["all", "half"])
def test_dpsgd_matches_its_paper(
    federation: Federation, order: Any, topology: Topology, participation: Participation
) -> None:
    algorithm = dpsgd(participation, LOCAL, order=order).having(topology)
    state, fleet = engine(federation, algorithm, rounds=3)
    agree(own_models(state, fleet), reference(algorithm, 3, LOCAL))


DIRECTED = [
    Topology("one-peer-exponential"),
    Topology("ring", directed=True),
    Topology("random-regular", degree=2, directed=True),
    Topology("erdos-renyi", directed=True, probability=0.4, redraw="round"),
    Topology(
        "file", directed=True, edges=((0, 1, 0.3), (1, 2, 0.4), (2, 3, 0.2), (3, 4, 0.5), (4, 5, 1.0), (5, 0, 0.1))
    ),
]


@pytest.mark.parametrize("topology", DIRECTED, ids=lambda topology: topology.graph)
@pytest.mark.parametrize("participation", [ALL, HALF], ids=["all", "half"])
def test_sgp_matches_its_paper(federation: Federation, topology: Topology, participation: Participation) -> None:
    algorithm = sgp(participation, LOCAL).having(topology)
    state, fleet = engine(federation, algorithm, rounds=3)
    agree(own_models(state, fleet), reference(algorithm, 3, LOCAL))
    weights = state.of("topology")["weights"]
    assert weights.sum() == pytest.approx(len(DATA), abs=1e-12)
    regular = topology.graph in ("one-peer-exponential", "ring")
    assert regular == np.allclose(weights, 1) or participation is HALF


def test_the_written_model_is_the_mean_and_consensus_the_distance_from_it(federation: Federation) -> None:
    state, fleet = engine(federation, dpsgd(HALF, LOCAL), rounds=3)
    models, mean = own_models(state, fleet), fleet.layouts.personal.unpack(state.average)
    parameters = [entry.name for entry in fleet.layouts.personal.entries if entry.is_parameter]
    distance = 0.0
    for name in parameters:
        values = np.array([model[name] for model in models])
        np.testing.assert_allclose(mean[name], values.mean(0), rtol=1e-12, atol=1e-14)
        distance += float(((values - values.mean(0)) ** 2).sum()) / len(DATA)
    assert state.report is not None and distance > 0
    assert state.report.measures["consensus"] == pytest.approx(distance, rel=1e-10)


def test_a_complete_graph_with_one_step_is_fedavg(federation: Federation) -> None:
    gossip = dpsgd(ALL, ONE_STEP).having(Topology("complete", mixing="uniform"))
    state, fleet = engine(federation, gossip, rounds=3)
    plain, star = engine(federation, replace(fedavg(ALL, ONE_STEP), weighting=Equal()), rounds=3)
    wanted = star.layouts.shared.unpack(plain.model)
    found = fleet.layouts.personal.unpack(state.average)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12, err_msg=name)
    agree(own_models(state, fleet), [wanted] * len(DATA), 1e-12)
    assert state.report is not None and state.report.measures["consensus"] < 1e-28


def test_sgp_on_doubly_stochastic_mixing_is_dpsgd(federation: Federation) -> None:
    graph = Topology("random-regular", degree=3)
    one, fleet = engine(federation, dpsgd(HALF, LOCAL).having(graph), rounds=3)
    other, pushed = engine(federation, sgp(HALF, LOCAL).having(graph), rounds=3)
    agree(own_models(one, fleet), own_models(other, pushed), 1e-13)
    np.testing.assert_allclose(other.of("topology")["weights"], 1, rtol=1e-14)


def test_mixing_alone_contracts_at_the_second_eigenvalue(federation: Federation) -> None:
    """Without training, x_t = W^t x_0, and the slowest disagreement shrinks by |lambda_2| a round."""
    algorithm = dpsgd(ALL, LOCAL).having(Topology("ring"))
    fleet = federation(DATA, module(), algorithm.sharing)
    state = next_round(begin(module(), fleet, 0, 13), algorithm, fleet)
    start = own_models(state, fleet)
    still = replace(algorithm, local=replace(algorithm.local, lr=1e-300))
    found = []
    for _ in range(12):
        state = next_round(state, still, fleet)
        assert state.report is not None
        found.append(state.report.measures["consensus"])
    matrix = dense(Topology("ring").matrix(CLIENTS, 0, 1))
    power = np.linalg.matrix_power(matrix, 12)
    name = "0.weight"
    wanted = np.tensordot(power, np.array([model[name] for model in start]), 1)
    np.testing.assert_allclose(np.array([model[name] for model in own_models(state, fleet)]), wanted, atol=1e-6)
    second = 1 - Topology("ring").matrix(CLIENTS, 0, 1).spectral_gap
    assert second == pytest.approx((1 + 2 * np.cos(2 * np.pi / 6)) / 3)
    rates = [later / before for before, later in pairwise(found[:10])]
    assert all(rate <= second**2 + 1e-3 for rate in rates) and rates[-1] == pytest.approx(second**2, rel=1e-2)


def test_a_mixed_variance_stays_positive(federation: Federation) -> None:
    """Also if the clients' samples shrink: x_i + (y_i - x_i) would fall below 0 where the neighbours' x are small."""
    algorithm = dpsgd(ALL, replace(LOCAL, epochs=4), order="combine-then-adapt")
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state = begin(module(), fleet, 0, 4)
    for number in range(4):
        if number == 3:
            fleet._worker.data.clients = [(x / 100, y) for x, y in DATA]  # type: ignore[attr-defined]
        state = next_round(state, algorithm, fleet)
        assert min(model["1.running_var"].min() for model in own_models(state, fleet)) > 0


def test_bytes_go_from_client_to_client(federation: Federation) -> None:
    state, fleet = engine(federation, dpsgd(ALL, LOCAL), rounds=3)
    size = sum(entry.size * 8 for entry in fleet.layouts.personal.entries)
    assert state.report is not None
    assert state.report.bytes_up == state.report.bytes_down == 2 * len(DATA) * size
    edges = Topology().tables(state, fleet)["edges"]
    assert sorted(zip(edges["from"].tolist(), edges["to"].tolist(), strict=True)) == sorted(
        pair for client in range(6) for pair in ((client, (client + 1) % 6), (client, (client - 1) % 6))
    )
    assert set(edges["messages"]) == {3} and set(edges["bytes"]) == {3 * size}


def test_messages_of_graphs_that_are_drawn_anew_are_counted_by_link() -> None:
    topology, memory, expected = Topology("random-regular", degree=2, redraw="round"), dict[str, Any](), Counter[int]()
    for number in range(1, 6):
        mixing = topology.matrix(CLIENTS, 0, number)
        memory = sent_so_far(memory, mixing)
        expected.update((mixing.senders * len(CLIENTS) + mixing.receivers).tolist())
    assert list(zip(memory["arcs"].tolist(), memory["messages"].tolist(), strict=True)) == sorted(expected.items())
    assert max(expected.values()) > 1 and min(expected.values()) < 5


def test_clients_outside_the_cohort_keep_their_models(federation: Federation) -> None:
    algorithm = dpsgd(Participation(cohort=2), LOCAL).having(Topology("complete"))
    state, fleet = engine(federation, algorithm, rounds=1)
    cohort = algorithm.schedule.participation.draw(CLIENTS, 0, 1).tolist()
    first = module().state_dict()["0.weight"].numpy()
    for client, model in enumerate(own_models(state, fleet)):
        assert np.array_equal(model["0.weight"], first) == (client not in cohort)


def test_a_round_without_clients_changes_nothing(federation: Federation) -> None:
    state, fleet = engine(federation, sgp(Participation(active=1e-12), LOCAL), rounds=2)
    assert state.report is not None and not len(state.report.updates) and not state.report.bytes_up
    assert state.average.floats.tobytes() == state.initial.floats.tobytes()
    assert not len(Topology().tables(state, fleet)["edges"]["from"]) and not state.personal.newest


def test_an_odd_number_of_clients_has_an_even_degree_unless_directed() -> None:
    topology, five = Topology("random-regular", degree=3), np.arange(5)
    with pytest.raises(InputError, match="degree = 3: must be below 5, and even if the number of clients is odd"):
        topology.matrix(five, 0, 1)
    directed = replace(topology, directed=True).matrix(five, 0, 1)
    assert np.bincount(directed.senders).tolist() == [3] * 5


def test_a_server_rule_is_refused() -> None:
    for make in (dpsgd, sgp):
        with pytest.raises(InputError, match=r"server\.rule = .*Mix.*: must be 'assign' if there is no server"):
            make(ALL, LOCAL, Mix(0.5))
    with pytest.raises(InputError, match='order = \'sideways\': must be "adapt-then-combine" or "combine'):
        dpsgd(ALL, LOCAL, order="sideways")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("edges", "must"),
    [
        (((0, 1, 0.3), (1, 0, 0.1)), r"\[1\] = \(1, 0, 0.1\): must stand once"),
        (((0, 1, 0.3), (2, 2, 0.1)), r"\[1\] = \(2, 2, 0.1\): must name two different clients"),
        (((0, 1, -0.5),), r"\[0\] = \(0, 1, -0.5\): must have a weight in \(0, 1\]"),
    ],
)
def test_an_edge_that_makes_no_sense_is_refused(edges: tuple[tuple[int, int, float], ...], must: str) -> None:
    with pytest.raises(InputError, match=f"topology.edges{must}; correct the edge"):
        Topology("file", edges=edges)
    assert Topology("file", edges=((0, 1, 0.3), (1, 0, 0.1)), directed=True)


def test_edges_of_a_named_graph_are_refused() -> None:
    with pytest.raises(InputError, match=r'topology\.graph = .ring.: must be "file" with edges of its own; set'):
        Topology("ring", edges=((0, 1, 0.3), (1, 2, 0.4)))
