"""The trainer of a stack of client updates, and its work: the data of client updates and the batches of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.layout import Packed
from algorithms.core.sums import Sum
from algorithms.training.augment import Augmented
from algorithms.training.local import Execution, Local
from algorithms.training.loss import known
from algorithms.training.resident import Resident
from algorithms.training.steps import SlotMemory


@dataclass(frozen=True)
class Work:
    """Training data of one client update.

    Args:
        x: inputs, [n, *shape].
        y: labels, [n, ...]; see `Loss`.
        batches: rows of each step.
        masks: the client update's own stream of dropout masks; None without dropout.
        augment: augmentation of the batches' samples; None for all client updates of a worker, or for none.
        client: id of the client.
        round_number: round, starting at 1.
    """

    x: torch.Tensor
    y: torch.Tensor
    batches: Sequence[NDArray[np.int64]]
    masks: torch.Generator | None = None
    augment: Augmented | None = None
    client: int = 0
    round_number: int = 0

    def split(self, steps: int) -> tuple[Work, Work]:
        """Return the work of the first steps, and that of the others."""
        used = sum(len(rows) for rows in self.batches[:steps])
        augments = (None, None) if self.augment is None else self.augment.split(used)
        parts = zip((self.batches[:steps], self.batches[steps:]), augments, strict=True)
        first, rest = (replace(self, batches=batches, augment=augment) for batches, augment in parts)
        return first, rest


@dataclass(frozen=True)
class StackedBatch:
    """Batches of one size, one for each of k neighbouring lanes that take a step together.

    Args:
        lanes: the k lanes.
        size: n, samples of a batch.
        x: inputs, [k, n, *shape].
        y: labels, [k, n, ...].
        repeats: number of steps of the stack with these lanes and this size.
    """

    lanes: slice
    size: int
    x: torch.Tensor
    y: torch.Tensor
    repeats: int = 1

    @property
    def count(self) -> int:
        """Number of lanes, k."""
        count: int = self.lanes.stop - self.lanes.start
        return count

    @property
    def labels(self) -> torch.Tensor:
        """Number of labels of each lane, [k]: samples, or pixels or positions that have a class."""
        if self.y.dim() == 2 or self.y.is_floating_point():
            return torch.full((self.count,), self.size)
        return known(self.y).flatten(1).sum(1)


Step = Callable[..., torch.Tensor]
"""A step of some lanes: takes tensors of a batch, changes the lanes, and returns a tensor."""


class Launch:
    """Start of the kernels of a trainer's steps: here one after the other."""

    def begin(self, local: Local) -> SlotMemory | None:
        """Begin client updates; return memory for slots that must stay where they are, None for new memory."""
        return None

    def __call__(self, lr: float, step: Step, inputs: Sequence[torch.Tensor], batch: StackedBatch) -> torch.Tensor:
        """Take a step of the client updates.

        Args:
            lr: learning rate of the round.
            step: the step.
            inputs: what it takes of the batch.
            batch: the batch.
        """
        return step(*inputs)


class Trainer(ABC):
    """Trainer of a stack of client updates, and the models in its lanes: by default the resident ones.

    Args:
        resident: models of the worker.
    """

    execution: ClassVar[Execution] = "sequential"
    """Execution that it is; see `Compute`."""

    has_dropout = False
    """Whether works need masks."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self.lanes = resident.lanes
        """Number of client updates trained at once."""

    def load(self, models: Sequence[Packed], personal: Sequence[Packed]) -> None:
        """Load the model and the personal entries of each client update into the first lanes."""
        self._resident.load_stack(models, personal)

    @abstractmethod
    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update in each lane, from the loaded models.

        Args:
            local: content of a client update.
            works: training data of each lane, longest first.
            lr: learning rate of the round.

        Returns:
            Mean training loss of each client update over its labels in the order of training; NaN without a batch.
        """

    def reported(self, lane: int) -> Mapping[str, float]:
        """Return the numbers that the latest client update of a lane reports by itself; none by default."""
        return {}

    def nonfinite(self, lanes: int) -> list[str | None]:
        """Name the first entry that holds NaN or infinity in each of the first lanes; None if all are finite."""
        # A sum may also overflow while all entries are finite, so look at the entries.
        sums = self._resident.sums(lanes)
        return [None if isfinite(each) else self._resident.first_nonfinite(lane) for lane, each in enumerate(sums)]

    def swap(self, lanes: int) -> None:
        """Exchange the models of the first lanes and the clients' second ones."""
        self._resident.swap(lanes)

    def reload(self, lane: int, model: Packed, personal: Packed) -> None:
        """Put a lane back to what its client received."""
        self._resident.load(model, personal, lane)

    def count(self, name: str, lane: int) -> None:
        """Add 1 to a personal counter of a lane; `name` is its entry."""
        self._resident.counters[name.partition("/")[0]][lane] += 1

    def shared(self, lane: int) -> Packed:
        """Return the shared entries of a lane's model, valid until the next load."""
        return self._resident.shared(lane)

    def personal(self, lane: int) -> Packed:
        """Return the personal entries of a lane, as `shared` does."""
        return self._resident.personal(lane)

    def add(self, models: Sum, lanes: Sequence[int], weights: NDArray[np.float64]) -> None:
        """Add the shared entries of some lanes to a weighted sum, in this order."""
        self._resident.add(models, lanes, weights.tolist())
