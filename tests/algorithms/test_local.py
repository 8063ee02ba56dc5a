import math

import numpy as np
import pytest
import torch

from algorithms import InputError, Local
from algorithms.update import Update
from tests.algorithms.conftest import perceptron


@pytest.mark.parametrize(
    ("momentum", "decay", "nesterov"),
    [(0, 0, False), (0.9, 0, False), (0, 0.01, False), (0.9, 0.01, False), (0.9, 0, True), (0.5, 0.01, True)],
)
def test_update_is_torchs_sgd(momentum: float, decay: float, nesterov: bool) -> None:
    ours, theirs = perceptron(), perceptron()
    local = Local(lr=0.05, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    update = Update(local, {n: p.detach().unsqueeze(0) for n, p in ours.named_parameters()}, {}, local.rate(1))
    optimiser = torch.optim.SGD(theirs.parameters(), 0.05, momentum, weight_decay=decay, nesterov=nesterov)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(5):
        gradients = torch.autograd.grad(ours(x).square().sum(), list(ours.parameters()))
        update([gradient.unsqueeze(0) for gradient in gradients], slice(0, 1))
        optimiser.zero_grad()
        theirs(x).square().sum().backward()
        optimiser.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_proximal_term_pulls_to_the_received_model() -> None:
    w = torch.tensor([[1.0]])
    update = Update(Local(lr=0.5, proximal=2.0), {"w": w}, {}, 0.5)
    update([torch.tensor([[1.0]])], slice(0, 1))
    assert w.item() == 0.5  # 1 - 0.5 (1 + 2 (1 - 1))
    update([torch.tensor([[1.0]])], slice(0, 1))
    assert w.item() == 0.5  # 0.5 - 0.5 (1 + 2 (0.5 - 1))


def test_update_leaves_gradients_alone() -> None:
    g = torch.ones(1).expand(1, 3)
    update = Update(Local(weight_decay=0.1, proximal=0.1, momentum=0.5), {"w": torch.ones(1, 3)}, {}, 0.1)
    update([g], slice(0, 1))
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
        {"proximal": math.inf},
        {"lr_decay": 0},
    ],
)
def test_wrong_numbers_are_refused_in_one_line(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"must be .*; ") as error:
        Local(**wrong)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
