"""Scores of clients under one model, from which importance sampling starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from algorithms.engine.client_update import NO_INPUT, ClientUpdates
from algorithms.engine.fleet import Block, Function, Output, Worker
from algorithms.training.reports import REPORTS, FinishedUpdate


@dataclass(frozen=True)
class Scores(Function):
    """Scores of a block's clients under a model that is not trained.

    Args:
        updates: source of the batches, those of a round before the first.
        key: name of the score.
    """

    updates: ClientUpdates
    key: str

    def join(self, left: list[float], right: list[float]) -> list[float]:
        return left + right

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, personal = values[0]
        worker.resident.load(model, personal)
        scores = []
        count = len(block.clients)
        for work in self.updates.works(worker, block.clients, [NO_INPUT] * count, [personal] * count):
            finished = FinishedUpdate(worker, worker.trainer, self.updates.local, work, 0, model, personal)
            scores.append(REPORTS[self.key](finished) if work.batches else 0.0)
        return Output(scores)
