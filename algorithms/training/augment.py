"""Augmentation in training: samples are changed at random, by draws that the visit's key gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray


class Augment(Protocol):
    """Changes each sample by random numbers of its own: a picklable value, and a pure function."""

    @property
    def numbers(self) -> int:
        """How many random numbers a sample takes."""
        ...

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the changed samples.

        Args:
            x: [n, *shape], left as they are.
            draws: [n, numbers], float32, uniform in [0, 1), on the same device.
        """
        ...

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the labels of changed samples, where these are images: moved as the samples are by the same draws.

        Args:
            y: [n, height, width], left as they are; 255 where a pixel has no class.
            draws: those of the samples.
        """
        ...


@dataclass(frozen=True)
class Augmented:
    """An augmentation and one visit's draws for it.

    Args:
        change: what it does.
        draws: [samples used, numbers], in the order of the visit's batches.
    """

    change: Augment
    draws: torch.Tensor

    @classmethod
    def of(cls, change: Augment, batches: Sequence[NDArray[np.int64]], seed: int, device: torch.device) -> Augmented:
        """Draw for all batches of a visit.

        Args:
            change: what it does.
            batches: the rows of each step.
            seed: the visit's key.
            device: where the samples are. The draws are made on the processor, so that they are the same anywhere.
        """
        numbers = torch.Generator().manual_seed(seed)
        used = sum(len(rows) for rows in batches)
        return cls(change, torch.rand(used, change.numbers, generator=numbers).to(device))

    def after(self, count: int) -> Augmented:
        """What is left once so many samples were used."""
        return replace(self, draws=self.draws[count:])
