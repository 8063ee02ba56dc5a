"""Rounds with an uplink: reference, identities, executions, error feedback, bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Clip,
    Compute,
    Downlink,
    InputError,
    Layout,
    Local,
    Noise,
    Packed,
    Participation,
    Quantise,
    RandomK,
    Sign,
    Stage,
    TopK,
    Uplink,
    begin,
    fedavg,
    next_round,
    radfed,
)
from algorithms.names import ALGORITHMS
from algorithms.options.chain import StageChain
from algorithms.options.stages import Changes
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, named, perceptron
from tests.kit.models import MODELS, SIZES, made, simulate
from tests.kit.rounds import same

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
SOME = Participation(fraction=0.7)
CHAINS = {
    "clip, top-k, quantise": Uplink((Clip(0.1), TopK(0.3), Quantise(8))),
    "random-k with feedback": Uplink((RandomK(0.3, scale=False),), feedback=True),
}

REFUSED = [
    *[(name, chain) for name in ("centralized", "singleset", "dpsgd", "sgp") for chain in CHAINS],
    *[(name, "random-k with feedback") for name in ("fedasync", "fedbuff", "heterofl", "fjord")],
]


@pytest.mark.parametrize(("name", "chain"), REFUSED)
def test_what_sends_nothing_or_has_no_order_refuses_a_chain(name: str, chain: str) -> None:
    with pytest.raises(InputError, match=r"^uplink|^models of many sizes with personal feedback"):
        named(name, SOME, LOCAL).having(CHAINS[chain]).divide(Layout.of(MODELS["cnn with batch norm"]()))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if any((name, chain) not in REFUSED for chain in CHAINS)])
def test_every_algorithm_with_each_chain(name: str, federation: Federation) -> None:
    """The last chain that it takes is stacked too; with FedAvg, `test_executions_agree` stacks every chain."""
    model, algorithm = "cnn with batch norm", named(name, SOME, LOCAL)
    found = [simulate(federation, algorithm, model, "sequential", "fp64", 2)[0]]
    for uplink in (CHAINS[chain] for chain in CHAINS if (name, chain) not in REFUSED):
        found.append(simulate(federation, algorithm.having(uplink), model, "sequential", "fp64", 2)[0])
        assert np.isfinite(found[-1].model.floats).all() and not same(found[-1].model, found[0].model)
    stacked, _ = simulate(federation, algorithm.having(uplink), model, "vectorised", "fp64", 2)
    for one, other in ((found[-1].model, stacked.model), (found[-1].average, stacked.average)):
        np.testing.assert_allclose(other.floats, one.floats, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("uplink", [*CHAINS.values(), Uplink((Sign(),), feedback=True)])
def test_executions_agree(uplink: Uplink, federation: Federation) -> None:
    algorithm = fedavg(SOME, LOCAL).having(uplink)
    models = [
        simulate(federation, algorithm, "mlp", way, "fp64", 2)[0] for way in ("sequential", "vectorised", "fused")
    ]
    for state in models[1:]:
        np.testing.assert_allclose(state.model.floats, models[0].model.floats, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["fedavg", "fedadam", "fedbn", "radfed", "fedasync", "scaffold", "ditto"])
def test_identities_to_the_byte(name: str, federation: Federation) -> None:
    model, algorithm = "cnn with batch norm", named(name, SOME, LOCAL)
    plain, _ = simulate(federation, algorithm, model, "sequential", "fp32", 2)
    for chain in ((), (Clip(inf), TopK(1.0)), (Clip(inf, "layer"), RandomK(1.0)), (Noise(0.0),)):
        sent, _ = simulate(federation, algorithm.having(Uplink(chain)), model, "sequential", "fp32", 2)
        assert same(plain.model, sent.model) and same(plain.average, sent.average), chain


def rounds(
    federation: Federation, algorithm: Algorithm, count: int, sizes: Sequence[int] = SIZES
) -> list[dict[str, np.ndarray]]:
    """Return the model before the first round and after each, by entry, in double precision on one lane."""
    compute = Compute("sequential", "fp64")
    fleet = federation(clients(sizes), made("mlp", True), algorithm.sharing, 3, compute)
    state = begin(made("mlp", True), fleet, 1, count)
    found = [fleet.layouts.shared.unpack(state.model)]
    for _ in range(count):
        state = next_round(state, algorithm.computed(compute), fleet)
        found.append(fleet.layouts.shared.unpack(state.model))
    return found


def flat(values: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([each.ravel() for each in values.values()])


@pytest.mark.parametrize("feedback", [False, True])
def test_reference_loop_of_top_k(feedback: bool, federation: Federation) -> None:
    """FedAvg by hand, on gradients by autograd, with unequal sizes, partial participation and full batches."""
    local = replace(LOCAL, batch_size="full", epochs=2)
    chain = (TopK(0.2),) if feedback else (Clip(0.05), TopK(0.2))
    algorithm = fedavg(SOME, local).having(Uplink(chain, feedback))
    found = rounds(federation, algorithm, 4)
    data, owed = clients(SIZES), {}
    w = flat(found[0])
    module = made("mlp", True)
    for number in range(1, 5):
        cohort = SOME.draw(np.arange(len(SIZES)), 1, number, np.array(SIZES), None, None)
        total, weight = np.zeros_like(w), 0
        for client in cohort.tolist():
            x, y = data[client][0].double(), data[client][1]
            if not len(y):
                continue
            torch.nn.utils.vector_to_parameters(torch.from_numpy(w.copy()), module.parameters())
            for _ in range(2):
                loss = torch.nn.functional.cross_entropy(module(x), y)
                gradients = torch.autograd.grad(loss, list(module.parameters()))
                for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                    parameter.data -= 0.05 * gradient
            change = torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy() - w
            change = change + owed.get(client, 0.0)
            sent = change * (1.0 if feedback else min(1.0, 0.05 / np.sqrt((change**2).sum())))
            sent[np.argsort(-np.abs(sent))[round(0.2 * len(w)) :]] = 0.0
            if feedback:
                owed[client] = change - sent
            total, weight = total + len(y) * (w + sent), weight + len(y)
        w = total / weight
        np.testing.assert_allclose(flat(found[number]), w, rtol=1e-9, atol=1e-12)


def test_feedback_loses_nothing(federation: Federation) -> None:
    """One client: the sum of its changes is the sum of what arrived and what it still owes."""
    uplink = Uplink((TopK(0.05), Sign()), feedback=True)
    local, compute = replace(LOCAL, lr=0.01), Compute("sequential", "fp64")
    algorithm = fedavg(Participation(), local).having(uplink).computed(compute)
    fleet = federation(clients((9,)), made("mlp", True), algorithm.sharing, 1, compute)
    changes: list[np.ndarray] = []
    trainer = fleet.worker.trainer if hasattr(fleet, "worker") else fleet._worker.trainer
    train = trainer.train

    def watched(*given):
        before = trainer.shared(0).copy().floats
        losses = train(*given)
        changes.append(trainer.shared(0).floats - before)
        return losses

    trainer.train = watched
    state = begin(made("mlp", True), fleet, 1, 6)
    start = state.model.floats.copy()
    for _ in range(6):
        state = next_round(state, algorithm, fleet)
    layout, moved = fleet.layouts.shared, Packed(state.model.floats - start, state.model.integers)
    trained = Packed(np.sum(changes, axis=0), state.model.integers)
    arrived, made_ = layout.unpack(moved), layout.unpack(trained)
    owed = fleet.layouts.personal.unpack(state.average)
    for name, change in made_.items():
        np.testing.assert_allclose(arrived[name] + owed[f"feedback/{name}"], change, rtol=0, atol=1e-12)
    assert any(np.abs(values).max() > 0 for values in owed.values())


def test_redistribution_sends_on_every_hop(federation: Federation) -> None:
    uplink = Uplink((Clip(1e-3),))
    algorithm = radfed(Participation(), LOCAL, aggregate_every=3).having(uplink)
    found = rounds(federation, algorithm, 3, (9,))
    # Three clipped hops move a model by at most 3 norms.
    distance = float(np.linalg.norm(flat(found[3]) - flat(found[0])))
    assert 1e-3 < distance <= 3e-3 + 1e-12
    assert np.array_equal(flat(found[0]), flat(found[2]))


def test_bytes_up_are_those_of_the_message(federation: Federation) -> None:
    uplink = Uplink((TopK(0.1),), feedback=True)
    for model, whole in (("mlp", 0), ("cnn with batch norm", 2 * 4 * 4 + 8)):
        algorithm = fedavg(Participation(), LOCAL).having(uplink)
        state, fleet = simulate(federation, algorithm, model, "sequential", "fp32", 1)
        size = sum(entry.size for entry in fleet.layouts.shared.entries if entry.is_parameter)
        assert state.report is not None
        assert state.report.bytes_up == len(SIZES) * (uplink.nbytes(size, 4) + whole)
        assert state.report.bytes_down == len(SIZES) * (4 * size + whole)


def test_asynchronous_arrivals_send_messages(federation: Federation) -> None:
    uplink = Uplink((TopK(0.1),))
    algorithm = named("fedasync", Participation(cohort=2), LOCAL).having(uplink)
    state, fleet = simulate(federation, algorithm, "mlp", "sequential", "fp32", 2)
    size = sum(entry.size for entry in fleet.layouts.shared.entries)
    assert state.report is not None and state.report.bytes_up == 2 * uplink.nbytes(size, 4)


@dataclass(frozen=True)
class Halved(Stage):
    """A user's stage that halves the changes, in new memory or in place."""

    in_place: bool

    def __call__(self, changes: Changes) -> Changes:
        return replace(changes, values=changes.values.mul_(0.5) if self.in_place else changes.values * 0.5)


@pytest.mark.parametrize(
    "chain", [lambda stage: Uplink((stage,)), lambda stage: Uplink((stage,), feedback=True), lambda s: Downlink((s,))]
)
def test_a_users_stage_may_change_values_in_place(chain: Callable[[Stage], StageChain], federation: Federation) -> None:
    plain, new, in_place = (
        simulate(federation, fedavg(SOME, LOCAL).having(*options), "mlp", "sequential", "fp64", 3)[0]
        for options in ((), (chain(Halved(False)),), (chain(Halved(True)),))
    )
    assert same(in_place.model, new.model) and same(in_place.average, new.average)
    assert not same(new.model, plain.model)


class Tempered(nn.Module):
    """A perceptron, and a parameter without dimensions that scales its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = perceptron()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
@pytest.mark.parametrize("chain", [(Clip(0.05),), (Clip(0.05, "layer"), TopK(1.0))])
def test_a_parameter_without_dimensions_is_sent(chain: tuple, execution: str, federation: Federation) -> None:
    compute = Compute(execution, "fp64")  # type: ignore[arg-type]
    algorithm = fedavg(Participation(), LOCAL).having(Uplink(chain)).computed(compute)
    fleet = federation(clients((9, 7)), Tempered().double(), algorithm.sharing, 2, compute)
    start = begin(Tempered().double(), fleet, 1)
    after = next_round(start, algorithm, fleet)
    assert 0 < np.linalg.norm(after.model.floats - start.model.floats) <= 0.05 + 1e-12
    assert fleet.layouts.shared.unpack(after.model)["scale"] != 1.5


def test_a_client_that_takes_no_step_sends_no_noise(federation: Federation) -> None:
    algorithm = radfed(Participation(), LOCAL, aggregate_every=2).having(Uplink((Noise(1.0),)))
    fleet = federation([*clients((0, 0))], perceptron(), algorithm.sharing, 1)
    state = begin(perceptron(), fleet, 1, 2)
    after = next_round(next_round(state, algorithm, fleet), algorithm, fleet)
    assert same(state.model, after.model)
