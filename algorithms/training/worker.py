"""The worker: the models, data and stores with which a fleet's blocks run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.clients import ClientData
from algorithms.core.errors import InputError
from algorithms.core.keys import Purpose, torch_seed
from algorithms.core.layout import Packed
from algorithms.core.personal import PersonalStore
from algorithms.core.report import UpdateRows
from algorithms.training.augment import Augment, Augmented
from algorithms.training.forked import drawn, forked
from algorithms.training.local import Local
from algorithms.training.resident import Resident
from algorithms.training.work import Trainer, Work

Key: TypeAlias = Callable[[Purpose], int]
"""Return the client update's seed for a purpose."""


Preparation: TypeAlias = Callable[[Work, Local, Key], Work]
"""Change of a client update's work before it trains."""


def with_masks(work: Work, local: Local, key: Key) -> Work:
    """Add the client update's own stream of dropout masks."""
    masks = torch.Generator(work.x.device)
    masks.manual_seed(key(Purpose.DROPOUT))
    return replace(work, masks=masks)


def with_augment(change: Augment, work: Work, local: Local, key: Key) -> Work:
    """Draw the augmentation of the batches' samples."""
    augment = Augmented.of(change, work.batches, key(Purpose.AUGMENT), work.x.device)
    return replace(work, augment=augment)


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
        watches: functions of trained client updates and their rows; the work itself does not depend on them.
        own: seed for the draws of a user's own code; None if the blocks run no such code.
    """

    resident: Resident
    data: ClientData
    personal: PersonalStore
    trainer: Trainer
    low_rank: Trainer | None = None
    augment: Augment | None = None
    watches: tuple[Callable[[Any, UpdateRows], object], ...] = ()
    own: int | None = None

    @cached_property
    def preparations(self) -> tuple[Preparation, ...]:
        """Preparations of each client update's work, in their order; none for a model and data that need none."""
        return (
            *((with_masks,) if self.trainer.has_dropout else ()),
            *((partial(with_augment, self.augment),) if self.augment is not None else ()),
        )

    @cached_property
    def variants(self) -> dict[Any, Worker]:
        """Workers that were made from this one, such as those of smaller models, by their keys."""
        return {}

    @cached_property
    def scratch(self) -> NDArray[np.float64]:
        """Room for a calculation on the shared floating entries of one model, which would else be allocated anew."""
        return np.empty(self.resident.layouts.shared.floats)

    def least_batch(self, local: Local) -> int:
        """Return the least size of a batch: 2 if batch norm has to normalise it by its own statistics."""
        return 2 if self.resident.refuses_single and local.statistics != "frozen" else 1

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

    def keyed_together(
        self, purpose: Purpose, counter: int, clients: Sequence[int], seed: int
    ) -> AbstractContextManager[None]:
        """Seed as `keyed` does, for client updates that take their steps together, by the first client's key.

        Raises:
            InputError: a user's own code drew random numbers that several clients would share.
        """
        alone = self.own is None or len(clients) == 1
        return (self.keyed if alone else self._undrawn)(purpose, counter, clients[0], seed)

    @contextmanager
    def _undrawn(self, *key: Any) -> Iterator[None]:
        with self.keyed(*key):
            unused = drawn()
            yield
            if unused != drawn():
                raise InputError(
                    "your own code draws random numbers in a step that several client updates take together: must have "
                    'a draw for each of them; set local.execution = "sequential"'
                )
