"""Measures of rounds against what their definitions give."""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from algorithms import Edges, Local, Participation, begin, dpsgd, fedavg, fedbuff, hierfavg, ifca, next_round, radfed
from algorithms.core.layout import Layout, Packed
from algorithms.options.measures import BatchStatistics, Directions, Divergence
from algorithms.parts.rules import entered, variances
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.1, batch_size=4)
SIZES = (11, 4, 1, 23, 0, 8)


def cosines(vectors: list[np.ndarray]) -> float:
    """RADFed's equation 3, pair by pair."""
    return float(np.mean([1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in combinations(vectors, 2)]))


def test_divergence_is_the_mean_over_pairs() -> None:
    layout, rng = Layout.of(perceptron(True)), np.random.default_rng(0)
    mask = np.zeros(layout.floats, bool)
    for entry, place in layout.places():
        if entry.is_parameter:  # A counter's place is one among the integers.
            mask[place] = True

    def model() -> Packed:
        return Packed(rng.normal(size=layout.floats).astype(np.float32), np.zeros(layout.integers, np.int64))

    received, sent = model(), [model() for _ in range(5)]
    parts = [Directions.zero(layout) for _ in range(2)]
    for i, each in enumerate(sent):
        parts[i > 2].add(each, received)
    found = parts[0].plus(parts[1]).divergence
    assert found["dl"] == pytest.approx(cosines([each.floats[mask].astype(float) for each in sent]))
    moved = [each.floats[mask].astype(float) - received.floats[mask] for each in sent]
    assert found["dl_updates"] == pytest.approx(cosines(moved))


def test_rounds_of_an_algorithms_own_are_measured_too() -> None:
    for method in (dpsgd, fedbuff, hierfavg):
        measured = method(Participation(), LOCAL).having(Divergence())
        assert measured.has_own_round and measured.option(Divergence) == Divergence()


def test_one_model_has_no_divergence_and_models_that_stay_point_apart() -> None:
    layout = Layout.of(perceptron())
    same = layout.pack(perceptron().state_dict())
    directions = Directions.zero(layout)
    directions.add(same, same)
    assert directions.divergence == {}
    directions.add(same, same)
    assert directions.divergence == pytest.approx({"dl": 0.0, "dl_updates": 1.0})


def test_divergence_is_of_the_models_as_they_are_sent(federation: Federation) -> None:
    algorithm = radfed(Participation(), LOCAL, aggregate_every=3).having(Divergence())
    fleet = federation(clients((9, 5, 9, 12)), perceptron())
    state = begin(perceptron(), fleet, 0)
    for _ in range(2):
        then, state = state, next_round(state, algorithm, fleet)
        assert state.report is not None
        sent = [traveller.reference.floats.astype(float) for traveller in state.travelling_models]
        assert state.report.measures["dl"] == pytest.approx(cosines(sent), abs=1e-6)
    # The second round's models left as the first round's had come back, dealt anew.
    order = algorithm.rounds.deal(4, 0, 2)
    received = [then.travelling_models[i].reference.floats for i in order]
    moved = [a - b for a, b in zip(sent, received, strict=True)]
    assert state.report.measures["dl_updates"] == pytest.approx(cosines(moved), abs=1e-6)


def test_divergence_of_groups_is_that_of_the_cohort(federation: Federation) -> None:
    """Also if nobody of the first group takes part."""
    some, edges = Participation(cohort=2), Edges(3)
    methods = fedavg(some, LOCAL).having(Divergence()), hierfavg(some, LOCAL).having(edges, Divergence())
    fleet = federation(clients((9, 5, 7, 8, 6, 12)), perceptron())
    edge, states, empty = edges.assigned(fleet.census, 0), [begin(perceptron(), fleet, 0)] * 2, 0
    for _ in range(6):
        states = [next_round(state, method, fleet) for state, method in zip(states, methods, strict=True)]
        plain, tree = (state.report for state in states)
        assert plain is not None and tree is not None
        assert tree.measures["dl_updates"] == pytest.approx(plain.measures["dl_updates"], rel=1e-3)
        empty += 0 not in edge[tree.updates.clients]
    assert empty


def test_nothing_is_measured_unasked(federation: Federation) -> None:
    fleet = federation(clients(SIZES), perceptron(True))
    state = next_round(begin(perceptron(True), fleet, 0), fedavg(Participation(), LOCAL), fleet)
    assert state.report is not None and dict(state.report.measures) == {}
    assert set(state.report.updates.report) == {"samples", "steps", "used", "labelled", "loss"}


def test_statistics_are_followed(federation: Federation) -> None:
    fleet = federation(clients((12, 8)), perceptron(True))
    state = begin(perceptron(True), fleet, 0)
    shifts = []
    for _ in range(2):
        then = fleet.layouts.shared.unpack(state.model)
        state = next_round(state, fedavg(Participation(), LOCAL).having(BatchStatistics()), fleet)
        assert state.report is not None
        now, measures = fleet.layouts.shared.unpack(state.model), state.report.measures
        change = [np.abs(now[f"1.running_{name}"] - then[f"1.running_{name}"]) for name in ("mean", "var")]
        assert measures["bn_change"] == pytest.approx(np.concatenate(change).mean(), rel=1e-5)
        shifts.append(state.report.updates.report["bn_shift"])
        assert measures["bn_deviation"] == pytest.approx(np.mean(shifts[-1]))
    assert measures["bn_variance"] == pytest.approx(np.var(shifts, axis=0).mean())


def test_the_statistics_of_all_clusters_are_followed(federation: Federation) -> None:
    algorithm = ifca(Participation(), LOCAL, clusters=2).having(BatchStatistics())
    fleet = federation(clients((12, 8, 9)), perceptron(True))
    state, both = begin(perceptron(True), fleet, 0), 0
    for number in range(4):
        then, state = state.models * (1 if number else 2), next_round(state, algorithm, fleet)
        moved = [
            np.mean([np.abs(now[name] - old[name]).mean() for name in ("1.running_mean", "1.running_var")])
            for now, old in (map(fleet.layouts.shared.unpack, pair) for pair in zip(state.models, then, strict=True))
        ]
        assert state.report is not None
        assert state.report.measures["bn_change"] == pytest.approx(np.mean(moved), rel=1e-5)
        both += moved[1] > 0
    assert both


def test_windows() -> None:
    windows = entered({}, {4: 1.0, 2: 5.0}, 3)
    windows = entered(windows, {4: 3.0}, 3)
    windows = entered(windows, {4: 5.0, 7: 1.0}, 3)
    windows = entered(windows, {4: 7.0}, 3)
    assert windows["clients"].tolist() == [2, 4, 7]
    assert windows["values"][1].tolist() == [3, 5, 7]
    np.testing.assert_equal(variances(windows, 3), [np.nan, 8 / 3, np.nan])
    np.testing.assert_equal(variances(windows, 1), [0, 8 / 3, 0])
    assert variances({}, 2).size == 0
