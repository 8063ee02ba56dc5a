"""All executions compute the same: every algorithm, ragged batches, unequal sizes, every rule of a client update."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    AffineTerm,
    Algorithm,
    Compute,
    InputError,
    Layout,
    Local,
    Method,
    Packed,
    Participation,
    Resident,
    Sharing,
    State,
    begin,
    choose,
    fedavg,
    feddyn,
    next_round,
    radfed,
    scaffold,
    trainer,
)
from algorithms.fedprox import Proximal
from algorithms.names import ALGORITHMS
from algorithms.training.low_rank import keeps_low_rank
from algorithms.training.terms import pull
from algorithms.training.work import Work
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import NEEDS_BATCH_NORM, clients, named, perceptron
from tests.kit.stacked import MODELS, differ, seeded

Federation = Callable[..., InlineFleet]
SIZES = (7, 4, 1, 9, 0, 7)
LOCAL = Local(lr=0.05, batch_size=4)
STACKED = ("vectorised", "fused", "low-rank")

LOCALS = {
    "plain": LOCAL,
    "momentum": replace(LOCAL, momentum=0.9),
    "decay": replace(LOCAL, weight_decay=0.1),
    "proximal": replace(LOCAL, method=Proximal(0.5)),
    "all": replace(LOCAL, epochs=2, momentum=0.9, weight_decay=0.1, method=Proximal(0.5), lr_decay=0.9),
    "steps": replace(LOCAL, epochs=None, steps=4),
    "full batch": replace(LOCAL, batch_size="full"),
    "clipped": replace(LOCAL, clip=0.1),
    "nesterov": replace(LOCAL, momentum=0.9, nesterov=True),
    "adam": replace(LOCAL, optimizer="adam", lr=0.01, epochs=2),
    "rotating": replace(LOCAL, epochs=None, batches=2),
    "as the largest": replace(LOCAL, steps="largest"),
    "head": replace(LOCAL, part="head", weight_decay=0.1),
    "body": replace(LOCAL, part="body", momentum=0.9),
    "frozen affine": replace(LOCAL, affine="frozen", weight_decay=0.1),
    "untracked statistics": replace(LOCAL, statistics="untracked"),
    "frozen statistics": replace(LOCAL, statistics="frozen"),
}


FUSED = ("linear", "sigmoid")
NOT_FOLDABLE = {"clipped", "nesterov", "adam"}
NOT_LOW_RANK = {"head", "body"}

UPDATES = [(local, model) for local in LOCALS for model in MODELS]


def has(execution: str, local: str, model: str) -> bool:
    """Return whether an execution has the client update."""
    fused = model in FUSED and local not in NOT_FOLDABLE
    return execution == "vectorised" or (fused and (execution == "fused" or local not in NOT_LOW_RANK))


EACH = ("linear", "batch_norm")
"""Models on which the default suite tries all client updates; on the others it tries the one with all terms."""

NOT_FUSED = NEEDS_BATCH_NORM | {"apfl", "pfedme", "per-fedavg", "moon"}
"""Algorithms about batch norm, which a fused model has not, or whose gradients are not by hand."""

FORMED = NOT_FUSED | {
    *("fedasync", "fedbuff", "centralized", "ifca", "radfedi", "q-fedavg", "scaffold", "feddyn"),
    *("dpsgd", "sgp", "singleset", "fedper", "fedrep", "lg-fedavg", "fedbabu", "ditto"),
    *("hierfavg", "heterofl", "fjord"),
}
"""Algorithms that form each client's model."""

WITHOUT = {"fused": NOT_FUSED, "low-rank": FORMED}
"""Algorithms that have no such execution; `test_properties.py` has all of them vectorised."""


def run(federation: Federation, algorithm: Algorithm, model: str, compute: Compute, rounds: int, lanes: int) -> State:
    def module() -> nn.Module:
        made = seeded(model)
        return made.double() if compute.precision == "fp64" else made

    fleet = federation(clients(SIZES), module(), algorithm.sharing, 5, compute, lanes)
    state = begin(module(), fleet, seed=4, rounds=rounds)
    for number in range(1, rounds + 1):
        state = next_round(state, algorithm, fleet, last=number == rounds)
    return state


def test_the_other_updates_and_algorithms_have_no_such_execution() -> None:
    assert {name for name, local in LOCALS.items() if not local.arithmetic.is_foldable} == NOT_FOLDABLE
    assert {name for name, local in LOCALS.items() if not keeps_low_rank(local)} == NOT_FOLDABLE | NOT_LOW_RANK
    algorithms = {name: named(name, Participation(fraction=0.7), LOCAL) for name in ALGORITHMS}
    assert {name for name, each in algorithms.items() if cannot_fuse(each)} == NOT_FUSED
    formed = {name for name, each in algorithms.items() if forms_models(each) or not keeps_low_rank(each.local)}
    assert formed == FORMED


@pytest.mark.parametrize(
    ("local", "model"),
    [pytest.param(*each, marks=[pytest.mark.slow] * (each[0] != "all" and each[1] not in EACH)) for each in UPDATES],
)
def test_stacked_updates_equal_sequential_ones(model: str, local: str, federation: Federation) -> None:
    algorithm = fedavg(Participation(), LOCALS[local])
    # float32 is compared on a single client update each: rounding grows from round to round.
    compared = [("fp64", 1e-9, 2), ("fp32", 1e-5, 1)] if local == "all" else [("fp64", 1e-9, 1)]
    for precision, most, rounds in compared:
        plain = run(federation, algorithm, model, Compute("sequential", precision), rounds, 1)  # type: ignore[arg-type]
        for execution in (each for each in STACKED if has(each, local, model)):
            compute = Compute(execution, precision)  # type: ignore[arg-type]
            stacked = run(federation, algorithm, model, compute, rounds, 3)
            assert differ(stacked.model, plain.model) < most
            assert plain.report is not None and stacked.report is not None
            a, b = plain.report.updates, stacked.report.updates
            np.testing.assert_array_equal(a.clients, b.clients)
            np.testing.assert_array_equal(a.weights, b.weights)
            np.testing.assert_array_equal(a.report["steps"], b.report["steps"])
            np.testing.assert_allclose(a.report["loss"], b.report["loss"], rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in NOT_FUSED])
def test_every_algorithm_stacks(name: str, federation: Federation) -> None:
    algorithm = named(name, Participation(fraction=0.7), LOCAL)
    plain = run(federation, algorithm, "linear", Compute("sequential", "fp64"), 2, 1)
    for execution in (each for each, without in WITHOUT.items() if name not in without):
        stacked = run(federation, algorithm, "linear", Compute(execution, "fp64"), 2, 3)  # type: ignore[arg-type]
        assert differ(stacked.model, plain.model) < 1e-9
        assert differ(stacked.average, plain.average) < 1e-9


def cannot_fuse(algorithm: Algorithm) -> bool:
    try:
        algorithm.divide(Layout.of(seeded("linear")))
    except InputError:  # the algorithm is about batch norm
        return True
    return not (algorithm.local.arithmetic.is_foldable and algorithm.local.has_gradient_by_hand)


def forms_models(algorithm: Algorithm) -> str:
    try:
        return algorithm.forms_models(Layout.of(seeded("linear")))
    except InputError as error:  # the algorithm is about batch norm
        return str(error)


@pytest.mark.parametrize("make", [scaffold, feddyn])
def test_terms_that_read_slots_are_fused_if_asked(make: Callable[..., Algorithm], federation: Federation) -> None:
    local = replace(LOCAL, epochs=2, weight_decay=0.1)
    algorithm = make(Participation(fraction=0.7), local)
    plain, fused = (
        run(federation, algorithm, "linear", Compute(execution, "fp64"), 3, 3 if execution == "fused" else 1)
        for execution in ("sequential", "fused")
    )
    assert differ(fused.model, plain.model) < 1e-9
    assert differ(fused.average, plain.average) < 1e-9
    asked = replace(algorithm.local, compute=Compute("fused"))
    assert choose(asked, seeded("linear"), torch.zeros(4), "cpu", 8).execution == "fused"
    assert choose(algorithm.local, seeded("linear"), torch.zeros(4), "cpu", 8).execution == "vectorised"


@dataclass(frozen=True)
class Drifting(Method):
    """Affine terms of a method."""

    proximal: float

    @property
    def first_terms(self) -> tuple[AffineTerm, ...]:
        return (AffineTerm(a=0.2),)

    @property
    def terms(self) -> tuple[AffineTerm, ...]:
        return pull(self.proximal), AffineTerm(a=0.1, b=0.3, v="received")


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("proximal", [0.0, 0.5])
def test_a_methods_own_affine_terms_are_fused(momentum: float, proximal: float, federation: Federation) -> None:
    local = replace(LOCAL, epochs=2, momentum=momentum, method=Drifting(proximal))
    algorithm = fedavg(Participation(), local)
    assert choose(local, seeded("linear"), torch.zeros(4), "cpu", 1).execution == "fused"
    plain, stacked, fused = (
        run(federation, algorithm, "linear", Compute(execution, "fp64"), 2, lanes)
        for execution, lanes in (("sequential", 1), ("vectorised", 3), ("fused", 3))
    )
    assert differ(stacked.model, plain.model) < 1e-9
    assert differ(fused.model, plain.model) < 1e-9
    without = run(federation, fedavg(Participation(), LOCAL), "linear", Compute("sequential", "fp64"), 2, 1)
    assert differ(plain.model, without.model) > 1e-3


def test_redistributed_models_stack(federation: Federation) -> None:
    algorithm = radfed(Participation(cohort=6), LOCAL, aggregate_every=3)
    states = [
        run(federation, algorithm, "linear", Compute(execution, "fp64"), 5, 4)  # type: ignore[arg-type]
        for execution in ("sequential", *STACKED)
    ]
    assert max(differ(state.model, states[0].model) for state in states) < 1e-9


@pytest.mark.parametrize("execution", ["sequential", *STACKED])
def test_a_lane_does_not_depend_on_its_neighbours(execution: str) -> None:
    """A diverged neighbour, or one of another size, changes nothing; a spare lane is not even touched."""
    rng = np.random.default_rng(0)
    own, other = clients((9, 9))

    def train(works: Sequence[Work], lanes: int) -> Packed:
        module = seeded("linear")
        resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4), lanes=lanes)
        one = trainer(resident, Compute(execution))  # type: ignore[arg-type]
        one.train(LOCAL, works, 0.1)
        return resident.shared(0).copy()

    batches = [rng.permutation(9)[:4] for _ in range(3)]
    work = Work(*own, batches)
    alone = train([work], 1)
    if execution != "sequential":
        poisoned = Work(other[0] * torch.inf, other[1], batches[:2])
        beside = train([work, poisoned], 3)
        np.testing.assert_allclose(beside.floats, alone.floats, atol=1e-6)


def test_dropout_draws_from_the_key_alone(federation: Federation) -> None:
    algorithm = fedavg(Participation(), LOCAL)
    first, second = (run(federation, algorithm, "group_norm", Compute("sequential"), 2, 1) for _ in range(2))
    assert differ(first.model, second.model) == 0
    torch.manual_seed(8)
    assert differ(run(federation, algorithm, "group_norm", Compute("sequential"), 2, 1).model, first.model) == 0


def test_dropout_drops_its_share_and_keeps_the_mean() -> None:
    module = nn.Sequential(nn.Dropout(0.25), nn.Linear(40, 3))
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(40))
    masks = trainer(resident, Compute("sequential"))._masks  # type: ignore[attr-defined]
    mask = masks.draw([Work(torch.zeros(1, 40), torch.zeros(1), [], torch.Generator())], 500)["0.mask"]
    assert mask.shape == (1, 500, 40)
    assert float((mask == 0).double().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(mask.mean()) == pytest.approx(1, abs=0.03)


def test_whole_channels_are_dropped() -> None:
    module = nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(64, 3))
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4, 4, 4))
    masks = trainer(resident, Compute("sequential"))._masks  # type: ignore[attr-defined]
    assert masks.draw([Work(torch.zeros(1), torch.zeros(1), [], torch.Generator())], 5)["0.mask"].shape == (
        1,
        5,
        4,
        1,
        1,
    )


def test_dropout_without_a_key_is_refused() -> None:
    module = nn.Sequential(nn.AlphaDropout(0.5), nn.Linear(4, 3))
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4))
    with pytest.raises(InputError, match="AlphaDropout"):
        trainer(resident, Compute("sequential"))


@pytest.mark.parametrize("model", ["batch_norm", "convolution"])
def test_bfloat16_trains_close_to_float32(model: str, federation: Federation) -> None:
    algorithm = fedavg(Participation(), LOCAL)
    exact, rough = (
        run(federation, algorithm, model, Compute("sequential", precision), 2, 1)  # type: ignore[arg-type]
        for precision in ("fp32", "bf16")
    )
    assert rough.model.floats.dtype == np.float32
    assert 0 < differ(exact.model, rough.model) < 0.1


def test_channels_last_is_the_same_convolution(federation: Federation) -> None:
    algorithm = fedavg(Participation(), LOCAL)
    states = [
        run(federation, algorithm, "convolution", Compute("sequential", "fp64", channels_last=last), 2, 1)
        for last in (False, True)
    ]
    assert differ(states[0].model, states[1].model) < 1e-9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_compiled_model_trains_the_same(federation: Federation) -> None:
    algorithm = fedavg(Participation(), LOCAL)
    states = [
        run(federation, algorithm, "convolution", Compute("sequential", "fp64", compile=compiled), 1, 1)
        for compiled in (False, True)
    ]
    assert differ(states[0].model, states[1].model) < 1e-9


def shared_activation() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(4, 6), relu, nn.Linear(6, 5), relu, nn.Linear(5, 3))


def test_an_activation_that_stands_twice_is_applied_twice(federation: Federation) -> None:
    MODELS["shared_activation"] = shared_activation
    try:
        states = [
            run(federation, fedavg(Participation(), LOCAL), "shared_activation", Compute(execution, "fp64"), 1, 3)  # type: ignore[arg-type]
            for execution in ("sequential", "fused")
        ]
    finally:
        del MODELS["shared_activation"]
    assert differ(states[0].model, states[1].model) < 1e-9


class Draws(nn.Module):
    """A user's layer that draws where no generator can be given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, self.training)


def cumulative() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3))


@pytest.mark.parametrize(
    ("module", "compute"),
    [
        (nn.Sequential(nn.Linear(4, 6), Draws(), nn.Linear(6, 3)), Compute()),
        (cumulative(), Compute()),
        (perceptron(norm=True), Compute(precision="bf16")),
    ],
)
def test_what_cannot_be_stacked_is_trained_one_by_one(module: nn.Module, compute: Compute) -> None:
    assert choose(Local(compute=compute), module, torch.zeros(4), "cuda", 50).execution == "sequential"
    asked = Local(compute=replace(compute, execution="vectorised"))
    with pytest.raises(InputError, match="must be sequential") as error:
        choose(asked, module, torch.zeros(4), "cpu", 50)
    assert "\n" not in str(error.value)


def test_a_module_that_draws_by_itself_draws_from_the_key(federation: Federation) -> None:
    MODELS["draws"] = lambda: nn.Sequential(nn.Linear(4, 6), Draws(), nn.Dropout(0.2), nn.Linear(6, 3))
    try:
        models = []
        for seed in (3, 4):
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            models.append(run(federation, fedavg(Participation(), LOCAL), "draws", Compute("sequential"), 2, 1).model)
            assert torch.equal(before, torch.get_rng_state())
    finally:
        del MODELS["draws"]
    assert differ(*models) == 0


def test_a_dropout_layer_in_two_places_becomes_two() -> None:
    drop = nn.Dropout(0.5)
    module = nn.Sequential(drop, nn.Linear(4, 6), drop, nn.Linear(6, 3))
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4))
    masks = trainer(resident, Compute("sequential"))._masks  # type: ignore[attr-defined]
    assert list(masks.layers) == ["0", "2"]


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
def test_a_parameter_without_gradient_is_not_trained(execution: str, federation: Federation) -> None:
    def frozen() -> nn.Module:
        module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
        module[0].requires_grad_(False)
        return module

    MODELS["frozen"] = frozen
    try:
        state = run(federation, fedavg(Participation(), LOCAL), "frozen", Compute(execution), 1, 3)  # type: ignore[arg-type]
        trained = Sharing().divide(Layout.of(seeded("frozen"))).shared.unpack(state.model)
        assert set(trained) == {"2.weight", "2.bias"}
        for name, value in trained.items():
            assert not np.array_equal(value, seeded("frozen").state_dict()[name].numpy())
    finally:
        del MODELS["frozen"]


def test_batch_norm_without_statistics_is_found_to_refuse_one_sample() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3))
    assert Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4)).refuses_single
