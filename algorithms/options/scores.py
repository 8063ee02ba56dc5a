"""Scores of clients under one model, by which clients are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from algorithms.core.fleet import Block, Function, Output
from algorithms.parts.client_update import NO_INPUT, ClientUpdates
from algorithms.training.reports import REPORTS, FinishedUpdate
from algorithms.training.worker import Worker


@dataclass(frozen=True)
class Scores(Function):
    """Scores of a block's clients under a model that is not trained.

    Args:
        updates: source of the batches.
        key: name of the score.
        nothing: score of a client without a batch.
    """

    updates: ClientUpdates
    key: str
    nothing: float = 0.0

    def join(self, left: list[float], right: list[float]) -> list[float]:
        return left + right

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, newcomer = values[0]
        inputs = block.inputs or [NO_INPUT] * len(block.clients)
        personal = [worker.personal.read(each.personal) if each.personal else newcomer for each in inputs]
        scores = []
        for own, work in zip(personal, self.updates.works(worker, block.clients, inputs, personal), strict=True):
            worker.resident.load(model, own)
            finished = FinishedUpdate(worker, worker.trainer, self.updates.local, work, 0, model, own)
            scores.append(REPORTS[self.key](finished) if work.batches else self.nothing)
        return Output(scores)
