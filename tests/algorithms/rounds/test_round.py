"""The engine: identities, and what holds for every algorithm."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from algorithms import (
    Algorithm,
    Arrivals,
    ClientLoss,
    Equal,
    InputError,
    Local,
    Mix,
    Participation,
    State,
    begin,
    centralized,
    current_model,
    fedasync,
    fedavg,
    fedbn,
    fedprox,
    next_round,
    radfed,
)
from algorithms.core.report import Report
from algorithms.names import ALGORITHMS
from algorithms.parts.weighting import weight_of
from tests.kit.federation import clients, named, perceptron
from tests.kit.rounds import SIZES, Federation, run, same, simulate, train

HALF = Participation(fraction=0.5)
LOCAL = Local(lr=0.1, batch_size=4)
TABLE = {name: named(name, HALF, LOCAL) for name in ALGORITHMS} | {
    "fedasync, drawn": fedasync(HALF, LOCAL, staleness="hinge", a=0.5, b=1, max_staleness=5),
    "fedavg mixed": fedavg(HALF, LOCAL, Mix(0.5)),
    "fedbn by samples, average": fedbn(HALF, LOCAL, weighting="samples", newcomer="average"),
    "radfed that aggregates": radfed(HALF, LOCAL, aggregate_every=3),
    "by size": fedavg(replace(HALF, by="size"), LOCAL),
    "momentum": fedavg(HALF, replace(LOCAL, momentum=0.9, weight_decay=0.01, lr_decay=0.9)),
}


@pytest.mark.parametrize("name", TABLE)
def test_rounds_depend_on_their_input_alone_and_leave_it_usable(name: str, federation: Federation) -> None:
    """Global randomness is neither used nor changed."""
    algorithm = TABLE[name]
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    states = [begin(perceptron(True), fleet, 0, rounds=4)]
    for number in range(1, 5):
        states.append(next_round(states[-1], algorithm, fleet, last=number == 4))
        _assert_reported(name, algorithm, states[-1])
    assert states[-1].report is not None and states[-1].report.aggregated and not states[-1].travelling_models
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002, the very thing that must not matter
    before, keys = torch.get_rng_state(), np.random.get_state()[1:3]  # noqa: NPY002
    assert same(begin(perceptron(True), fleet, 0, rounds=4).model, states[0].model)
    for start, after in pairwise(states):
        again = next_round(start, algorithm, fleet, last=after is states[-1])
        assert same(current_model(again, algorithm, fleet), current_model(after, algorithm, fleet))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(map(np.array_equal, np.random.get_state()[1:3], keys))  # noqa: NPY002


def _assert_reported(name: str, algorithm: Algorithm, state: State) -> None:
    assert state.report is not None
    updated = state.report.updates.clients.tolist()
    if isinstance(algorithm.schedule, Arrivals):  # in order of arrival, and the same client may arrive again
        assert (state.report.updates.report["staleness"] >= 0).all()
    else:
        assert updated == sorted(set(updated))
    if name == "centralized":
        assert updated == [-1]
    else:
        assert len(updated) == 3 and set(updated) <= set(range(6))
    assert (state.report.updates.weights >= 0).all()


def test_no_proximal_term_is_fedavg(federation: Federation) -> None:
    data = clients(SIZES)
    a = run(federation, fedprox(HALF, LOCAL, proximal=0.0), data)
    assert same(a.model, run(federation, fedavg(HALF, LOCAL), data).model)
    b = run(federation, fedprox(HALF, LOCAL, proximal=1.0), data)
    assert not same(a.model, b.model)


def test_radfed_that_aggregates_every_round_is_fedavg_with_equal_weights(federation: Federation) -> None:
    data = clients(SIZES)
    equal = replace(fedavg(HALF, LOCAL), weighting=Equal())
    a = run(federation, radfed(HALF, LOCAL, aggregate_every=1), data)
    assert same(a.model, run(federation, equal, data).model)
    assert not same(a.model, run(federation, radfed(HALF, LOCAL, aggregate_every=2), data).model)


def test_mixing_whole_is_assigning(federation: Federation) -> None:
    data = clients(SIZES)
    a = run(federation, fedavg(HALF, LOCAL, Mix(1.0)), data)
    assert same(a.model, run(federation, fedavg(HALF, LOCAL), data).model)


@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(Participation(), LOCAL),
        fedprox(Participation(), LOCAL, proximal=0),
        radfed(Participation(), LOCAL, aggregate_every=3),
        centralized(Participation(), LOCAL),
    ],
)
def test_one_client_is_centralised_sgd(algorithm: Algorithm, federation: Federation) -> None:
    data = clients([40])
    state = run(federation, algorithm, data, rounds=4, norm=False)
    module = perceptron()
    for number in range(1, 5):
        train(module, data[0], LOCAL, number, client=0)
    fleet = federation(data, perceptron())
    assert same(state.model, fleet.layouts.shared.pack(module.state_dict()))


def test_between_aggregates_the_current_model_is_what_a_aggregate_would_give(federation: Federation) -> None:
    algorithm = radfed(HALF, LOCAL, aggregate_every=5)
    fleet = federation(clients(SIZES), perceptron(True))
    state = next_round(begin(perceptron(True), fleet, 0), algorithm, fleet)
    aggregated = next_round(state, algorithm, fleet, last=True)
    going_on = next_round(state, algorithm, fleet)
    assert going_on.travelling_models and not aggregated.travelling_models
    assert same(current_model(going_on, algorithm, fleet), aggregated.model)
    assert same(going_on.model, state.model)


def test_clients_without_samples_change_nothing(federation: Federation) -> None:
    for algorithm in (fedavg(Participation(), LOCAL), radfed(Participation(), LOCAL, aggregate_every=2)):
        fleet = federation(clients((0, 0)), perceptron())
        state = simulate(algorithm, fleet, perceptron(), rounds=3)
        assert same(state.model, fleet.layouts.shared.pack(perceptron().state_dict()))
        assert state.report is not None and (state.report.updates.weights == 0).all()


def test_a_model_that_meets_an_empty_client_keeps_its_weight(federation: Federation) -> None:
    algorithm = radfed(Participation(), LOCAL, aggregate_every=5)
    fleet = federation(clients((9, 0)), perceptron())
    state = next_round(begin(perceptron(), fleet, 0), algorithm, fleet)
    assert sorted(traveller.weight for traveller in state.travelling_models) == [0, 1]
    for _ in range(3):
        state = next_round(state, algorithm, fleet)
    # Sooner or later both models were trained; none lost its weight on the empty client again.
    assert [traveller.weight for traveller in state.travelling_models] == [1, 1]


def test_a_batch_of_one_is_passed_over_under_batch_norm(federation: Federation) -> None:
    state = run(federation, fedavg(Participation(), LOCAL), clients((1, 5)), rounds=1)
    assert state.report is not None
    assert state.report.updates.report["steps"].tolist() == [0, 1]
    assert state.report.updates.weights.tolist() == [0, 5]


def test_aggregated_counters_are_the_largest(federation: Federation) -> None:
    state = run(federation, fedavg(Participation(), LOCAL), clients((8, 20)), rounds=2)
    assert state.model.integers[0] == 10  # two rounds of 20 / 4 steps


def test_protocol_bytes(federation: Federation) -> None:
    whole, affine = 4 * (4 * 6 + 6 + 6 * 3 + 3), 4 * 4 * 6 + 8
    expected = {
        "fedavg": (whole + affine, whole + affine),
        "radfed": (whole + affine, whole + affine),
        "fedbn": (whole, whole),
    }
    for name, (up, down) in expected.items():
        state = run(federation, TABLE[name], clients(SIZES), rounds=1)
        assert state.report is not None
        assert (state.report.bytes_up, state.report.bytes_down) == (3 * up, 3 * down), name
    # An average that newcomers start from has to be sent: up by all, down to those who have none.
    state = run(federation, TABLE["fedbn by samples, average"], clients(SIZES), rounds=1)
    assert state.report is not None
    assert state.report.bytes_up == state.report.bytes_down == 3 * (whole + affine)


def test_newcomers_start_from_what_place_says(federation: Federation) -> None:
    data = clients((8, 8, 8, 8))
    models = []
    for newcomer in ("initial", "average"):
        algorithm = fedbn(Participation(cohort=1), LOCAL, newcomer=newcomer)  # type: ignore[arg-type]
        models.append(run(federation, algorithm, data, rounds=4).model)
    assert not same(*models)


@dataclass(frozen=True)
class Below:
    """A weight that makes no sense."""

    def __call__(self, report: Report) -> float:
        return -report["samples"]


def test_weights_below_zero_are_refused(federation: Federation) -> None:
    algorithm = replace(fedavg(Participation(), LOCAL), weighting=Below())
    with pytest.raises(InputError, match="must give weights >= 0, and gives client 0 -11"):
        run(federation, algorithm, clients(SIZES), rounds=1)
    with pytest.raises(InputError, match=r"^local\.loss: must be >= 0, .* is -2 for client 3; set another local\.loss"):
        weight_of(ClientLoss(), {"loss": -2.0}, 3)
