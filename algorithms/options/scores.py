"""Scores of clients under one model, by which clients are sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Block, Function, Output, map_joined
from algorithms.core.state import State
from algorithms.parts.client_update import NO_INPUT, ClientUpdates
from algorithms.parts.option import Draft
from algorithms.training.reports import REPORTS, FinishedUpdate
from algorithms.training.worker import Worker

SCORE_BYTES = 8
"""Bytes of a client's score on its way to the server."""


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


def scores_of(
    draft: Draft, updates: ClientUpdates, key: str, blocks: Sequence[Block], nothing: float = 0.0
) -> NDArray[np.float64]:
    """Return the scores of the clients of some blocks under the global model, [n]; arguments as in `Scores`."""
    found = map_joined(draft.fleet, Scores(updates, key, nothing), blocks, [draft.start])[0] if blocks else []
    return np.array(found, float)


def scored_by(draft: Draft, clients: NDArray[np.int64], state: State) -> State:
    """Return the state with the cost of scores: each client received the model, passed its samples, sent a number."""
    report = state.report
    if report is None or not len(clients):
        return state
    newcomer, fleet = draft.algorithm.sharing.newcomer, draft.fleet
    average = fleet.layouts.personal.nbytes if newcomer == "average" else 0
    new = [draft.state.personal.latest(client, draft.state.round) is None for client in clients.tolist()]
    down = [draft.algorithm.model_bytes(fleet.layouts) + average * each for each in new]
    seconds = 0.0
    if "simulated_seconds" in report.measures and fleet.census.devices is not None:
        passes = zip(clients.tolist(), fleet.census.of(clients).tolist(), down, repeat(SCORE_BYTES), strict=False)
        seconds = fleet.census.devices.round(state.seed, passes)
    return replace(state, report=report.adding(SCORE_BYTES * len(clients), sum(down), 1, seconds))
