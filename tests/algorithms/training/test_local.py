import math
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import Census, Compute, InputError, Local, LocalSteps
from algorithms.fedprox import Proximal
from algorithms.training.own_update import OwnUpdate
from tests.kit.federation import perceptron

SGD = [(0, 0, False), (0.9, 0, False), (0, 0.01, False), (0.9, 0.01, False), (0.9, 0, True), (0.5, 0.01, True)]
OPTIMISERS: list[tuple[Local, type[torch.optim.Optimizer], dict[str, Any]]] = [
    *(
        (
            Local(lr=0.05, momentum=momentum, nesterov=nesterov, weight_decay=decay),
            torch.optim.SGD,
            {"momentum": momentum, "weight_decay": decay, "nesterov": nesterov},
        )
        for momentum, decay, nesterov in SGD
    ),
    (
        Local(lr=0.05, optimizer="adam", beta1=0.8, beta2=0.9, eps=1e-6, weight_decay=0.01),
        torch.optim.Adam,
        {"betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.01},
    ),
]


@pytest.mark.parametrize(("local", "kind", "options"), OPTIMISERS)
def test_local_steps_are_torchs(local: Local, kind: type[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    ours, theirs = perceptron(), perceptron()
    steps = LocalSteps(
        local.arithmetic, {n: p.detach().unsqueeze(0) for n, p in ours.named_parameters()}, {}, local.rate(1)
    )
    optimiser = kind(theirs.parameters(), lr=0.05, **options)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        gradients = torch.autograd.grad(ours(x).square().sum(), list(ours.parameters()))
        steps([gradient.unsqueeze(0) for gradient in gradients], slice(0, 1))
        optimiser.zero_grad()
        theirs(x).square().sum().backward()
        optimiser.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        # Adam divides by roots, which torch rounds in another order.
        most = 1e-5 if kind is torch.optim.Adam else 1e-6
        torch.testing.assert_close(a, b, rtol=most, atol=most / 10)


def test_proximal_term_pulls_to_the_received_model() -> None:
    w = torch.tensor([[1.0]])
    steps = LocalSteps(Local(lr=0.5, method=Proximal(2.0)).arithmetic, {"w": w}, {}, 0.5)
    steps([torch.tensor([[1.0]])], slice(0, 1))
    assert w.item() == 0.5  # 1 - 0.5 (1 + 2 (1 - 1))
    steps([torch.tensor([[1.0]])], slice(0, 1))
    assert w.item() == 0.5  # 0.5 - 0.5 (1 + 2 (0.5 - 1))


def test_local_steps_leave_gradients_alone() -> None:
    g = torch.ones(1).expand(1, 3)
    arithmetic = Local(weight_decay=0.1, method=Proximal(0.1), momentum=0.5).arithmetic
    steps = LocalSteps(arithmetic, {"w": torch.ones(1, 3)}, {}, 0.1)
    steps([g], slice(0, 1))
    assert g.tolist() == [[1, 1, 1]]


def test_epochs_pass_over_every_row_once_each() -> None:
    batches = list(Local(epochs=2, batch_size=3).passes(8, np.random.default_rng(0)))
    assert [len(rows) for rows in batches] == [3, 3, 2, 3, 3, 2]
    assert sorted(np.concatenate(batches[:3])) == list(range(8))
    assert not np.array_equal(batches[0], batches[3])


def test_steps_go_on_into_the_next_pass() -> None:
    assert [len(r) for r in Local(steps=4, batch_size=3).passes(8, np.random.default_rng(0))] == [3, 3, 2, 3]


def test_full_batches_and_no_samples() -> None:
    rng = np.random.default_rng(0)
    assert [len(r) for r in Local(epochs=2, batch_size="full").passes(5, rng)] == [5, 5]
    assert list(Local(epochs=2, batch_size="full").passes(0, rng)) == []
    assert list(Local(steps=3).passes(0, rng)) == []


def test_lr_decays_a_round() -> None:
    local = Local(lr=1, lr_decay=0.5)
    assert [local.rate(number) for number in (1, 2, 3)] == [1, 0.5, 0.25]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": -0.1},
        {"lr": 0},
        {"lr": math.nan},
        {"lr": math.inf},
        {"epochs": 0},
        {"epochs": 1, "steps": 1},
        {"steps": 0},
        {"batch_size": 0},
        {"batch_size": "half"},
        {"momentum": 1.0},
        {"nesterov": True},
        {"momentum": math.nan},
        {"weight_decay": -1},
        {"lr_decay": 0},
    ],
)
def test_wrong_numbers_are_refused_in_one_line(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"must be .*; ") as error:
        Local(**wrong)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_lanes_that_have_taken_fewer_steps_are_corrected_as_such() -> None:
    local, g = Local(lr=1.0, optimizer="adam"), torch.ones(1, 1)
    both, alone = torch.zeros(2, 1), torch.zeros(1, 1)
    steps, other = (LocalSteps(local.arithmetic, {"w": w}, {}, 1.0) for w in (both, alone))
    steps([g.expand(2, 1)], slice(0, 2))
    steps([g], slice(0, 1))
    steps([2 * g], slice(1, 2))
    other([g], slice(0, 1))
    other([2 * g], slice(0, 1))
    assert both[1].item() == alone[0].item() != both[0].item()


def test_rates_fall_at_shares_of_the_rounds() -> None:
    local = Local(lr=1.0, lr_decay=0.1, lr_decay_at=(0.5, 0.75))
    assert [local.rate(number, 8) for number in range(1, 9)] == pytest.approx([1] * 4 + [0.1] * 2 + [0.01] * 2)
    assert [local.rate(number, 3) for number in range(1, 4)] == pytest.approx([1, 0.1, 0.01])
    with pytest.raises(InputError, match="the number of rounds is unknown"):
        local.rate(1)


def test_as_many_steps_as_the_largest_client() -> None:
    two = Census(np.array([0, 1]), np.array([3, 9]))
    local = Local(steps="largest", epochs=2, batch_size=4)
    assert local.fitted(two).steps == 6 and local.fitted(two).epochs is None
    assert [len(r) for r in local.fitted(two).passes(5, np.random.default_rng(0))] == [4, 1] * 3
    assert Local(steps="largest", batch_size="full").fitted(two).steps == 1
    assert Local(steps="largest").fitted(Census(np.array([0]), np.array([0]))).steps == 1
    assert Local(epochs=3).fitted(two) == Local(epochs=3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 1, "batches": 1}, "local.epochs, local.steps, local.batches"),
        ({"batches": 0}, "local.batches = 0"),
        ({"steps": "most"}, 'local.steps = .most.: must be a whole number >= 1, or "largest"'),
        (
            {"optimizer": "rprop", "weight_decay": 0.1},
            "local.weight_decay = 0.1: must be 0 with optimizer = 'rprop', which has none; remove it",
        ),
        (
            {"update": OwnUpdate("mine:train", lambda *_: {}), "compute": Compute(channels_last=True)},
            "local.channels_last = True: must be left out with local.update = 'mine:train', .*; remove it",
        ),
        (
            {"update": OwnUpdate("mine:train", lambda *_: {}), "compute": Compute(precision="bf16")},
            "local.precision = 'bf16': must be fp32 or fp64 with local.update; remove it",
        ),
        ({"optimizer": "lamb"}, "local.optimizer = 'lamb': must be 'sgd' or 'adam'"),
        ({"optimizer": "adam", "momentum": 0.9}, "local.momentum = 0.9: must be 0 with optimizer = .adam."),
        ({"beta1": 0.5}, "local.beta1 = 0.5: must be 0.9 with optimizer = 'sgd'; remove it, or set local.optimizer"),
        (
            {"optimizer": "adamw", "eps": 1e-6},
            "eps = 1e-06: must be 1e-08 with optimizer = 'adamw'; set local.optimizer_options",
        ),
        ({"beta2": 1.0}, "local.beta2 = 1.0"),
        ({"eps": 0.0}, "local.eps = 0.0"),
        ({"lr_decay": 0.1, "lr_decay_at": (0.5, 0.5)}, "local.lr_decay_at = .* ascending"),
        ({"lr_decay_at": (0.5,)}, "local.lr_decay = 1.0: must be below 1 with lr_decay_at"),
        ({"affine": "personal"}, "local.affine = 'personal'"),
    ],
)
def test_locals_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Local(**values)
