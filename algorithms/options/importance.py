"""Importance sampling: draw clients in proportion to their squared gradient norms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require, require_one
from algorithms.core.state import State
from algorithms.parts.option import Conflict, Draft, Option
from algorithms.parts.received import Received

ScoredBy = Literal["batches", "samples"]


@dataclass(frozen=True)
class Importance(Option):
    """Chances p_k of the clients, moved by the scores of their updates: p_k <- (1 - gamma) p_k + gamma score_k.

    Args:
        gamma: in (0, 1].
        per: terms of a score, the mean squared gradient norm: mini-"batches" or "samples".
        start: p_k before the first round: the client's "score" under the initial model, or 1 ("equal").

    Paper: RADFed, section III-B; Algorithm 2 prints the norm of single samples.

    Deviations: the paper does not define the initial p_k. With batch norm, a score under the initial model normalises
    by its initial statistics. A client update without a step scores 0. A client with chance 0 is drawn only if all
    clients are drawn, or if no chance is above 0. A score that is not finite leaves p_k unchanged. Clients that join
    later are scored with all others.
    """

    gamma: float = 0.9
    per: ScoredBy = "batches"
    start: Literal["score", "equal"] = "score"

    name: ClassVar[str] = "importance"
    draws_cohort: ClassVar[bool] = True
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            *("virtual time of the devices", 'start = "score"'),
            "not be used together, because absent clients cannot be scored",
            'set algorithm.start = "equal"',
        ),
    )

    @property
    def settings(self) -> Mapping[str, str]:
        return {'start = "score"': 'algorithm.start = "score"'} if self.start == "score" else {}

    def __post_init__(self) -> None:
        require(0 < self.gamma <= 1, "algorithm.gamma", self.gamma, "in (0, 1]", "set algorithm.gamma = 0.9")
        require_one("algorithm.per", self.per, ("batches", "samples"), 'set algorithm.per = "batches"')
        require_one("algorithm.start", self.start, ("score", "equal"), 'set algorithm.start = "score"')

    @property
    def key(self) -> str:
        """Name of the score in a report."""
        return "score" if self.per == "batches" else "score_per_sample"

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries read in a report beside those that every report has."""
        return (self.key,)

    def attend(self, draft: Draft) -> Draft:
        p, scored = draft.state.of(self.name).get("p"), draft.clients[:0]
        if p is None:
            p, scored = self._initial(draft), draft.fleet.census.clients if self.start == "score" else scored
        places = np.searchsorted(draft.fleet.census.clients, draft.clients)
        return replace(draft, weights=p[places]).noting(self.name, (p, scored))

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        from algorithms.options.scores import scored_by

        p, scored = draft.notes[self.name]
        rows = received.rows
        scores = np.where(rows.column("steps") > 0, rows.column(self.key), np.where(rows.finite, 0.0, np.nan))
        clients, scores = rows.clients[np.isfinite(scores)], scores[np.isfinite(scores)]
        moved, places = p.copy(), np.searchsorted(draft.fleet.census.clients, clients)
        moved[places] = (1 - self.gamma) * p[places] + self.gamma * scores
        return scored_by(draft, scored, state).keeping(self.name, {"p": moved})

    def _initial(self, draft: Draft) -> NDArray[np.float64]:
        """Return the clients' chances before the first round, [K], in the census' order."""
        from algorithms.core.fleet import blocks_over
        from algorithms.options.scores import scores_of
        from algorithms.parts.cohort import client_updates

        census = draft.fleet.census
        if self.start == "equal":
            return (census.samples > 0).astype(np.float64)
        updates = replace(client_updates(draft), round_number=0, dispatches=0)
        found = scores_of(draft, updates, self.key, blocks_over(census.clients, draft.fleet))
        return np.where(np.isfinite(found), found, 0.0)
