"""Preparations of a client update's work, beside its batches: what batch norm refuses, dropout, augmentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch

from algorithms.core.keys import Purpose
from algorithms.training.augment import Augment, Augmented
from algorithms.training.local import Local
from algorithms.training.work import Work

Key: TypeAlias = Callable[[Purpose], int]
"""Return the client update's seed for a purpose."""


class Preparation(Protocol):
    """Change of a client update's work before it trains."""

    def __call__(self, work: Work, local: Local, key: Key) -> Work: ...


def without_singles(work: Work, local: Local, key: Key) -> Work:
    """Leave out batches of one sample, which batch norm cannot normalise by their own statistics."""
    if local.statistics == "frozen":
        return work
    return replace(work, batches=[rows for rows in work.batches if len(rows) > 1])


def with_masks(work: Work, local: Local, key: Key) -> Work:
    """Add the client update's own stream of dropout masks."""
    masks = torch.Generator(work.x.device)
    masks.manual_seed(key(Purpose.DROPOUT))
    return replace(work, masks=masks)


@dataclass(frozen=True)
class Augmenting:
    """Preparation that draws the augmentation of the batches' samples.

    Args:
        change: augmentation.
    """

    change: Augment

    def __call__(self, work: Work, local: Local, key: Key) -> Work:
        augment = Augmented.of(self.change, work.batches, key(Purpose.AUGMENT), work.x.device)
        return replace(work, augment=augment)
