"""The options `dl` and `bn`: measures of a round's models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Around, Block, Output
from algorithms.core.layout import Layout, Packed
from algorithms.core.report import UpdateRows
from algorithms.core.state import State
from algorithms.parts.client_update import Trained
from algorithms.parts.option import Draft, Option, Updates
from algorithms.parts.received import Received
from algorithms.parts.rules import entered, variances
from algorithms.training.reports import statistics
from algorithms.training.worker import Worker

WINDOW = 200
"""Client updates over which a client's variance is taken, as in FixBN's Figure 3 (b)."""


@dataclass
class Directions:
    """Sums of the models' directions by their parameters, sum_k w_k / |w_k|, and likewise of the models' changes.

    For unit vectors u_k they give the mean over all pairs without a look at any pair:

        2 sum_(j < k) u_j . u_k = |sum_k u_k|^2 - sum_k |u_k|^2
    """

    models: NDArray[np.float64]
    updates: NDArray[np.float64]
    parameters: NDArray[np.float64]
    count: int = 0
    moved: int = 0

    @classmethod
    def zero(cls, layout: Layout) -> Directions:
        """Return the empty sums of a layout's entries."""
        return cls(np.zeros(layout.floats), np.zeros(layout.floats), layout.parameters.astype(np.float64))

    def watch(self, trained: Trained, rows: UpdateRows) -> None:
        """Add the models of client updates that took a step."""
        for i in np.flatnonzero(rows.column("steps") > 0).tolist():
            self.add(trained.trainer.shared(trained.lanes[i]), trained.received[i])

    def add(self, sent: Packed, received: Packed) -> None:
        """Add a model as its client sent and received it."""
        w = sent.floats * self.parameters
        change = w - received.floats * self.parameters
        self.models += w / (np.linalg.norm(w) or 1)
        # A model that did not move has no direction: it points apart from all others.
        self.moved += bool(change.any())
        self.updates += change / (np.linalg.norm(change) or 1)
        self.count += 1

    def plus(self, part: Directions) -> Directions:
        """Return the sums of both."""
        models, updates = self.models + part.models, self.updates + part.updates
        return Directions(models, updates, self.parameters, self.count + part.count, self.moved + part.moved)

    @property
    def divergence(self) -> dict[str, float]:
        """DL: mean over all pairs of 1 - cos(w_j, w_k), of the models as sent and of their changes.

        It is empty if there is no pair. Paper: RADFed, equation 3.
        """
        pairs = self.count * (self.count - 1)
        if not pairs:
            return {}
        return {
            "dl": 1 - float(self.models @ self.models - self.count) / pairs,
            "dl_updates": 1 - float(self.updates @ self.updates - self.moved) / pairs,
        }


@dataclass(frozen=True)
class Compared(Around):
    """Client updates whose models' directions are summed beside them."""

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        directions = Directions.zero(worker.resident.layouts.shared)
        output = self.inner(replace(worker, watches=(*worker.watches, directions.watch)), block, *values)
        beside = {**output.value.beside, Divergence.name: directions}
        return replace(output, value=replace(output.value, beside=beside))


@dataclass(frozen=True)
class Divergence(Option):
    """Measure "dl": mean divergence of all pairs of a round's models, and of their changes; see `Directions`."""

    name: ClassVar[str] = "dl"
    in_own_rounds: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("dl", "dl_updates")

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        return Compared(updates)

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        directions = received.beside.get(self.name)
        return state if directions is None else state.measuring(directions.divergence)


@dataclass(frozen=True)
class BatchStatistics(Option):
    """Measure "bn": changes of batch-norm statistics, and the clients' distances from them.

        bn_change = mean |S(t+1) - S(t)|,  bn_deviation = mean_k mean |S_k(t+1) - S(t)|,
        bn_variance = mean_k Var of client k's latest deviations

    over all running means and variances S of the model, or of the models of all clusters. A round without an
    aggregation has the change 0. The memory holds the windows of the clients' deviations.

    Paper: FixBN, Figure 3 (a) and (b).

    Deviations: the figure's norm is a sum, here it is the mean. The figure's S_k is a mini-batch's, here it is the one
    that the client update left.
    """

    name: ClassVar[str] = "bn"
    in_own_rounds: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("bn_change", "bn_deviation", "bn_variance")
    needs: ClassVar[tuple[str, ...]] = ("bn_shift",)

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        rows, layout = received.rows, draft.fleet.layouts.shared
        trained = rows.trained
        shifts = dict(zip(rows.clients[trained].tolist(), rows.column("bn_shift")[trained].tolist(), strict=True))
        windows = entered(draft.state.of(self.name), shifts, WINDOW)
        models = zip(state.models, draft.state.models, strict=True)
        change = np.concatenate([np.abs(statistics(layout, now) - statistics(layout, then)) for now, then in models])
        spread = variances(windows, least=2)
        measures = {"bn_change": float(change.mean()) if change.size else 0.0}
        if shifts:
            measures["bn_deviation"] = float(np.mean(list(shifts.values())))
        if not np.isnan(spread).all():
            measures["bn_variance"] = float(np.nanmean(spread))
        return state.measuring(measures).keeping(self.name, windows)
