"""Trained client updates: their settings, their inputs, and their models in the lanes of a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from algorithms.core.keys import Purpose
from algorithms.core.layout import Packed
from algorithms.core.personal import Location
from algorithms.core.returned import is_own
from algorithms.parts.weighting import Weighting
from algorithms.training.local import Local
from algorithms.training.reports import UNDRAWN, FinishedUpdate
from algorithms.training.work import Trainer, Work
from algorithms.training.worker import Worker


@dataclass(frozen=True)
class ClientInput:
    """Input of one client update beside its model.

    Args:
        personal: location of the client's personal entries; None if it has none yet.
        weight: weight of the received model; 0 after an aggregation.
        counter: counter of the random draws; None for the round number, unless a client may train twice in a round.
    """

    personal: Location | None
    weight: float
    counter: int | None = None


NO_INPUT = ClientInput(None, 0.0)
"""Input of a client without personal entries, after an aggregation."""


@dataclass(frozen=True)
class UpdateSettings:
    """Settings of the client updates of a round.

    Args:
        local: one client's training.
        weighting: weight of a client update in the aggregation.
        seed: seed of the run.
        round_number: round, starting at 1.
        rounds: rounds of the run, if known.
        needs: measurements after each client update, for its report; see `algorithms.training.reports`.
    """

    local: Local
    weighting: Weighting
    seed: int
    round_number: int
    rounds: int | None = None
    needs: tuple[str, ...] = ()

    def counter(self, given: ClientInput) -> int:
        """Return the counter of a client update's random draws."""
        return self.round_number if given.counter is None else given.counter


@dataclass
class Trained:
    """Trained models in their lanes, before they are summed or left behind.

    Args:
        updates: settings of the client updates.
        worker: worker that trained them.
        trainer: trainer with the lanes.
        clients: ids of the clients.
        inputs: input of each client.
        received: model that each client received.
        personal: personal entries that each client began with.
        lanes: lane of each client's model.
        works: samples and batches of each client.
        losses: mean training loss of each client, float64 [n].
    """

    updates: UpdateSettings
    worker: Worker
    trainer: Trainer
    clients: Sequence[int]
    inputs: Sequence[ClientInput]
    received: Sequence[Packed]
    personal: Sequence[Packed]
    lanes: Sequence[int]
    works: Sequence[Work]
    losses: NDArray[np.float64]
    _wrong: list[str | None] | None = field(default=None, repr=False)

    def nonfinite(self) -> list[str | None]:
        """Return the first quantity of each model that was not finite now or at an earlier look; None if all were."""
        by_lane = self.trainer.nonfinite(len(self.works))
        found = [by_lane[lane] for lane in self.lanes]
        self._wrong = [first or then for first, then in zip(self._wrong or found, found, strict=True)]
        return self._wrong

    def finite(self) -> list[int]:
        """Return the places of the clients that took a step and whose models are finite."""
        wrong = self.nonfinite()
        return [i for i, work in enumerate(self.works) if work.batches and wrong[i] is None]

    def counter(self, place: int) -> int:
        """Return the counter of a client update's random draws."""
        return self.updates.counter(self.inputs[place])

    def keyed(self, place: int) -> AbstractContextManager[None]:
        """Seed the default generators if a user's own code may draw from them for a client's report or weight."""
        if not is_own(self.updates.weighting) and set(UNDRAWN).issuperset(self.updates.needs):
            return nullcontext()
        return self.worker.keyed(Purpose.OWN_REPORT, self.counter(place), self.clients[place], self.updates.seed)

    def finished(self, place: int) -> FinishedUpdate:
        """Return one of the client updates, for measurements."""
        given = self.lanes[place], self.received[place], self.personal[place]
        return FinishedUpdate(self.worker, self.trainer, self.updates.local, self.works[place], *given)

    def restore(self, place: int) -> None:
        """Put a client's model and personal entries back to what it received."""
        self.trainer.reload(self.lanes[place], self.received[place], self.personal[place])
