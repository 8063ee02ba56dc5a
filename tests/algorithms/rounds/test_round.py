"""The engine: identities, plain references, and what holds for every algorithm."""

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from algorithms import (
    Algorithm,
    Arrivals,
    ClientLoss,
    Equal,
    InputError,
    Local,
    Mix,
    Participation,
    Purpose,
    State,
    begin,
    centralized,
    current_model,
    fedasync,
    fedavg,
    fedbn,
    fedprox,
    generator,
    next_round,
    radfed,
)
from algorithms.core.report import Report
from algorithms.names import ALGORITHMS
from algorithms.parts.weighting import weight_of
from raysim.fleet.inline import InlineFleet
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
def test_a_step_leaves_its_input_usable(name: str, federation: Federation) -> None:
    algorithm = TABLE[name]
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    states = [begin(perceptron(True), fleet, 0, rounds=4)]
    for _ in range(4):
        states.append(next_round(states[-1], algorithm, fleet))
    for before, after in pairwise(states):
        again = next_round(before, algorithm, fleet)
        assert same(current_model(again, algorithm, fleet), current_model(after, algorithm, fleet))


@pytest.mark.parametrize("name", TABLE)
def test_global_randomness_is_neither_used_nor_changed(name: str, federation: Federation) -> None:
    data = clients(SIZES)
    expected = run(federation, TABLE[name], data)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002, the very thing that must not matter
    before = torch.get_rng_state()
    assert same(run(federation, TABLE[name], data).model, expected.model)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", TABLE)
def test_every_round_reports_its_updates_and_the_last_aggregates(name: str, federation: Federation) -> None:
    algorithm = TABLE[name]
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    state = begin(perceptron(True), fleet, 0, rounds=4)
    for number in range(1, 5):
        state = next_round(state, algorithm, fleet, last=number == 4)
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
    assert state.report is not None and state.report.aggregated and not state.travelling_models


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


def test_fedavg_matches_its_pseudo_code(federation: Federation) -> None:
    data = clients((11, 4, 9, 23))
    state = run(federation, fedavg(Participation(), LOCAL), data, rounds=3, norm=False)
    module = perceptron()
    for number in range(1, 4):
        models = [deepcopy(module) for _ in data]
        for client, model in enumerate(models):
            train(model, data[client], LOCAL, number, client)
        n = sum(len(y) for _, y in data)
        module.load_state_dict(
            {
                name: sum(len(y) / n * m.state_dict()[name] for m, (_, y) in zip(models, data, strict=True))
                for name in module.state_dict()
            }
        )
    _close(state, module, federation(data, perceptron()))


def test_radfed_matches_its_pseudo_code(federation: Federation) -> None:
    data = clients((11, 4, 9, 23, 6, 7))
    algorithm = radfed(HALF, LOCAL, aggregate_every=3)
    state = run(federation, algorithm, data, rounds=6, norm=False)
    module = perceptron()
    number = 0
    for _ in range(2):
        models = [deepcopy(module) for _ in range(3)]
        for s in range(3):
            number += 1
            cohort = HALF.draw(np.arange(6), 0, number)
            order = algorithm.schedule.deal(3, 0, number) if s else range(3)
            models = [models[i] for i in order]
            for model, client in zip(models, cohort, strict=True):
                train(model, data[client], LOCAL, number, int(client))
        module.load_state_dict({k: sum(m.state_dict()[k] for m in models) / 3 for k in module.state_dict()})
    _close(state, module, federation(data, perceptron()))


def test_fedbn_matches_its_pseudo_code(federation: Federation) -> None:
    data = clients((11, 4, 9))
    algorithm = fedbn(Participation(), LOCAL)
    fleet = federation(data, perceptron(True), algorithm.sharing)
    state = simulate(algorithm, fleet, perceptron(True), rounds=3)
    models = [perceptron(True) for _ in data]
    for number in range(1, 4):
        for client, model in enumerate(models):
            x, y = data[client]
            optimiser = torch.optim.SGD(model.parameters(), LOCAL.lr)
            for rows in LOCAL.passes(len(y), generator(0, Purpose.BATCHES, number, client)):
                if len(rows) > 1:
                    optimiser.zero_grad()
                    cross_entropy(model(x[rows]), y[rows]).backward()
                    optimiser.step()
        for name in ("0.weight", "0.bias", "3.weight", "3.bias"):
            mean = sum(model.state_dict()[name] for model in models) / 3
            for model in models:
                model.state_dict()[name].copy_(mean)
    shared = fleet.layouts.shared.unpack(state.model)
    for name, value in shared.items():
        np.testing.assert_allclose(value, models[0].state_dict()[name].numpy(), rtol=1e-4, atol=1e-6)
    for client, model in enumerate(models):
        location = state.personal.latest(client, 3)
        assert location is not None
        personal = fleet.layouts.personal.unpack(fleet._worker.personal.read(location))
        for name, value in personal.items():
            np.testing.assert_allclose(value, model.state_dict()[name].numpy(), rtol=1e-4, atol=1e-6)


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


def _close(state: State, module: torch.nn.Module, fleet: InlineFleet) -> None:
    for name, value in fleet.layouts.shared.unpack(state.model).items():
        np.testing.assert_allclose(value, module.state_dict()[name].numpy(), rtol=1e-5, atol=1e-6)
