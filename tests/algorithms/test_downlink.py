"""Rounds with a downlink: reference, identities, error feedback, bytes, refusals."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from algorithms import (
    Clip,
    Compute,
    Downlink,
    InputError,
    Local,
    Noise,
    Participation,
    PowerOfChoice,
    Quantise,
    RandomK,
    Sign,
    Stage,
    State,
    TopK,
    Uplink,
    begin,
    fedasync,
    fedavg,
    next_round,
    radfed,
)
from algorithms.names import ALGORITHMS
from algorithms.options.stages import Changes
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, named
from tests.kit.models import SIZES, made, simulate
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
SOME = Participation(fraction=0.7)


@pytest.mark.parametrize("name", ["fedavg", "fedadam", "fedbn", "fixbn", "scaffold", "ditto", "feddyn"])
def test_identities_to_the_byte(name: str, federation: Federation) -> None:
    model, algorithm = "cnn with batch norm", named(name, SOME, LOCAL)
    plain, _ = simulate(federation, algorithm, model, "sequential", "fp32", 2)
    for chain in ((), (TopK(1.0),), (RandomK(1.0),)):
        sent, _ = simulate(federation, algorithm.having(Downlink(chain)), model, "sequential", "fp32", 2)
        assert same(plain.model, sent.model) and same(plain.average, sent.average), chain


@pytest.mark.parametrize("name", ["fedavg", "fedadam"])
def test_reference_of_top_k(name: str, federation: Federation) -> None:
    """Each broadcast is the largest part of the server's step and of what it still owes; nothing is lost."""
    compute = Compute("sequential", "fp64")
    plain = named(name, SOME, LOCAL).computed(compute)
    algorithm = plain.having(Downlink((TopK(0.2),)))
    fleet = federation(clients(SIZES), made("mlp", True), algorithm.sharing, 3, compute)
    state = begin(made("mlp", True), fleet, 1, 4)
    size = sum(entry.size for entry in fleet.layouts.shared.entries)
    owed = np.zeros_like(state.model.floats)
    for _ in range(4):
        step = next_round(state, plain, fleet).model.floats - state.model.floats + owed
        after = next_round(state, algorithm, fleet)
        sent = step.copy()
        sent[np.argsort(-np.abs(step))[round(0.2 * size) :]] = 0.0
        np.testing.assert_allclose(after.model.floats, state.model.floats + sent, rtol=0, atol=1e-14)
        owed = step - sent
        np.testing.assert_allclose(after.of("downlink")["owed"], owed, rtol=0, atol=1e-14)
        assert 0 < np.count_nonzero(sent) < np.count_nonzero(step)
        state = after


def test_statistics_and_counters_are_sent_whole(federation: Federation) -> None:
    algorithm = fedavg(SOME, LOCAL)
    model = "cnn with batch norm"
    plain, fleet = simulate(federation, algorithm, model, "sequential", "fp64", 1)
    sent, _ = simulate(federation, algorithm.having(Downlink((Sign(),))), model, "sequential", "fp64", 1)
    one, other = fleet.layouts.shared.unpack(plain.model), fleet.layouts.shared.unpack(sent.model)
    for entry in fleet.layouts.shared.entries:
        assert np.array_equal(one[entry.name], other[entry.name]) == (not entry.is_parameter)


def test_draws_are_keyed_by_the_round(federation: Federation) -> None:
    algorithm = fedavg(Participation(), replace(LOCAL, lr=1e-30)).having(Downlink((RandomK(0.5, scale=False),)))
    fleet = federation(clients(SIZES), made("mlp", True), algorithm.sharing, 3)
    start = begin(made("mlp", True), fleet, 1, 2)
    moved = start

    def places(state: State) -> np.ndarray:
        """Return the places that are sent if the server owes 1 everywhere."""
        first = next_round(state, algorithm, fleet)
        owing = {**first.of("downlink"), "owed": np.ones_like(first.of("downlink")["owed"])}
        after = next_round(first.keeping("downlink", owing), algorithm, fleet)
        return np.flatnonzero(after.model.floats > first.model.floats + 0.5)

    assert np.array_equal(places(start), places(moved))
    assert not np.array_equal(places(start), places(replace(start, seed=2)))
    assert not np.array_equal(places(start), places(replace(start, round=1)))


def test_bytes_down_are_those_of_missed_messages(federation: Federation) -> None:
    """A newcomer receives the model; others every message since their last round, or the model if that is shorter."""
    downlink = Downlink((TopK(0.25),))
    algorithm = fedavg(Participation(cohort=2), LOCAL).having(downlink)
    fleet = federation(clients(SIZES), made("mlp", True), algorithm.sharing, 3)
    state = begin(made("mlp", True), fleet, 1, 12)
    whole = fleet.layouts.shared.nbytes
    message = downlink.nbytes(whole // 8, 8)
    last: dict[int, int] = {}
    kinds = set()
    for number in range(1, 13):
        state = next_round(state, algorithm, fleet)
        assert state.report is not None
        expected = 0
        for client in state.report.updates.clients.tolist():
            missed = number - last[client] if client in last else None
            expected += whole if missed is None else min(missed * message, whole)
            kinds.add("new" if missed is None else "model" if missed * message > whole else "messages")
            last[client] = number
        assert state.report.bytes_down == expected
        assert state.report.bytes_up == 2 * whole
    assert kinds == {"new", "model", "messages"}


def test_both_ways_compressed_train(federation: Federation) -> None:
    algorithm = fedavg(Participation(), LOCAL).having(Uplink((TopK(0.2),), feedback=True))
    plain, _ = simulate(federation, algorithm, "mlp", "sequential", "fp64", 3)
    both, _ = simulate(federation, algorithm.having(Downlink((Quantise(64),))), "mlp", "sequential", "fp64", 3)
    assert not same(plain.model, both.model) and np.isfinite(both.model.floats).all()


@dataclass(frozen=True)
class Noting(Stage):
    """A user's stage that notes the layers of the changes."""

    layers: list[tuple[int, ...]] = field(default_factory=list, compare=False)

    def __call__(self, changes: Changes) -> Changes:
        self.layers.append(changes.layers)
        return changes


def test_a_stage_knows_the_layers_of_the_model(federation: Federation) -> None:
    """The perceptron has 4 inputs, 6 hidden units and 3 classes."""
    stage = Noting()
    simulate(federation, fedavg(SOME, LOCAL).having(Downlink((stage,))), "mlp", "sequential", "fp32", 1)
    assert stage.layers == [(4 * 6 + 6, 6 * 3 + 3)]


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Downlink((Noise(1.0),)), "would take the noise out again"),
    (lambda: Downlink((Clip(1.0),)), "would keep what the clipping cut off"),
    (lambda: Downlink((RandomK(0.1),)), "set scale = false"),
    (lambda: Downlink((TopK(0.1), TopK(0.1))), "downlink.chain has TopK"),
    (lambda: radfed(Participation(), LOCAL, aggregate_every=2).having(Downlink((Sign(),))), "aggregate_every = 2"),
    (lambda: fedasync(Participation(), LOCAL).having(Downlink((Sign(),))), "rounds of its own"),
    (lambda: ALGORITHMS["fedtan"](Participation(), LOCAL).having(Downlink((Sign(),))), "rounds of its own"),
    (lambda: ALGORITHMS["centralized"](Participation(), LOCAL).having(Downlink((Sign(),))), "rounds of its own"),
    (lambda: ALGORITHMS["singleset"](Participation(), LOCAL).having(Downlink((Sign(),))), "no weights are sent"),
    (lambda: fedavg(Participation(cohort=2, by=PowerOfChoice(3)), LOCAL).having(Downlink((Sign(),))), "candidates"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_refusals(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert message in str(error.value) and "\n" not in str(error.value)
