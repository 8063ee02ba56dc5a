"""Importance sampling: clients are drawn in proportion to how large their gradients have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.blocks import blocks_over
from algorithms.engine.client_update import ClientInput, ClientUpdates, UpdateRow
from algorithms.engine.clients import Census
from algorithms.engine.errors import require
from algorithms.engine.fleet import Block, Fleet, Function, Output, Reference, Worker, map_joined
from algorithms.training.after import REPORTS, After

Scored = Literal["batches", "samples"]


@dataclass(frozen=True)
class Importance:
    """A chance p_k for each client, which its visits' scores move: p_k <- (1 - gamma) p_k + gamma score_k.

    Args:
        gamma: in (0, 1].
        per: what a score is the mean squared gradient norm of: mini-"batches" or "samples".
        start: p_k before the first round: the client's "score" under the initial model, or "equal" ones, 1.

    Paper: RADFed, section III-B; Algorithm 2 prints the norm of single samples.

    Deviations: the paper does not say how p_k begins; with batch norm a score under the initial model normalises by its
    initial statistics. A visit that takes no step counts as a score of 0; a client whose chance is 0 is drawn only
    where all are, or nobody has any. A score that is not finite leaves p_k as it was. Clients that join later are
    scored with all others.
    """

    gamma: float = 0.5
    per: Scored = "batches"
    start: Literal["score", "equal"] = "score"

    def __post_init__(self) -> None:
        require(0 < self.gamma <= 1, "algorithm.gamma", self.gamma, "in (0, 1]", "set algorithm.gamma = 0.5")
        known = self.per in ("batches", "samples")
        require(known, "algorithm.per", self.per, '"batches" or "samples"', 'set algorithm.per = "batches"')
        known = self.start in ("score", "equal")
        require(known, "algorithm.start", self.start, '"score" or "equal"', 'set algorithm.start = "score"')

    @property
    def key(self) -> str:
        """The score's name in a report."""
        return "score" if self.per == "batches" else "score_per_sample"

    @property
    def needs(self) -> tuple[str, ...]:
        """What it reads in a report."""
        return (self.key,)

    def initial(self, updates: ClientUpdates, fleet: Fleet, start: Reference) -> NDArray[np.float64]:
        """The clients' chances before the first round [K], in the census' order."""
        clients, samples = fleet.census.clients, fleet.census.samples
        if self.start == "equal":
            return (samples > 0).astype(np.float64)
        blocks = blocks_over(clients, fleet)
        function = Scores(replace(updates, round_number=0), self.key)
        found = np.array(map_joined(fleet, function, blocks, [start])[0])
        return np.where(np.isfinite(found), found, 0.0)

    def moved(self, p: NDArray[np.float64], census: Census, rows: Sequence[UpdateRow]) -> NDArray[np.float64]:
        """The chances after a round's visits."""
        p = p.copy()
        for row in rows:
            score = row.report.get(self.key, 0.0)
            if isfinite(score):
                place = np.searchsorted(census.clients, row.client)
                p[place] = (1 - self.gamma) * p[place] + self.gamma * score
        return p


@dataclass(frozen=True)
class Scores(Function):
    """The score of each client of a block, under a model that it does not train.

    Args:
        visits: give the batches; they are those of a round before the first.
        key: the score's name.
    """

    updates: ClientUpdates
    key: str

    def join(self, left: list[float], right: list[float]) -> list[float]:
        return left + right

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, personal = values[0]
        worker.resident.load(model, personal)
        scores = []
        for client in block.clients:
            work = self.updates.work(worker, client, personal, ClientInput(None, 0.0))
            after = After(worker, self.updates.local, work, 0, model, personal)
            scores.append(REPORTS[self.key](after) if work.batches else 0.0)
        return Output(scores)
