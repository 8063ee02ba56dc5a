"""Client updates of a user's own: the module that they get."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import Compute, InputError, Layout, Local, Resident, Sharing, trainer
from algorithms.core.batch_norm import freeze
from algorithms.training.own_update import OwnUpdate
from algorithms.training.work import Work
from tests.kit.federation import perceptron


def trained(train: Callable[..., Any], module: Any) -> None:
    """Make one client update of four samples by a user's function."""
    update = OwnUpdate("mine:train", train)
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4))
    work = Work(torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64), [np.arange(4)], torch.Generator())
    trainer(resident, Compute("sequential"), update).train(Local(update=update), [work], 0.1)


def test_frozen_batch_norm_normalises_by_its_own_statistics() -> None:
    module, seen = perceptron(norm=True), list[tuple[bool, ...]]()
    freeze(module, {name for name in module.state_dict() if name.startswith("1.")})

    def train(model: Any, batches: Any, context: Any) -> dict[str, float]:
        seen.append((model.training, *(layer.training for layer in model)))
        return {"loss": 0.0}

    trained(train, module)
    assert seen == [(True, True, False, True, True)]


@pytest.mark.parametrize(
    ("reported", "given"),
    [
        (None, "None"),
        (0.5, "0.5"),
        ({}, "{}"),
        ({"acc": 1.0}, "only 'acc'"),
        ({"acc": 1.0, "f1": 0.5}, "only 'acc', 'f1'"),
    ],
)
def test_numbers_without_a_loss_are_named(reported: Any, given: str) -> None:
    with pytest.raises(InputError, match=rf'such as {{"loss": 0.5}}, and returns {given} \(test_own.py, line \d+\);'):
        trained(lambda *_: reported, perceptron())


class Counting:
    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    def __call__(self, model: Any, batches: Any, context: Any) -> dict[str, float]:
        self.seen[context.client] = self.seen.get(context.client, 0) + 1
        return {"loss": 0.0}


def test_an_update_that_keeps_something_on_itself_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"must keep nothing on itself, and sets 'seen' \(.*\); keep it in context.state, which `personal` "
        r"begins, or make it in `__init__` if it never changes",
    ):
        trained(Counting(), perceptron())
