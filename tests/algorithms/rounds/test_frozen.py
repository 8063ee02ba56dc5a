"""A model with a frozen first part: nobody trains, tracks, sends or averages it, in any execution."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Block,
    ClientInput,
    Compute,
    InputError,
    Layout,
    Local,
    Participation,
    Sharing,
    begin,
    choose,
    fedavg,
    fedbn,
    fedtan,
    fixbn,
    freeze,
    singleset,
    static_bn,
)
from algorithms.core.batch_norm import live_batch_norms, refuses_single, train_mode
from algorithms.parts.cohort import client_updates
from algorithms.parts.option import Draft
from algorithms.training.reports import REPORTS
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, perceptron
from tests.kit.reference import DATA, agree, drawn, mean, train
from tests.kit.rounds import simulate

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.1, batch_size=4, momentum=0.9, weight_decay=0.1)
HALF = Participation(fraction=0.5)
FROZEN = ("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")
TRAINED = 4 * (5 * 6 + 6 + 2 * 6 + 6 * 3 + 3)
STATISTICS = 4 * 2 * 6 + 8


def partly() -> nn.Sequential:
    """Two hidden layers with batch norm, the first of them frozen with statistics of its own; in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        first = nn.BatchNorm1d(5)
        first(torch.randn(9, 5) * 3 + 1)
        hidden = (nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh())
        made = nn.Sequential(nn.Linear(4, 5), first, nn.ReLU(), *hidden, nn.Linear(6, 3)).double()
    freeze(made, FROZEN)
    return made


def run(federation: Federation, algorithm: Algorithm, execution: str = "sequential", rounds: int = 3) -> tuple:
    compute = Compute(execution, "fp64")  # type: ignore[arg-type]
    fleet = federation(DATA, partly(), algorithm.sharing, compute=compute)
    return simulate(algorithm, fleet, partly(), rounds), fleet


def sgd(velocity: dict[str, torch.Tensor]) -> Callable[[nn.Module], None]:
    """Momentum and weight decay, on what has a gradient."""

    @torch.no_grad()
    def step(model: nn.Module) -> None:
        for name, p in model.named_parameters():
            if p.requires_grad:
                velocity[name] = 0.9 * velocity.get(name, torch.zeros_like(p)) + p.grad + 0.1 * p
                p.sub_(0.1 * velocity[name])

    return step


def plain_update(model: nn.Module, data: Samples, batches: list[np.ndarray]) -> nn.Module:
    """Train the unfrozen part: the frozen batch norm in evaluation."""
    made = deepcopy(model).train()
    made[1].eval()
    train(made, data, batches, sgd({}))
    return made


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
def test_it_is_plain_training_without_gradients_there(execution: str, federation: Federation) -> None:
    state, fleet = run(federation, fedavg(HALF, LOCAL), execution)
    model = partly()
    for number in range(1, 4):
        cohort = [int(client) for client in HALF.draw(np.arange(6), 0, number)]
        batches = [drawn(LOCAL, DATA[client], number, client) for client in cohort]
        models = [plain_update(model, DATA[client], rows) for client, rows in zip(cohort, batches, strict=True)]
        model.load_state_dict(mean(models, [len(DATA[client][1]) for client in cohort]))
    agree(state, fleet, model.state_dict())
    assert {e.name for e in fleet.layouts.shared.entries} == set(partly().state_dict()) - set(FROZEN)


@pytest.mark.parametrize("execution", ["sequential", "vectorised"])
@pytest.mark.parametrize("make", [fedavg, fedbn, singleset, static_bn, fixbn])
def test_frozen_entries_keep_their_bytes(execution: str, make: Callable, federation: Federation) -> None:
    state, fleet = run(federation, make(HALF, LOCAL), execution)
    assert [entry.name for entry in fleet.layouts.frozen.entries] == list(FROZEN)
    values, module = partly().state_dict(), fleet._worker.resident.module.state_dict()
    assert all(torch.equal(module[name], values[name]) for name in FROZEN)
    frozen = fleet.layouts.frozen.pack(values)
    whole = fleet.layouts.model(state.model, state.average, frozen)
    assert set(whole) == set(values)
    assert all(whole[name].tobytes() == values[name].numpy().tobytes() for name in FROZEN)
    assert not np.array_equal(whole["6.weight"], values["6.weight"].numpy())


@pytest.mark.parametrize(
    ("make", "each"), [(fedavg, TRAINED + STATISTICS), (fedbn, TRAINED - 4 * 2 * 6), (singleset, 0)]
)
def test_only_the_trained_part_is_sent(make: Callable, each: int, federation: Federation) -> None:
    fleet = federation(DATA, partly().float(), make(HALF, LOCAL).sharing)
    state = simulate(make(HALF, LOCAL), fleet, partly().float(), 1)
    assert state.report is not None
    assert state.report.bytes_up == state.report.bytes_down == 3 * each


def test_all_statistics_settings_leave_a_frozen_layer_in_evaluation() -> None:
    module = partly()
    for statistics in ("batch", "untracked", "frozen"):
        train_mode(module, statistics)  # type: ignore[arg-type]
        assert not module[1].training
        assert module[4].training == (statistics != "frozen")
    assert live_batch_norms(module) == [module[4]]


def test_a_frozen_layer_takes_a_batch_of_one() -> None:
    module = partly()
    assert refuses_single(module, torch.zeros(4).double())
    freeze(module, list(module.state_dict()))
    assert not refuses_single(module, torch.zeros(4).double())


def test_fedtan_leaves_it_as_it_is(federation: Federation) -> None:
    plain = Local(lr=0.1, batch_size=4, weight_decay=0.1)
    state, fleet = run(federation, fedtan(HALF, plain))
    assert state.report is not None and state.report.exchanges == 4
    values, module = partly().state_dict(), fleet._worker.resident.module.state_dict()
    assert all(torch.equal(module[name], values[name]) for name in FROZEN)


@pytest.mark.parametrize("needs", REPORTS)
def test_reports_of_a_update_see_the_whole_model(needs: str, federation: Federation) -> None:
    algorithm = fedavg(HALF, LOCAL)
    sequential, stacked = (reported(federation, algorithm, way, needs) for way in ("sequential", "vectorised"))
    assert stacked == pytest.approx(sequential, rel=1e-9) and all(value > 0 for value in sequential)


def reported(federation: Federation, algorithm: Algorithm, execution: str, needs: str) -> list[float]:
    algorithm = algorithm.computed(Compute(execution, "fp64"))  # type: ignore[arg-type]
    fleet = federation(DATA, partly(), algorithm.sharing, compute=algorithm.local.compute)
    state = begin(partly(), fleet, 0)
    updates = replace(client_updates(Draft.of(state, algorithm, fleet)), needs=(needs,))
    block = Block(0, (0, 3), 34, (ClientInput(None, 0.0), ClientInput(None, 0.0)))
    (outcome,) = fleet.map(updates, [block], [fleet.put((state.model, state.average))])
    return list(outcome.value.rows.report[needs])


def test_a_model_whose_batch_norm_is_all_frozen_has_none_to_keep() -> None:
    module = partly()
    freeze(module, [*FROZEN, *(f"4.{name}" for name in module[4].state_dict())])
    layout = Layout.of(module)
    with pytest.raises(InputError, match="no batch-norm layer that trains"):
        fedbn(HALF, LOCAL).divide(layout)
    with pytest.raises(InputError, match="no batch-norm layer that trains"):
        static_bn(HALF, LOCAL).divide(layout)
    assert fedavg(HALF, LOCAL).divide(layout).shared.nbytes == 8 * (36 + 21)


def test_a_parameter_whose_gradient_is_off_is_frozen_without_more_ado(federation: Federation) -> None:
    module = perceptron()
    module[0].weight.requires_grad_(False)
    layouts = Sharing().divide(Layout.of(module))
    assert [entry.name for entry in layouts.frozen.entries] == ["0.weight"]
    assert layouts.shared.nbytes == 4 * (6 + 18 + 3)


def test_fused_updates_refuse_a_partly_trained_model() -> None:
    module = perceptron()
    freeze(module, ["0.weight", "0.bias"])
    local = replace(LOCAL, compute=Compute("fused"))
    with pytest.raises(InputError, match="no stack of linear layers"):
        choose(local, module, torch.zeros(4), "cpu", 1)
    assert choose(LOCAL, module, torch.zeros(4), "cpu", 1).execution == "sequential"
