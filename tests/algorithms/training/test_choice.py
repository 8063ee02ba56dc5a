"""The choice of an execution: a static rule, lanes, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Compute,
    InputError,
    Layout,
    Local,
    Participation,
    Resident,
    Sharing,
    begin,
    choose,
    fedavg,
    lanes_of,
    next_round,
    trainer,
)
from tests.kit.federation import clients, perceptron
from tests.kit.stacked import seeded

CHOICES: list[tuple[str, dict[str, Any], str, int, str]] = [
    ("linear", {}, "cpu", 1, "fused"),
    ("linear", {}, "cuda", 50, "fused"),
    ("linear", {"clip": 1.0}, "cpu", 1, "sequential"),
    ("linear", {"momentum": 0.9, "nesterov": True}, "cpu", 1, "sequential"),
    ("linear", {"compute": Compute(precision="bf16")}, "cpu", 20, "sequential"),
    ("linear", {"compute": Compute(compile=True)}, "cpu", 20, "sequential"),
    ("batch_norm", {}, "cpu", 7, "sequential"),
    ("batch_norm", {}, "cpu", 8, "vectorised"),
    ("batch_norm", {}, "cuda", 1, "vectorised"),
    ("convolution", {}, "cpu", 50, "sequential"),
    ("convolution", {}, "cuda", 50, "vectorised"),
    ("convolution", {"compute": Compute("sequential")}, "cuda", 50, "sequential"),
]


@pytest.mark.parametrize(("model", "local", "device", "block", "expected"), CHOICES)
def test_auto_is_a_static_rule(model: str, local: dict[str, Any], device: str, block: int, expected: str) -> None:
    assert choose(Local(**local), seeded(model), torch.zeros(4), device, block).execution == expected


def test_lanes_follow_the_configuration_alone() -> None:
    small, large = Layout.of(nn.Linear(4, 3)), Layout.of(nn.Linear(784, 300))
    assert [lanes_of(Compute("fused"), small, "cpu", block) for block in (1, 5, 1000)] == [1, 5, 64]
    assert [lanes_of(Compute("fused"), large, "cpu", block) for block in (1, 5, 1000)] == [1, 4, 4]
    assert lanes_of(Compute("vectorised"), large, "cpu", 1000) == 64
    assert lanes_of(Compute("fused"), large, "cuda", 1000) == 1000
    assert lanes_of(Compute("sequential"), small, "cuda", 1000) == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"execution": "stacked"}, "local.execution"),
    ({"precision": "fp16"}, "local.precision"),
    ({"execution": "fused", "precision": "bf16"}, "bf16"),
    ({"execution": "vectorised", "compile": True}, "local.compile"),
    ({"execution": "fused", "channels_last": True}, "local.channels_last"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_excludes_each_other_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        Compute(**wrong)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("model", ["batch_norm", "group_norm", "convolution"])
def test_fused_wants_a_stack_of_linear_layers(model: str) -> None:
    with pytest.raises(InputError, match="no stack of linear layers"):
        choose(Local(compute=Compute("fused")), seeded(model), torch.zeros(4), "cpu", 4)


def test_tied_layers_are_not_fused() -> None:
    tied = nn.Linear(4, 4)
    module = nn.Sequential(tied, nn.ReLU(), tied)
    assert choose(Local(), module, torch.zeros(4), "cpu", 1).execution == "sequential"


def test_a_frozen_layer_is_not_fused() -> None:
    module = perceptron()
    module[0].weight.requires_grad_(False)
    assert choose(Local(), module, torch.zeros(4), "cpu", 1).execution == "sequential"


def test_a_single_layer_is_fused() -> None:
    module = nn.Linear(4, 3)
    assert choose(Local(), module, torch.zeros(4), "cpu", 1).execution == "fused"
    trainer(Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4)), Compute("fused"))


def test_a_layer_with_hooks_is_not_fused() -> None:
    module = nn.Linear(4, 3)
    module.register_forward_pre_hook(lambda layer, inputs: None)
    assert choose(Local(), module, torch.zeros(4), "cpu", 1).execution == "sequential"


def hooked() -> nn.Sequential:
    """A perceptron whose first weight gets no gradient."""
    module = perceptron()
    module[0].weight.register_hook(torch.zeros_like)
    return module


def backward_hooked() -> nn.Sequential:
    """A perceptron whose last layer halves the gradient of its outputs."""
    module = perceptron()
    module[2].register_full_backward_pre_hook(lambda layer, gradients: (gradients[0] / 2,))
    return module


@pytest.mark.parametrize("make", [hooked, backward_hooked])
def test_hooks_on_gradients_are_called(make: Callable[[], nn.Sequential], federation: Callable[..., Any]) -> None:
    chosen = choose(Local(), make(), torch.zeros(4), "cpu", 50)
    assert chosen.execution == "sequential"
    for execution in ("fused", "low-rank", "vectorised"):
        with pytest.raises(InputError, match="must be sequential"):
            choose(Local(compute=Compute(execution)), make(), torch.zeros(4), "cpu", 50)
    found = []
    for module in (make(), perceptron()):
        algorithm = fedavg(Participation(), Local()).computed(chosen)
        fleet = federation(clients((7, 9)), module, algorithm.sharing, 2, chosen)
        after = next_round(begin(perceptron(), fleet, 0), algorithm, fleet).model
        found.append(fleet.layouts.shared.unpack(after)["0.weight"])
    assert not np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], perceptron()[0].weight.detach().numpy()) == (make is hooked)


def test_a_chain_with_a_stage_that_is_not_affine_is_not_fused() -> None:
    for other in (Local(clip=1.0), Local(momentum=0.9, nesterov=True), Local(optimizer="adam")):
        assert not other.arithmetic.is_foldable
        asked = replace(other, compute=Compute("fused"))
        with pytest.raises(InputError, match="need the whole gradient"):
            choose(asked, seeded("linear"), torch.zeros(4), "cpu", 4)
