"""Client updates of low rank beside sequential ones: divergence, measures, sums, and the rule that chooses them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Compute,
    DivergedError,
    Divergence,
    InputError,
    Layout,
    Local,
    LocalSteps,
    Method,
    Packed,
    Participation,
    Resident,
    Sharing,
    State,
    begin,
    choose,
    fedasync,
    fedavg,
    fedmmb,
    next_round,
    radfed,
    radfedi,
    scaffold,
)
from algorithms.core.sums import Sum
from algorithms.fedprox import Proximal
from algorithms.training.low_rank import LowRank
from algorithms.training.work import Work
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients

Federation = Callable[..., InlineFleet]
SIZES = (7, 4, 1, 9, 0, 7)
LOCAL = Local(lr=0.05, batch_size=4, epochs=2, momentum=0.5, weight_decay=0.1)
EXECUTIONS = ("sequential", "low-rank")


def module() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def run(federation: Federation, algorithm: Algorithm, execution: str, precision: str = "fp64", **more: object) -> State:
    compute = Compute(execution, precision)  # type: ignore[arg-type]
    made = module().double() if precision == "fp64" else module()
    data = more.pop("data", None) or clients(SIZES)
    fleet = federation(data, made, algorithm.sharing, 3, compute, 1 if execution == "sequential" else 2)
    state = begin(made, fleet, seed=4, **more)  # type: ignore[arg-type]
    for _ in range(2):
        state = next_round(state, algorithm, fleet)
    return state


def distance(a: Packed, b: Packed) -> float:
    return float(np.abs(a.floats - b.floats).max())


@pytest.mark.parametrize("policy", ["leave-out", "last"])
def test_an_update_that_is_not_finite_leaves_the_others_alone(policy: str, federation: Federation) -> None:
    data = clients(SIZES)
    data[3] = (data[3][0] * torch.inf, data[3][1])
    algorithm = fedavg(Participation(), replace(LOCAL, nonfinite=policy))  # type: ignore[arg-type]
    plain, low = (run(federation, algorithm, execution, data=data) for execution in EXECUTIONS)
    assert distance(low.model, plain.model) < 1e-9 and np.isfinite(low.model.floats).all()
    assert plain.report is not None and low.report is not None
    assert low.report.updates.finite.tolist() == plain.report.updates.finite.tolist()
    np.testing.assert_array_equal(low.report.updates.weights, plain.report.updates.weights)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_weights_that_overflow_in_the_last_step_are_found(execution: str, federation: Federation) -> None:
    algorithm = fedavg(Participation(), Local(lr=3e38, batch_size="full", epochs=1))
    with pytest.raises(DivergedError, match=r"client 0 in round 1: entry '\d\.(weight|bias)' is not finite"):
        run(federation, algorithm, execution, "fp32", data=[(x * 100, y) for x, y in clients(SIZES)])


def test_models_are_compared_as_they_were_sent(federation: Federation) -> None:
    states = [
        run(federation, fedavg(Participation(), LOCAL).having(Divergence()), execution) for execution in EXECUTIONS
    ]
    plain, low = (state.report.measures for state in states if state.report)
    assert low["dl"] == pytest.approx(plain["dl"], abs=1e-9)
    assert low["dl_updates"] == pytest.approx(plain["dl_updates"], abs=1e-9)


def test_a_buffer_does_not_decay(federation: Federation) -> None:
    def buffered() -> nn.Module:
        made = module().double()
        made.register_buffer("scale", torch.ones(3, dtype=torch.float64))
        return made

    algorithm, models = fedavg(Participation(), LOCAL), []
    for execution in EXECUTIONS:
        fleet = federation(clients(SIZES), buffered(), algorithm.sharing, 3, Compute(execution, "fp64"), 1)  # type: ignore[arg-type]
        models.append(next_round(begin(buffered(), fleet, seed=4), algorithm, fleet).model)
    assert distance(*models) < 1e-9


@dataclass(frozen=True)
class Halved(Method):
    """Client updates that end with a change of their own."""

    def finish(self, steps: LocalSteps, lane: int, count: int) -> None:
        for (w,) in steps.values(lane):
            w.mul_(0.5)


def test_an_update_that_ends_with_a_change_of_its_own_has_no_low_rank() -> None:
    assert choose(Local(method=Halved()), WIDE, torch.zeros(784), "cpu", 25, 5).execution == "fused"
    with pytest.raises(InputError, match="or end with a change of them"):
        choose(Local(method=Halved(), compute=Compute("low-rank")), WIDE, torch.zeros(784), "cpu", 25, 5)


def test_a_counter_goes_on(federation: Federation) -> None:
    algorithm = fedmmb(Participation(), Local(lr=0.05, batch_size=4), batches=1)
    plain, low = (run(federation, algorithm, execution) for execution in EXECUTIONS)
    assert distance(low.model, plain.model) < 1e-9
    np.testing.assert_array_equal(low.average.integers, plain.average.integers)
    assert plain.report is not None and low.report is not None
    np.testing.assert_array_equal(low.report.updates.report["used"], plain.report.updates.report["used"])


def trained() -> tuple[LowRank, list[Work]]:
    made = module()
    resident = Resident(made, Sharing().divide(Layout.of(made)), torch.zeros(4), lanes=1)
    low, nothing = LowRank(resident), resident.personal().copy()
    works = [Work(x, y, [np.arange(len(y))] if len(y) else []) for x, y in clients((9, 5, 0))]
    low.load([resident.shared().copy()] * 3, [nothing] * 3)
    low.train(Local(), works, 0.1)
    return low, works


def test_the_sum_is_that_of_the_formed_models() -> None:
    low, _ = trained()
    weights = np.array([2.0, 0.0, 1.0])
    total, expected = (Sum.zero(low._resident.layouts.shared) for _ in range(2))
    low.add(total, [0, 1, 2], weights)
    for lane, weight in enumerate(weights):
        expected.add(low.shared(lane), weight)
    assert total.total == expected.total == 3
    np.testing.assert_allclose(total.floats, expected.floats, atol=1e-6)
    # A client without samples has the received model, to the last bit.
    np.testing.assert_array_equal(low.shared(2).floats, low._resident.shared().floats)


def test_a_changed_model_of_a_lane_is_refused() -> None:
    low, _ = trained()
    with pytest.raises(InputError, match="must have each client's model formed; set `forms_models` in its class"):
        low.reload(0, low.shared(0), low.personal(0))
    low.reload(0, low._model, low.personal(0))
    np.testing.assert_array_equal(low.shared(0).floats, low._model.floats)


WIDE = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
"""Its least width is 158,800 / 1,194 = 133, and three quarters of it are 99."""


@pytest.mark.parametrize(("samples", "expected"), [(1, "low-rank"), (99, "low-rank"), (100, "fused")])
def test_clients_of_few_samples_are_of_low_rank(samples: int, expected: str) -> None:
    assert choose(Local(), WIDE, torch.zeros(784), "cpu", 25, samples).execution == expected
    near = Local(momentum=0.9, method=Proximal(0.1))
    assert choose(near, WIDE, torch.zeros(784), "cpu", 25, samples).execution == expected
    assert choose(Local(), WIDE, torch.zeros(784), "cpu", 25, samples, "it says so").execution == "fused"


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        (lambda: fedavg(Participation(), LOCAL), ""),
        (lambda: radfed(Participation(), LOCAL, aggregate_every=3), ""),
        (lambda: fedmmb(Participation(), Local(), batches=1), ""),
        (lambda: radfedi(Participation(), LOCAL, aggregate_every=3), "the reports measure each client's model (score)"),
        (lambda: fedasync(Participation(), LOCAL), "the algorithm has rounds of its own"),
        (lambda: scaffold(Participation(), Local()), "clients keep entries of their own"),
    ],
)
def test_a_method_that_needs_each_model_says_so(algorithm: Callable[[], Algorithm], reason: str) -> None:
    assert algorithm().forms_models(Layout.of(module())) == reason


@pytest.mark.parametrize(
    ("local", "made", "why"),
    [
        (Local(clip=1.0), module(), "need the whole gradient"),
        (Local(), nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)), "no stack of linear layers"),
    ],
)
def test_an_update_that_has_no_low_rank_is_refused(local: Local, made: nn.Module, why: str) -> None:
    asked = replace(local, compute=Compute("low-rank"))
    refused = f'local.execution = "low-rank": must be sequential or vectorised, because .*{why}'
    with pytest.raises(InputError, match=refused):
        choose(asked, made, torch.zeros(4), "cpu", 4, 5)
    with pytest.raises(InputError, match="because it needs all models"):
        choose(Local(compute=Compute("low-rank")), module(), torch.zeros(4), "cpu", 4, 5, "it needs all models")


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        (Local(), (20**2 + 60**2) / 80),
        (Local(epochs=3), 3 * (20**2 + 60**2) / 80),
        (Local(steps=4), 40),
        (Local(steps=4, batch_size="full"), 16 * (20**2 + 60**2) / (4 * 80)),
        (Local(batches=3), (20**2 + 30**2) / 50),
        (Local(steps=1, batch_size=1), 1),
    ],
)
def test_the_samples_that_an_update_uses(local: Local, expected: float) -> None:
    assert local.used(np.array([20, 60])) == pytest.approx(expected)


def test_the_largest_client_counts() -> None:
    assert Local().used(np.array([20] * 10_000 + [4_000])) == 1_000
