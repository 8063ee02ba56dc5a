"""Batches of a stack of client updates: the lanes that take a step together, their samples, and their losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.parts.local import Local
from algorithms.training.augment import Augmented
from algorithms.training.losses import IGNORED

GATHER_BYTES = 2**19
"""Bytes of samples gathered at once, in the order of their use: the copy stays in the processor's cache."""


SPARSE = 2
"""A client update that uses at most 1 / `SPARSE` of its samples gathers them first."""


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
        return _length(self.lanes)

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


def stacked_batches(works: Sequence[Work]) -> Iterator[StackedBatch]:
    """Yield all batches of a stack of client updates, with gathered and augmented samples.

    Lanes with batches left form the head of the stack, because the longest come first. Among them, neighbours with
    batches of one size step together. No batch is padded, and every step is a slice of the stack.
    """
    works = [_narrowed(work) for work in works]
    planned, rows = _plan(works)
    if not planned:
        return
    x = works[0].x if len(works) == 1 else torch.cat([work.x for work in works])
    y = works[0].y if len(works) == 1 else torch.cat([work.y for work in works])
    index = torch.from_numpy(rows).to(x.device)
    augment, draws = works[0].augment, _draws(works)
    most = max(1, GATHER_BYTES // max(1, x[0].nbytes))
    first = 0
    while first < len(planned):
        last, count = first, 0
        while last < len(planned) and (last == first or count + _rows(planned[last]) <= most):
            count += _rows(planned[last])
            last += 1
        chosen, index = index[:count], index[count:]
        gathered_x, gathered_y = x.index_select(0, chosen), y.index_select(0, chosen)
        if augment is not None:
            now, draws = draws[:count], draws[count:]
            gathered_x = augment.change(gathered_x, now)
            if y.dim() > 1:
                gathered_y = augment.change.labels(gathered_y, now)
        start = 0
        for lanes, size in planned[first:last]:
            end = start + _length(lanes) * size
            # The shape of a sample may differ from the data's after a crop.
            step_x = gathered_x[start:end].view(_length(lanes), size, *gathered_x.shape[1:])
            step_y = gathered_y[start:end].view(_length(lanes), size, *gathered_y.shape[1:])
            yield StackedBatch(lanes, size, step_x, step_y)
            start = end
        first = last


Planned = tuple[slice, int]
"""Lanes that take a step together, and the size of their batches."""


def _length(lanes: slice) -> int:
    length: int = lanes.stop - lanes.start
    return length


def _rows(planned: Planned) -> int:
    return _length(planned[0]) * planned[1]


def _narrowed(work: Work) -> Work:
    """Reduce a client update to the samples that it uses, if these are few."""
    sizes = [len(rows) for rows in work.batches]
    used = sum(sizes)
    if not used or SPARSE * used > len(work.y):
        return work
    rows = torch.from_numpy(np.concatenate(work.batches)).to(work.x.device)
    batches = np.split(np.arange(used), np.cumsum(sizes)[:-1])
    return replace(work, x=work.x.index_select(0, rows), y=work.y.index_select(0, rows), batches=batches)


def _plan(works: Sequence[Work]) -> tuple[list[Planned], NDArray[np.int64]]:
    """Return the steps, and their rows in the order of use, counted over all works' samples end to end."""
    planned: list[Planned] = []
    batches: list[NDArray[np.int64]] = []
    owners: list[int] = []
    for t in range(len(works[0].batches) if works else 0):
        active = [lane for lane, work in enumerate(works) if t < len(work.batches)]
        for size, lanes in groupby(active, key=lambda lane: len(works[lane].batches[t])):
            members = list(lanes)
            planned.append((slice(members[0], members[-1] + 1), size))
            batches += [works[lane].batches[t] for lane in members]
            owners += members
    if not batches:
        return [], np.empty(0, np.int64)
    starts = np.cumsum([0, *(len(work.y) for work in works)])
    return planned, np.concatenate(batches) + np.repeat(starts[owners], [len(rows) for rows in batches])


def _draws(works: Sequence[Work]) -> torch.Tensor:
    """Return the draws of all augmented samples in the order of use; an empty tensor without augmentation."""
    drawn = [(work.augment.draws, work.batches) for work in works if work.augment is not None]
    each = [torch.split(draws, [len(rows) for rows in batches]) for draws, batches in drawn if len(batches)]
    ordered = [parts[t] for t in range(len(works[0].batches)) for parts in each if t < len(parts)]
    return torch.cat(ordered) if ordered else torch.empty(0)


Taken = tuple[slice, torch.Tensor, torch.Tensor]
"""Lanes of a batch, their numbers of labels [k], and their mean losses [k], still on the device."""


def losses_of(taken: Sequence[Taken], lanes: int) -> NDArray[np.float64]:
    """Return each lane's mean loss over the batches taken; see `mean_losses`."""
    owners = [lane for batch, _, _ in taken for lane in range(batch.start, batch.stop)]
    labels, losses = [row[1] for row in taken], [row[2] for row in taken]
    return mean_losses(owners, _on_host(losses), _on_host(labels), lanes)


def mean_losses(
    owners: Sequence[int], losses: NDArray[np.float64], labels: NDArray[Any], lanes: int
) -> NDArray[np.float64]:
    """Return each lane's mean loss over its labels in the order of training.

    Args:
        owners: lane of each batch.
        losses: mean loss of each batch.
        labels: number of labels of each batch.
        lanes: number of lanes. The mean of a lane without a batch is NaN; without a label it is 0.
    """
    means = np.full(lanes, np.nan)
    if owners:
        sums, counts = np.bincount(owners, losses * labels, lanes), np.bincount(owners, labels, lanes)
        means[list(owners)] = 0.0
        np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _on_host(values: Sequence[torch.Tensor]) -> NDArray[np.float64]:
    return torch.cat(list(values)).double().cpu().numpy() if values else np.empty(0)
