"""Memory of stacked models."""

import gc
from weakref import ref

import numpy as np
import torch

from algorithms import Compute, Layout, Local, Resident, Sharing, trainer
from algorithms.training.work import Work
from tests.kit.stacked import seeded


def test_models_go_with_their_trainer_and_wait_for_no_search_for_garbage() -> None:
    module = seeded("batch_norm")
    resident = Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4), lanes=2)
    work = Work(torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64), [np.arange(4)])
    made = trainer(resident, Compute("vectorised"))
    made.train(Local(lr=0.1), [work, work], 0.1)
    gone = [ref(made), ref(resident), ref(module)]
    gc.disable()
    try:
        del made, resident, module
        assert [each() for each in gone] == [None] * 3
    finally:
        gc.enable()
