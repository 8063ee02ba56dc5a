"""Scoring of fine-tuned copies of clients' models, which leave no trace in the run."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms import Block, Worker
from algorithms.parts.client_update import NO_INPUT, ClientUpdates
from raysim.measures.scoring import Evaluate, Pairs


@dataclass(frozen=True, kw_only=True)
class Finetuned(Evaluate):
    """Function of a fleet: fine-tune a copy of each client's model on its training part, then score it.

    Args:
        updates: client updates that fine-tune.
    """

    updates: ClientUpdates

    def _loaded(
        self, worker: Worker, block: Block, values: Pairs, x: torch.Tensor, counts: NDArray[np.int64]
    ) -> Iterator[slice]:
        for first in range(0, len(block.clients), worker.trainer.lanes):
            clients = block.clients[first : first + worker.trainer.lanes]
            locations = block.inputs[first : first + len(clients)] or [None] * len(clients)
            models, personal = zip(*(self._model(worker, values, each) for each in locations), strict=True)
            inputs = [NO_INPUT] * len(clients)
            trainer = worker.trainer
            trained = self.updates.train(worker, trainer, clients, inputs, models, personal)
            tuned = [(trainer.shared(lane).copy(), trainer.personal(lane).copy()) for lane in trained.lanes]
            for owner, (model, own) in enumerate(tuned, first):
                worker.resident.load(model, own)
                yield slice(owner, owner + 1)
