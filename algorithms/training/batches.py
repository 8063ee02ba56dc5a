"""Batches of a stack of client updates: the lanes that take a step together, and their samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.training.loss import Loss
from algorithms.training.work import StackedBatch, Work

GATHER_BYTES = 2**19
"""Bytes of samples gathered at once, in the order of their use: the copy stays in the processor's cache."""

GPU_GATHER_BYTES = 2**26
"""Bytes of samples gathered at once on a GPU, where each gather costs a kernel."""

SPARSE = 2
"""A client update that uses at most 1 / `SPARSE` of its samples gathers them first."""


def stacked_batches(works: Sequence[Work]) -> Iterator[StackedBatch]:
    """Yield all batches of a stack of client updates, with gathered and augmented samples.

    Lanes with batches left form the head of the stack, because the longest come first. Among them, neighbours with
    batches of one size step together. No batch is padded, and every step is a slice of the stack.
    """
    works = [_narrowed(work) for work in works]
    planned, rows = _plan(works)
    if not planned:
        return
    x, y = (each[0] if len(works) == 1 else torch.cat(each) for each in zip(*((w.x, w.y) for w in works), strict=True))
    index, augment = torch.from_numpy(rows).to(x.device), works[0].augment
    draws, start = None if augment is None else _draws(works), 0
    repeats = Counter(planned)
    for steps in _groups(planned, (GPU_GATHER_BYTES if x.is_cuda else GATHER_BYTES) // max(1, x[0].nbytes)):
        used = slice(start, start + sum(step.rows for step in steps))
        step_x, step_y = x.index_select(0, index[used]), y.index_select(0, index[used])
        if augment is not None and draws is not None:
            step_x = augment.change(step_x, draws[used])
            # Labels that are images move like their samples.
            step_y = augment.change.labels(step_y, draws[used]) if step_y.dim() == 3 else step_y
        yield from _cut(steps, step_x, step_y, repeats)
        start = used.stop


class Planned(NamedTuple):
    """Step of the lanes from `start` to before `stop` together, each on a batch of `size` samples."""

    start: int
    stop: int
    size: int

    @property
    def rows(self) -> int:
        return (self.stop - self.start) * self.size


def _groups(planned: Sequence[Planned], most: int) -> Iterator[Sequence[Planned]]:
    """Yield neighbouring steps of at most `most` samples together, at least one step at a time."""
    first, count = 0, 0
    for last, step in enumerate(planned):
        if last > first and count + step.rows > most:
            yield planned[first:last]
            first, count = last, 0
        count += step.rows
    yield planned[first:]


def _cut(
    steps: Sequence[Planned], x: torch.Tensor, y: torch.Tensor, repeats: Counter[Planned]
) -> Iterator[StackedBatch]:
    """Yield the batches of some steps from their samples, end to end."""
    first = 0
    for step in steps:
        start, stop, size = step
        rows = slice(first, first + step.rows)
        # The shape of a sample may differ from the data's after a crop.
        step_x, step_y = (each[rows].view(stop - start, size, *each.shape[1:]) for each in (x, y))
        yield StackedBatch(slice(start, stop), size, step_x, step_y, repeats[step])
        first = rows.stop


def _narrowed(work: Work) -> Work:
    """Reduce a client update to the samples that it uses, if these are few."""
    sizes = [len(rows) for rows in work.batches]
    used = sum(sizes)
    if not used or SPARSE * used > work.y.shape[0]:
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
            planned.append(Planned(members[0], members[-1] + 1, size))
            batches += [works[lane].batches[t] for lane in members]
            owners += members
    if not batches:
        return [], np.empty(0, np.int64)
    starts = np.cumsum([0, *(len(work.y) for work in works)])
    return planned, np.concatenate(batches) + np.repeat(starts[owners], [len(rows) for rows in batches])


def _draws(works: Sequence[Work]) -> torch.Tensor:
    """Return the draws of all augmented samples in the order of use."""
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


@torch.no_grad()
def batch_losses(
    loss: Loss, outputs: Sequence[torch.Tensor], y: torch.Tensor, counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the loss of each owner's samples as one batch, times its labels, [owners]; 0 without samples.

    Args:
        loss: loss of batches.
        outputs: outputs of neighbouring samples, one part after the other, all owners end to end.
        y: their labels.
        counts: number of samples of each owner.
    """
    sizes = counts.tolist()
    parts = zip(torch.split(torch.cat(list(outputs)), sizes), torch.split(y, sizes), strict=True)
    return np.array([float(loss.sums(*part).sum()) if len(part[1]) else 0.0 for part in parts])


def _on_host(values: Sequence[torch.Tensor]) -> NDArray[np.float64]:
    return torch.cat(list(values)).double().cpu().numpy() if values else np.empty(0)
