"""The trainer of a worker's models, and its work: the data of client updates and the batches of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.parts.local import Local
from algorithms.training.augment import Augmented
from algorithms.training.losses import IGNORED


@dataclass(frozen=True)
class Work:
    """Training data of one client update.

    Args:
        x: inputs, [n, *shape].
        y: class indices, int64 [n]; or for pixels uint8 [n, height, width], with 255 for no class.
        batches: rows of each step.
        masks: the client update's own stream of dropout masks; None without dropout.
        augment: augmentation of the batches' samples; None for all client updates of a worker, or for none.
    """

    x: torch.Tensor
    y: torch.Tensor
    batches: Sequence[NDArray[np.int64]]
    masks: torch.Generator | None = None
    augment: Augmented | None = None


@dataclass(frozen=True)
class StackedBatch:
    """Batches of one size, one for each of k neighbouring lanes that take a step together.

    Args:
        lanes: the k lanes.
        size: n, samples of a batch.
        x: inputs, [k, n, *shape].
        y: class indices, [k, n], or [k, n, height, width].
    """

    lanes: slice
    size: int
    x: torch.Tensor
    y: torch.Tensor

    @property
    def count(self) -> int:
        """Number of lanes, k."""
        count: int = self.lanes.stop - self.lanes.start
        return count

    @property
    def labels(self) -> torch.Tensor:
        """Number of labels of each lane, [k]: samples, or pixels that have a class."""
        return torch.full((self.count,), self.size) if self.y.dim() == 2 else (self.y != IGNORED).flatten(1).sum(1)


class Trainer(Protocol):
    """Trainer of the models in a worker's lanes."""

    @property
    def lanes(self) -> int:
        """Number of client updates trained at once."""
        ...

    @property
    def has_dropout(self) -> bool:
        """Whether works need masks."""
        ...

    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update in each lane, from the loaded models.

        Args:
            local: content of a client update.
            works: training data of each lane, longest first.
            lr: learning rate of the round.

        Returns:
            Mean training loss of each client update over its labels in the order of training; NaN without a batch.
        """
        ...
