"""Client updates of a cohort in which some clients attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from algorithms.core.keys import Purpose, generator
from algorithms.core.layout import Layout, Packed
from algorithms.options.attack import Attack
from algorithms.parts.client_update import ClientInput, ClientUpdates
from algorithms.training.work import Trainer, Work
from algorithms.training.worker import Worker


@lru_cache(8)
def parameters_of(layout: Layout) -> NDArray[np.bool_]:
    """Return whether each floating value of a layout is one of a parameter that trains, [layout.floats]."""
    found = np.zeros(layout.floats, bool)
    for entry, place in layout.places():
        if entry.is_parameter:
            found[place] = True
    return found


@dataclass(frozen=True)
class AttackedUpdates(ClientUpdates):
    """Client updates in which attackers flip their labels, or change their models before they send them.

    Args:
        attack: attack; None for none.
        attackers: the cohort's attackers.
    """

    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()

    def works(
        self, worker: Worker, clients: Sequence[int], inputs: Sequence[ClientInput], personal: Sequence[Packed]
    ) -> list[Work]:
        works = super().works(worker, clients, inputs, personal)
        if self.attack is None:
            return works
        return [replace(w, y=self.attack.flipped(w.y)) if w.client in self.attackers else w for w in works]

    def train(
        self,
        worker: Worker,
        trainer: Trainer,
        clients: Sequence[int],
        inputs: Sequence[ClientInput],
        received: Sequence[Packed],
        personal: Sequence[Packed],
    ) -> tuple[list[int], list[Work], NDArray[np.float64]]:
        lanes, works, losses = super().train(worker, trainer, clients, inputs, received, personal)
        if self.attack is not None and self.attack.kind in ("sign-flip", "gaussian"):
            places = parameters_of(worker.resident.layouts.shared)
            for lane, work, model in zip(lanes, works, received, strict=True):
                if work.batches and work.client in self.attackers:
                    trained = trainer.shared(lane).copy()
                    rng = generator(self.seed, Purpose.ATTACK, self.round_number, work.client)
                    w, after = (each.floats[places].astype(np.float64) for each in (model, trained))
                    trained.floats[places] = self.attack.sent(w, after, rng)
                    trainer.reload(lane, trained, trainer.personal(lane).copy())
        return lanes, works, losses
