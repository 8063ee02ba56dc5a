"""Importance sampling: draw clients in proportion to their squared gradient norms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require

if TYPE_CHECKING:
    from algorithms.core.clients import Census
    from algorithms.core.fleet import Fleet, Reference
    from algorithms.core.rows import UpdateRows
    from algorithms.parts.client_update import ClientUpdates

ScoredBy = Literal["batches", "samples"]


@dataclass(frozen=True)
class Importance:
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

    def __post_init__(self) -> None:
        require(0 < self.gamma <= 1, "algorithm.gamma", self.gamma, "in (0, 1]", "set algorithm.gamma = 0.9")
        known = self.per in ("batches", "samples")
        require(known, "algorithm.per", self.per, '"batches" or "samples"', 'set algorithm.per = "batches"')
        known = self.start in ("score", "equal")
        require(known, "algorithm.start", self.start, '"score" or "equal"', 'set algorithm.start = "score"')

    @property
    def key(self) -> str:
        """Name of the score in a report."""
        return "score" if self.per == "batches" else "score_per_sample"

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries read in a report beside those that every report has."""
        return (self.key,)

    def initial(self, updates: ClientUpdates, fleet: Fleet, start: Reference) -> NDArray[np.float64]:
        """Return the clients' chances before the first round, [K], in the census' order."""
        from algorithms.core.blocks import blocks_over
        from algorithms.core.fleet import map_joined
        from algorithms.options.scores import Scores

        clients, samples = fleet.census.clients, fleet.census.samples
        if self.start == "equal":
            return (samples > 0).astype(np.float64)
        blocks = blocks_over(clients, fleet)
        function = Scores(replace(updates, round_number=0), self.key)
        found = np.array(map_joined(fleet, function, blocks, [start])[0])
        return np.where(np.isfinite(found), found, 0.0)

    def moved(self, p: NDArray[np.float64], census: Census, rows: UpdateRows) -> NDArray[np.float64]:
        """Return the chances after a round's client updates."""
        scores = np.where(rows.column("steps") > 0, rows.column(self.key), np.where(rows.finite, 0.0, np.nan))
        clients, scores = rows.clients[np.isfinite(scores)], scores[np.isfinite(scores)]
        moved, places = p.copy(), np.searchsorted(census.clients, clients)
        moved[places] = (1 - self.gamma) * p[places] + self.gamma * scores
        return moved
