"""The steps of a stack of visits: which lanes take them, on which samples, and what their losses come to."""

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
"""Samples are gathered in the order of their use, so much at once: a copy that stays in the processor's cache."""


SPARSE = 2
"""A visit that uses at most one in so many of its samples has them picked out first."""


@dataclass(frozen=True)
class Work:
    """What one visit trains on.

    Args:
        x: inputs, [n, *shape].
        y: class indices, int64 [n], or uint8 [n, height, width] where pixels have classes, 255 for none.
        batches: the rows of each step.
        masks: the visit's own stream of dropout masks; None where none are drawn.
        augment: what changes the samples of each batch; None where they stay, for all visits of a bench or for none.
    """

    x: torch.Tensor
    y: torch.Tensor
    batches: Sequence[NDArray[np.int64]]
    masks: torch.Generator | None = None
    augment: Augmented | None = None


@dataclass(frozen=True)
class StackedBatch:
    """Neighbouring lanes that take a step on batches of one size.

    Args:
        lanes: which, k of them.
        size: n, the samples of a batch.
        x: inputs, [k, n, *shape].
        y: class indices, [k, n], or [k, n, height, width].
    """

    lanes: slice
    size: int
    x: torch.Tensor
    y: torch.Tensor

    @property
    def count(self) -> int:
        """K."""
        count: int = self.lanes.stop - self.lanes.start
        return count

    @property
    def labels(self) -> torch.Tensor:
        """How many labels each lane's loss is the mean of, [k]: samples, or pixels that have a class."""
        return torch.full((self.count,), self.size) if self.y.dim() == 2 else (self.y != IGNORED).flatten(1).sum(1)


class Trainer(Protocol):
    """Trains the models of a bench's lanes."""

    @property
    def lanes(self) -> int:
        """How many visits are trained at once."""
        ...

    @property
    def has_dropout(self) -> bool:
        """Whether works need masks."""
        ...

    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one visit in each lane, from the models that are loaded.

        Args:
            local: what a visit does.
            works: a visit's work for each lane, the one with most batches first.
            lr: this round's learning rate.

        Returns:
            the mean training loss of each visit over its labels as they were passed; not a number without one.
        """
        ...


def stacked_batches(works: Sequence[Work]) -> Iterator[StackedBatch]:
    """All steps of a stack of visits, the samples gathered, and augmented where the works say so.

    Lanes that have batches left form the stack's head, since the longest come first; among them neighbours with
    batches of one size step together. So no batch is ever padded, and every step is a slice of the stack.
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
        while last < len(planned) and (last == first or count + planned[last].rows <= most):
            count += planned[last].rows
            last += 1
        chosen, index = index[:count], index[count:]
        gathered_x, gathered_y = x.index_select(0, chosen), y.index_select(0, chosen)
        if augment is not None:
            now, draws = draws[:count], draws[count:]
            gathered_x = augment.change(gathered_x, now)
            if y.dim() > 1:
                gathered_y = augment.change.labels(gathered_y, now)
        start = 0
        for plan in planned[first:last]:
            end = start + plan.rows
            shape = (plan.lanes.stop - plan.lanes.start, plan.size)
            # A crop may have changed the shape of an image.
            step_x = gathered_x[start:end].view(*shape, *gathered_x.shape[1:])
            step_y = gathered_y[start:end].view(*shape, *gathered_y.shape[1:])
            yield StackedBatch(plan.lanes, plan.size, step_x, step_y)
            start = end
        first = last


def _narrowed(work: Work) -> Work:
    """The same visit on no more samples than it uses, where these are few: a stack is made of what is left."""
    sizes = [len(rows) for rows in work.batches]
    used = sum(sizes)
    if not used or SPARSE * used > len(work.y):
        return work
    rows = torch.from_numpy(np.concatenate(work.batches)).to(work.x.device)
    batches = np.split(np.arange(used), np.cumsum(sizes)[:-1])
    return replace(work, x=work.x.index_select(0, rows), y=work.y.index_select(0, rows), batches=batches)


@dataclass(frozen=True)
class _Planned:
    lanes: slice
    size: int

    @property
    def rows(self) -> int:
        count: int = self.lanes.stop - self.lanes.start
        return count * self.size


def _plan(works: Sequence[Work]) -> tuple[list[_Planned], NDArray[np.int64]]:
    """The steps, and all their rows in the order of their use, as rows of the works' samples end to end."""
    planned: list[_Planned] = []
    batches: list[NDArray[np.int64]] = []
    owners: list[int] = []
    for t in range(len(works[0].batches) if works else 0):
        active = [lane for lane, work in enumerate(works) if t < len(work.batches)]
        for size, lanes in groupby(active, key=lambda lane: len(works[lane].batches[t])):
            members = list(lanes)
            planned.append(_Planned(slice(members[0], members[-1] + 1), size))
            batches += [works[lane].batches[t] for lane in members]
            owners += members
    if not batches:
        return [], np.empty(0, np.int64)
    starts = np.cumsum([0, *(len(work.y) for work in works)])
    return planned, np.concatenate(batches) + np.repeat(starts[owners], [len(rows) for rows in batches])


def _draws(works: Sequence[Work]) -> torch.Tensor:
    """The draws of all augmented samples, in the order of their use, which is that of `_plan`; else nothing."""
    drawn = [(work.augment.draws, work.batches) for work in works if work.augment is not None]
    each = [torch.split(draws, [len(rows) for rows in batches]) for draws, batches in drawn if len(batches)]
    ordered = [parts[t] for t in range(len(works[0].batches)) for parts in each if t < len(parts)]
    return torch.cat(ordered) if ordered else torch.empty(0)


Taken = tuple[slice, torch.Tensor, torch.Tensor]
"""A batch's lanes, their numbers of labels [k], and their mean losses [k], on the device: a look would wait for it."""


def losses_of(taken: Sequence[Taken], lanes: int) -> NDArray[np.float64]:
    """Return each lane's mean loss over the batches taken; see `mean_losses`."""
    owners = [lane for batch, _, _ in taken for lane in range(batch.start, batch.stop)]
    labels, losses = [row[1] for row in taken], [row[2] for row in taken]
    return mean_losses(owners, _on_host(losses), _on_host(labels), lanes)


def mean_losses(
    owners: Sequence[int], losses: NDArray[np.float64], labels: NDArray[Any], lanes: int
) -> NDArray[np.float64]:
    """Each lane's mean loss over its labels as they were passed.

    Args:
        owners: the lane of each batch.
        losses: its mean loss.
        labels: how many labels the mean is over.
        lanes: how many there are; one without a batch has no mean, and gets not a number; without a label it is 0.
    """
    means = np.full(lanes, np.nan)
    if owners:
        sums, counts = np.bincount(owners, losses * labels, lanes), np.bincount(owners, labels, lanes)
        means[list(owners)] = 0.0
        np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _on_host(values: Sequence[torch.Tensor]) -> NDArray[np.float64]:
    return torch.cat(list(values)).double().cpu().numpy() if values else np.empty(0)
