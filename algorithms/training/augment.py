"""Augmentation in training: random changes of the samples, keyed by the client update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray


class Augment(Protocol):
    """Random change of samples, each by its own random numbers: a picklable value and a pure function."""

    @property
    def numbers(self) -> int:
        """Random numbers a sample."""
        ...

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the changed samples.

        Args:
            x: samples, [n, *shape]; left unchanged.
            draws: random numbers, float32 [n, numbers], uniform in [0, 1), on the same device.
        """
        ...

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return labels that are images, moved like their samples by the same draws.

        Args:
            y: labels, [n, height, width], 255 for no class; left unchanged.
            draws: random numbers of the samples.
        """
        ...


@dataclass(frozen=True)
class Augmented:
    """Augmentation, and its draws for one client update.

    Args:
        change: augmentation.
        draws: random numbers, [samples used, numbers], in the order of the batches.
    """

    change: Augment
    draws: torch.Tensor

    @classmethod
    def of(cls, change: Augment, batches: Sequence[NDArray[np.int64]], seed: int, device: torch.device) -> Augmented:
        """Draw the random numbers for all batches of a client update.

        Args:
            change: augmentation.
            batches: rows of each step.
            seed: key of the client update.
            device: device of the samples. The CPU makes the draws, so that they are equal on every device.
        """
        numbers = torch.Generator().manual_seed(seed)
        used = sum(len(rows) for rows in batches)
        return cls(change, torch.rand(used, change.numbers, generator=numbers).to(device))

    def split(self, count: int) -> tuple[Augmented, Augmented]:
        """Return the part of the first `count` samples, and that of the others."""
        return replace(self, draws=self.draws[:count]), replace(self, draws=self.draws[count:])
