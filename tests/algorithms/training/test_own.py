"""Client updates of a user's own: the module that they get."""

from typing import Any

import numpy as np
import torch

from algorithms import Compute, Layout, Local, Resident, Sharing, trainer
from algorithms.core.batch_norm import freeze
from algorithms.training.own_update import OwnUpdate
from algorithms.training.work import Work
from tests.kit.federation import perceptron


def test_frozen_batch_norm_normalises_by_its_own_statistics() -> None:
    module, seen = perceptron(norm=True), list[tuple[bool, ...]]()
    freeze(module, {name for name in module.state_dict() if name.startswith("1.")})

    def train(model: Any, batches: Any, context: Any) -> dict[str, float]:
        seen.append((model.training, *(layer.training for layer in model)))
        return {"loss": 0.0}

    update = OwnUpdate("mine:train", train)
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4))
    work = Work(torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64), [np.arange(4)], torch.Generator())
    trainer(resident, Compute("sequential"), update).train(Local(update=update), [work], 0.1)
    assert seen == [(True, True, False, True, True)]
