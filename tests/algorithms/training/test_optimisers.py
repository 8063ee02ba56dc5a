"""Client updates with PyTorch's optimisers, losses of numbers and schedules: equal to a plain loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import cos, pi
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Compute,
    InputError,
    Local,
    Participation,
    Purpose,
    Sharing,
    choose,
    fedavg,
    generator,
)
from algorithms.training.local import Execution
from algorithms.training.loss import BinaryCrossEntropy, CrossEntropy, Huber, Loss, MeanSquaredError, OwnLoss
from algorithms.training.optimiser_names import OPTIMISERS
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron
from tests.kit.reference import DATA, agree, mean
from tests.kit.rounds import simulate

NUMBERS = [(x, torch.from_numpy(np.random.default_rng(len(y)).uniform(0, 1, (len(y), 3)))) for x, y in DATA]
"""The clients with three numbers a sample."""


def cox(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the negative partial log-likelihood of a batch, by Breslow; `y` has times and events."""
    order = y[:, 0].argsort(descending=True)
    risk, event = outputs[order, 0], y[order, 1]
    return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum().clamp(min=1)


STEP = {"lr": 0.01, "batch_size": 4}
STACKED: tuple[Execution, ...] = ("sequential", "vectorised")


def plain(
    local: Local, data: Any, optimiser: Callable[..., torch.optim.Optimizer], loss: Any
) -> dict[str, torch.Tensor]:
    """FedAvg for two rounds by hand."""
    module = perceptron().double()
    for number in (1, 2):
        models = []
        for client, (x, y) in enumerate(data):
            model = perceptron().double()
            model.load_state_dict(module.state_dict())
            batches = list(local.passes(len(y), generator(0, Purpose.BATCHES, number, client)))
            step = optimiser(model.parameters(), lr=local.lr)
            for place, rows in enumerate(batches):
                if local.lr_schedule == "cosine":
                    step.param_groups[0]["lr"] = local.lr * (1 + cos(pi * place / len(batches))) / 2
                step.zero_grad()
                loss(model(x.double()[rows]), y[rows]).backward()
                step.step()
            models.append(model)
        module.load_state_dict(mean(models, [len(y) for _, y in data]))
    return module.state_dict()


def check(
    federation: Callable[..., InlineFleet],
    local: Local,
    data: Any,
    optimiser: Callable[..., torch.optim.Optimizer],
    loss: Any,
    executions: tuple[Execution, ...] = STACKED,
) -> None:
    expected = plain(local, data, optimiser, loss)
    for execution in executions:
        compute = Compute(execution, precision="fp64")
        algorithm: Algorithm = fedavg(Participation(), replace(local, compute=compute))
        fleet = federation(data, perceptron().double(), algorithm.sharing, block=3, lanes=3, compute=compute)
        agree(simulate(algorithm, fleet, perceptron().double(), 2), fleet, expected)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_each_optimiser_equals_a_plain_loop(name: str, federation: Callable[..., InlineFleet]) -> None:
    """Clients of 4 to 23 samples and batches of four: lanes leave the stack, and come together again."""
    given = {"weight_decay": 0.1} if name in ("sgd", "adamw", "rmsprop") else {}
    options = {"rmsprop": {"alpha": 0.9, "centered": True}, "adamax": {"betas": [0.8, 0.9]}}.get(name, {})
    local = Local(optimizer=name, optimizer_options=options, **given, **STEP)  # type: ignore[arg-type]
    made = getattr(torch.optim, OPTIMISERS[name])

    def optimiser(parameters: Any, lr: float) -> torch.optim.Optimizer:
        tuples = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        return made(parameters, lr=lr, **given, **tuples)  # type: ignore[no-any-return]

    check(federation, local, DATA, optimiser, nn.CrossEntropyLoss())


def doubling(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return four squared errors, after changes of both arguments in place."""
    return outputs.mul_(2).sub_(y.mul_(2)).square().sum(1)


@pytest.mark.parametrize(
    ("loss", "data", "reference"),
    [
        (MeanSquaredError(), NUMBERS, nn.MSELoss()),
        (Huber(0.3), NUMBERS, nn.HuberLoss(delta=0.3)),
        (BinaryCrossEntropy(2.0), NUMBERS, nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0).double())),
        (CrossEntropy(0.2), DATA, nn.CrossEntropyLoss(label_smoothing=0.2)),
        (
            CrossEntropy(0.1, (1.0, 2.0, 0.5)),
            DATA,
            lambda o, y: nn.functional.cross_entropy(
                o, y, o.new_tensor([1.0, 2.0, 0.5]), reduction="none", label_smoothing=0.1
            ).mean(),
        ),
        (OwnLoss("mine", lambda o, y: (o - y).abs().amax(1)), NUMBERS, lambda o, y: (o - y).abs().amax(1).mean()),
        (OwnLoss("mine", cox), NUMBERS, cox),
        (OwnLoss("mine", doubling), NUMBERS, lambda o, y: 4 * (o - y).square().sum(1).mean()),
    ],
    ids=["mse", "huber", "binary", "smoothed", "weighted", "own", "batch", "in place"],
)
def test_each_loss_equals_a_plain_loop(
    loss: Loss, data: Any, reference: Any, federation: Callable[..., InlineFleet]
) -> None:
    check(federation, Local(loss=loss, **STEP), data, torch.optim.SGD, reference)  # type: ignore[arg-type]


def test_adam_corrects_by_the_steps_of_each_client(federation: Callable[..., InlineFleet]) -> None:
    """Moments and steps outlast a client update, and clients that train together have taken different numbers."""
    local = Local(lr=0.01, batch_size=4, optimizer="adam")
    sharing = Sharing(slots=dict.fromkeys(("first", "second", "steps"), "personal"))
    found = []
    for execution, lanes in (("sequential", 1), ("vectorised", 3)):
        compute = Compute(execution, "fp64")  # type: ignore[arg-type]
        algorithm = replace(fedavg(Participation(cohort=3), local), sharing=sharing).computed(compute)
        fleet = federation(clients((8, 4, 8, 12, 4)), perceptron().double(), algorithm.sharing, 3, compute, lanes)
        found.append(simulate(algorithm, fleet, perceptron().double(), 4).model.floats)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_schedule_equals_a_plain_loop(optimizer: str, federation: Callable[..., InlineFleet]) -> None:
    local = Local(optimizer=optimizer, lr_schedule="cosine", **STEP)  # type: ignore[arg-type]
    # AdamW's own default is 0.01.
    made = partial(getattr(torch.optim, OPTIMISERS[optimizer]), weight_decay=0.0)
    check(federation, local, DATA, made, nn.CrossEntropyLoss(), ("sequential",))


def test_linear_rates_fall_to_0() -> None:
    assert [Local(lr_schedule="linear").factor(t, 4) for t in range(5)] == [1, 0.75, 0.5, 0.25, 0]


@pytest.mark.parametrize(
    "local", [Local(loss=CrossEntropy(0.1)), Local(lr_schedule="cosine"), Local(optimizer="adamw")]
)
def test_only_plain_steps_have_gradients_by_hand(local: Local) -> None:
    sample = torch.zeros(4)
    assert choose(local, perceptron(), sample, "cpu", 8).execution in ("vectorised", "sequential")
    with pytest.raises(InputError, match="must be sequential or vectorised"):
        choose(replace(local, compute=Compute("fused")), perceptron(), sample, "cpu", 8)


def test_a_loss_that_cannot_be_mapped_is_trained_one_by_one() -> None:
    own = OwnLoss("mine", lambda o, y: torch.tensor([float(each.sum()) for each in o]))
    label = torch.zeros(3)
    assert choose(Local(loss=own), perceptron(), torch.zeros(4), "cpu", 64, label=label).execution == "sequential"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"optimizer": "adamw", "optimizer_options": {"momentum": 0.9}},
            r"options = \{'momentum': 0.9\} for torch.optim.AdamW: must be its arguments",
        ),
        ({"optimizer": "rmsprop", "optimizer_options": {"alpha": -1.0}}, "torch.optim.RMSprop: must be its arguments"),
        ({"optimizer": "rmsprop", "optimizer_options": {"lr": 1.0}}, "must be without keys of .local.; remove lr"),
        ({"optimizer": "sgd", "optimizer_options": {"dampening": 0.1}}, "must be empty with optimizer = 'sgd'"),
        ({"optimizer": "adamw", "momentum": 0.9}, "momentum = 0.9: must be 0 with optimizer = 'adamw'"),
        ({"optimizer": "lbfgs"}, "optimizer = 'lbfgs': must be 'sgd' or 'adam'"),
        ({"lr_schedule": "step"}, "lr_schedule = 'step': must be 'constant' or"),
    ],
)
def test_wrong_optimisers_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Local(**wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CrossEntropy(label_smoothing=2.0), "label_smoothing = 2.0: must be in"),
        (lambda: CrossEntropy(class_weights=(1.0, -1.0)), "class_weights"),
        (lambda: Huber(delta=0.0), "delta = 0.0"),
        (lambda: BinaryCrossEntropy(positive_weight=-1.0), "positive_weight"),
        (lambda: CrossEntropy(class_weights=(1.0,)).check("class", 3), "a number for each of 3 classes"),
        (lambda: CrossEntropy().check("numbers", 3), "labels that are classes"),
        (lambda: Huber().check("class", 3), "labels that are numbers"),
        (lambda: OwnLoss("mine:f", lambda o, y: o).mean(torch.zeros(2, 3), torch.zeros(2)), "must give a loss"),
        (
            lambda: OwnLoss("mine:f", lambda o, y: (o > 0).sum()).mean(torch.zeros(2, 3), torch.zeros(2)),
            r"each sample, \(2,\), or one for the whole batch, \(\), and gives \(\) of torch.int64",
        ),
    ],
)
def test_wrong_losses_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_loss_that_keeps_something_on_itself_is_refused() -> None:
    class Warmup:
        calls = 0

        def __call__(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return outputs.sum(1) / self.calls

    with pytest.raises(InputError, match="must keep nothing on itself, and sets 'calls'"):
        OwnLoss("mine:Warmup", Warmup()).is_of_batches(torch.zeros(2, 3), torch.zeros(2))
