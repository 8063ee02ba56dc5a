"""The worker: the models, data and stores with which a fleet's blocks run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from algorithms.core.clients import ClientData
from algorithms.core.keys import Purpose, torch_seed
from algorithms.core.layout import Packed
from algorithms.core.personal import PersonalStore
from algorithms.training.augment import Augment
from algorithms.training.forked import forked
from algorithms.training.resident import Resident
from algorithms.training.work import Trainer


@dataclass(frozen=True)
class Worker:
    """Worker: the models, data and stores with which blocks run.

    Args:
        resident: models.
        data: samples.
        personal: store of personal entries.
        trainer: trains the resident models.
        low_rank: trainer of client updates that all start from one model; None to train them like all others.
        augment: augmentation of training samples; None for no augmentation.
        watch: called with each trained model, as sent and as received; the work itself does not depend on it.
        own: seed for the draws of a user's own code; None if the blocks run no such code.
    """

    resident: Resident
    data: ClientData
    personal: PersonalStore
    trainer: Trainer
    low_rank: Trainer | None = None
    augment: Augment | None = None
    watch: Callable[[Packed, Packed], object] | None = None
    own: int | None = None

    def trainer_of(self, model: Packed | None) -> Trainer:
        """Return the trainer of client updates that start from one model; None stands for models that differ."""
        return self.trainer if model is None or self.low_rank is None else self.low_rank

    def keyed(
        self, purpose: Purpose, counter: int = 0, client: int = 0, seed: int | None = None
    ) -> AbstractContextManager[None]:
        """Seed the default generators for a user's own code by a key, and restore them; do nothing without such code.

        Args:
            purpose: purpose of the draws.
            counter: number of the round, dispatch or block, >= 0.
            client: id of the client, >= 0.
            seed: seed of the key; None for `own`.
        """
        if self.own is None:
            return nullcontext()
        key = torch_seed(self.own if seed is None else seed, purpose, counter, client)
        return forked(key, [] if self.resident.device.type == "cpu" else [self.resident.device])
