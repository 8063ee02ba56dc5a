"""Numbers that are none: named, and never averaged in silence."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms import (
    Adam,
    Algorithm,
    Compute,
    DivergedError,
    InputError,
    Local,
    Packed,
    Participation,
    State,
    begin,
    fedasync,
    fedavg,
    fedbn,
    fedbs,
    next_round,
    radfed,
    scaffold,
)
from algorithms.core.finite import is_finite
from algorithms.core.layout import Layout
from algorithms.core.report import NO_ROWS, Report
from algorithms.names import ALGORITHMS
from algorithms.parts.server import next_model
from algorithms.training.loss import OwnLoss
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, clients, named, perceptron
from tests.kit.rounds import same, simulate

Federation = Callable[..., InlineFleet]
SIZES = (7, 4, 9, 8)
BROKEN = 2
LOCAL = Local(lr=0.05, batch_size=4)
LEAVE_OUT, LAST = replace(LOCAL, nonfinite="leave-out"), replace(LOCAL, nonfinite="last")


def federated(broken: Callable[[torch.Tensor], torch.Tensor] = lambda x: x * torch.nan) -> list[Samples]:
    """Clients of which one has samples that no model can bear."""
    data = clients(SIZES)
    x, y = data[BROKEN]
    data[BROKEN] = broken(x), y
    return data


def without() -> list[Samples]:
    """The same clients, of which that one has no samples."""
    data = clients(SIZES)
    x, y = data[BROKEN]
    data[BROKEN] = x[:0], y[:0]
    return data


def run(
    federation: Federation, algorithm: Algorithm, data: list[Samples], way: str = "sequential", norm: bool = True
) -> tuple[State, InlineFleet]:
    compute = Compute(way)  # type: ignore[arg-type]
    fleet = federation(data, perceptron(norm), algorithm.sharing, 3, compute, 3)
    return simulate(algorithm.computed(compute), fleet, perceptron(norm), 3), fleet


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_stops_and_names_what_was_first(name: str, federation: Federation) -> None:
    with pytest.raises(DivergedError, match=r"in round 1: entry '.*' is not finite") as caught:
        run(federation, named(name, Participation(), LOCAL), federated())
    # FedTAN's clients have their first statistics in common, and centralised training has one model for all.
    whose = {"fedtan": "client 0", "centralized": "the union of the clients, trained as client 0"}
    if name not in ("fedasync", "fedbuff"):  # in its virtual time others may come first
        assert str(caught.value).startswith(whose.get(name, f"client {BROKEN}"))


@pytest.mark.parametrize("way", ["sequential", "vectorised"])
def test_a_loss_of_one_s_own_that_is_nan_before_any_step_is_named(way: str, federation: Federation) -> None:
    loss = OwnLoss("mine:nan_loss", lambda outputs, y: cross_entropy(outputs, y, reduction="none") * torch.nan)
    message = r"local.loss = 'mine:nan_loss': is nan on .* client 0 .* in round 1 \(test_finite.py, .*\); correct it$"
    with pytest.raises(DivergedError, match=message):
        run(federation, fedavg(Participation(), replace(LOCAL, loss=loss)), clients(SIZES), way, norm=False)


def test_a_loss_of_one_s_own_that_steps_make_infinite_is_not_blamed(federation: Federation) -> None:
    loss = OwnLoss("mine:loss", lambda outputs, y: cross_entropy(outputs, y, reduction="none"))
    with pytest.raises(DivergedError, match=r"is not finite after .*; lower local\.lr"):
        run(federation, fedavg(Participation(), replace(LOCAL, loss=loss, lr=1e38)), clients(SIZES), norm=False)


LEFT_OUT = [name for name in ALGORITHMS if name not in ("fedasync", "fedbuff", "fedtan", "centralized")]


@pytest.mark.parametrize(
    ("name", "way", "norm"),
    [
        *((name, "sequential", True) for name in LEFT_OUT),
        *((name, way, False) for name in ("fedavg", "radfed") for way in ("vectorised", "fused")),
    ],
)
def test_a_update_that_is_left_out_is_that_of_a_client_without_samples(
    name: str, way: str, norm: bool, federation: Federation
) -> None:
    algorithm = named(name, Participation(), LEAVE_OUT)
    (state, fleet), (other, empty) = (run(federation, algorithm, data, way, norm) for data in (federated(), without()))
    assert same(state.model, other.model) and same(state.average, other.average)
    assert np.isfinite(state.model.floats).all()
    # Unlike a client without samples, one whose batches rotate counts its update, to have other batches next time.
    counts = [BROKEN] if algorithm.local.batches else []
    assert sorted([*other.personal.clients(3), *counts]) == list(state.personal.clients(3))
    for client in other.personal.clients(3):
        records = [f._worker.personal.read(s.personal.latest(client, 3)) for f, s in ((fleet, state), (empty, other))]
        assert same(*records)
    rows = state.report.updates
    # Its batches are of 4, 4 and 1: in the third round no step of it is refused, because batch norm took none.
    assert rows.finite.tolist() == [client != BROKEN or bool(counts) for client in range(len(SIZES))]
    assert rows.report["steps"][BROKEN] == 0 and not rows.trained[BROKEN]


def test_an_arrival_that_is_left_out_makes_no_other_model(federation: Federation) -> None:
    algorithm = fedasync(Participation(), LEAVE_OUT, max_staleness=2)
    (state, _), (other, _) = (run(federation, algorithm, data) for data in (federated(), without()))
    assert same(state.model, other.model)


def test_the_last_model_counts_with_the_usual_weight(federation: Federation) -> None:
    begun = begin(perceptron(), federation(clients(SIZES), perceptron()), 0)
    received = begun.model.floats.astype(np.float64)
    state = one_round(federation, fedavg(Participation(), LAST), federated())
    left = one_round(federation, fedavg(Participation(), LEAVE_OUT), federated())
    share = SIZES[BROKEN] / sum(SIZES)
    expected = (1 - share) * left.model.floats + share * received
    np.testing.assert_allclose(state.model.floats, expected, rtol=1e-6, atol=1e-7)
    rows = state.report.updates
    assert np.flatnonzero(~rows.finite).tolist() == [BROKEN]
    assert (rows.clients[BROKEN], rows.weights[BROKEN], rows.personal[BROKEN]) == (BROKEN, SIZES[BROKEN], None)


def one_round(federation: Federation, algorithm: Algorithm, data: list[Samples]) -> State:
    fleet = federation(data, perceptron(), algorithm.sharing)
    return next_round(begin(perceptron(), fleet, 0), algorithm, fleet)


@pytest.mark.parametrize("local", [LEAVE_OUT, LAST])
def test_a_model_that_travels_goes_on_as_it_came(local: Local, federation: Federation) -> None:
    algorithm = radfed(Participation(), local, aggregate_every=3)
    fleet = federation(federated(), perceptron())
    begun = begin(perceptron(), fleet, 0)
    state = next_round(begun, algorithm, fleet)
    moved = [same(traveller.reference, begun.model) for traveller in state.travelling_models]
    assert moved == [client == BROKEN for client in range(len(SIZES))]
    assert [traveller.weight for traveller in state.travelling_models] == [1, 1, float(local is LAST), 1]


@pytest.mark.parametrize("local", [LEAVE_OUT, LAST])
@pytest.mark.parametrize("make", [fedbn, scaffold])
def test_what_a_client_keeps_stays(make: Callable[..., Algorithm], local: Local, federation: Federation) -> None:
    """The first two rounds are good; then the client's samples break."""
    algorithm, data = make(Participation(), local), clients(SIZES)
    fleet = federation(data, perceptron(norm=True), algorithm.sharing)
    state = begin(perceptron(norm=True), fleet, 0)
    for number in range(4):
        if number == 2:
            data[BROKEN] = federated()[BROKEN]
            before = state.personal.latest(BROKEN, 2)
        state = next_round(state, algorithm, fleet)
    assert before is not None and state.personal.latest(BROKEN, 4) == before
    assert state.personal.latest(0, 4) != state.personal.latest(0, 2)
    assert np.isfinite(state.model.floats).all() and np.isfinite(state.average.floats).all()


def test_a_weight_that_is_no_number_is_named_and_left_out_of_the_last(federation: Federation) -> None:
    def infinite(report: Report) -> float:
        return float("inf") if report["samples"] == SIZES[BROKEN] else 1.0

    algorithm = replace(fedavg(Participation(), LOCAL), weighting=infinite)
    with pytest.raises(DivergedError, match=f"client {BROKEN} in round 1: the weight is not finite"):
        one_round(federation, algorithm, clients(SIZES))
    state = one_round(federation, replace(algorithm, local=LAST), clients(SIZES))
    assert state.report.updates.weights.tolist() == [1, 1, 0, 1]


def test_a_phase_goes_by_the_losses_that_are_there(federation: Federation) -> None:
    state, _ = run(federation, fedbs(Participation(), LEAVE_OUT, epsilon=1e9, patience=2), federated())
    assert state.phase == 1


def test_a_aggregate_that_is_not_finite_names_the_round_and_the_entry(federation: Federation) -> None:
    algorithm = fedavg(Participation(), LOCAL, Adam(lr=1e300))
    with pytest.raises(DivergedError, match=r"the aggregated model of round 1: entry '0\.weight' is not finite"):
        one_round(federation, algorithm, clients(SIZES))


def test_a_server_that_remembers_what_is_no_number_stops() -> None:
    def rule(model: Packed, mean: Packed, total: float, memory: object, layout: Layout) -> object:
        return mean, {"v": np.array([1.0, np.inf])}

    layout = Layout.of(perceptron())
    model = layout.pack(perceptron().state_dict())
    with pytest.raises(DivergedError, match=r"round 3: 'v' of the server's memory is not finite"):
        next_model(rule, (model, model, 1.0, {}, layout), 3, NO_ROWS)  # type: ignore[arg-type]


def test_a_model_that_begins_with_none_is_refused(federation: Federation) -> None:
    module = perceptron()
    nn.init.constant_(module[2].bias, torch.inf)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"model entry '2\.bias': must be finite at the start"):
        begin(module, federation(clients(SIZES), perceptron()), 0)


def test_a_sum_that_overflows_says_nothing() -> None:
    assert is_finite(np.full(2, 3e38, np.float32))
    assert not is_finite(np.array([np.inf, -np.inf], np.float32))
    assert not is_finite(np.array([0, np.nan]))


def test_numbers_near_the_largest_are_no_fault(federation: Federation) -> None:
    """Two entries whose sum overflows are numbers all the same: unused ones, beside a model that trains."""
    module = perceptron()
    module.register_buffer("large", torch.full((2,), 3e38))
    fleet = federation(clients(SIZES), module)
    state = next_round(begin(module, fleet, 0), fedavg(Participation(), LOCAL), fleet)
    assert state.report.updates.trained.all()
