"""Measurements after a client update, on the client's own samples, for its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call, grad, vmap

from algorithms.core.entries import Kind
from algorithms.core.layout import Layout, Packed
from algorithms.core.report import REPORTED
from algorithms.training.compiler import left_out
from algorithms.training.local import Local
from algorithms.training.loss import labelled
from algorithms.training.resident import Resident
from algorithms.training.work import Trainer, Work
from algorithms.training.worker import Worker

MAPPED = 16
"""Number of batches mapped at once for their gradients, if client updates are stacked."""


@dataclass(frozen=True)
class FinishedUpdate:
    """Finished client update with its model still in its lane.

    Args:
        worker: worker that trained it.
        trainer: trainer with the model in a lane.
        local: content of the client update.
        work: training data.
        lane: lane of the resident models.
        received: shared entries at the start.
        personal: personal entries at the start.
    """

    worker: Worker
    trainer: Trainer
    local: Local
    work: Work
    lane: int
    received: Packed
    personal: Packed


def score(finished: FinishedUpdate) -> float:
    """Return the squared gradient norm at w*, mean over the last mini-batches, at most one pass.

        p = 1/|batches| sum_b |grad F_b(w*)|^2

    Batch norm normalises by its running statistics, as in evaluation. There is no dropout.

    Paper: RADFed, section III-B.
    """
    sizes = np.cumsum([len(rows) for rows in reversed(finished.work.batches)])
    last_pass = max(1, int(np.searchsorted(sizes, len(finished.work.y), side="right")))
    return _mean_square(finished, finished.work.batches[-last_pass:])


def score_per_sample(finished: FinishedUpdate) -> float:
    """Return the mean over single samples, p = 1/|D| sum_d |grad l_d(w*)|^2. Paper: RADFed, Algorithm 2."""
    return _mean_square(finished, [np.array([row]) for row in range(len(finished.work.y))])


def loss_after(finished: FinishedUpdate) -> float:
    """Return the local objective at w*: the mean loss of the client's labels, in evaluation."""
    return _objective(finished, _entries(finished.worker.resident, finished.lane))


def loss_received(finished: FinishedUpdate) -> float:
    """Return the local objective at the received model, as `loss_after` does at w*."""
    return _objective(finished, _received(finished))


def loss_rms(finished: FinishedUpdate) -> float:
    """Return the root mean square of the samples' losses at the received model, in evaluation."""
    total = sum(float(losses.square().sum()) for losses in _losses(finished, _received(finished)))
    return float(np.sqrt(total / max(1, len(finished.work.y))))


def change(finished: FinishedUpdate) -> float:
    """Return the squared norm of the change of the shared parameters, |w* - w|^2."""
    now, then = finished.trainer.shared(finished.lane).floats, finished.received.floats
    layout, squares = finished.worker.resident.layouts.shared, finished.worker.scratch
    np.subtract(now, then, out=squares, dtype=np.float64)
    np.square(squares, out=squares)
    return float(sum(squares[place].sum() for entry, place in layout.places() if entry.is_parameter))


def _objective(finished: FinishedUpdate, entries: dict[str, torch.Tensor]) -> float:
    """Return the mean loss of the client's labels under a model, in evaluation."""
    total = sum(float(losses.sum()) for losses in _losses(finished, entries))
    return total / max(1, labelled(finished.work.y))


@torch.no_grad()
def _losses(finished: FinishedUpdate, entries: dict[str, torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield the losses of a part of the client's samples after the other under a model, in evaluation."""
    module, x, y = finished.worker.resident.module.eval(), finished.work.x, finished.work.y
    for part in finished.worker.resident.chunks(x):
        yield finished.local.loss.sums(functional_call(module, entries, (x[part],)).double(), y[part])


def bn_shift(finished: FinishedUpdate) -> float:
    """Return the change of the batch-norm statistics: the mean of |S_k - S| over the running means and variances.

    Paper: FixBN, Figure 3 (a), which takes the sum.
    """
    resident = finished.worker.resident
    found = zip(
        (resident.layouts.shared, resident.layouts.personal),
        (finished.trainer.shared(finished.lane), finished.trainer.personal(finished.lane)),
        (finished.received, finished.personal),
        strict=True,
    )
    changes = [np.abs(statistics(layout, now) - statistics(layout, then)) for layout, now, then in found]
    whole = np.concatenate(changes)
    return float(whole.mean()) if whole.size else 0.0


REPORTS: Mapping[str, Callable[[FinishedUpdate], float]] = {
    "score": score,
    "score_per_sample": score_per_sample,
    "loss_after": loss_after,
    "loss_received": loss_received,
    "loss_rms": loss_rms,
    "change": change,
    "bn_shift": bn_shift,
}
"""Measurements that a part may name in its `needs`, beside the entries of every report."""


UNDRAWN = ("change", "bn_shift")
"""Measurements that run neither the model nor the loss, and so draw nothing."""


def own_numbers(report: Mapping[str, float]) -> dict[str, float]:
    """Return the entries of a report that a user's own client update gave."""
    return {name: value for name, value in report.items() if name not in (*REPORTED, *REPORTS, "staleness")}


def statistics(layout: Layout, packed: Packed) -> NDArray[np.float64]:
    """Return the running means and variances of a model, end to end."""
    wanted = [place for entry, place in layout.places() if entry.kind is Kind.STATISTIC and not entry.integer]
    parts = [packed.floats[place].astype(np.float64) for place in wanted]
    return np.concatenate(parts) if parts else np.empty(0)


def _received(finished: FinishedUpdate) -> dict[str, torch.Tensor]:
    """Return the entries of the received model."""
    resident = finished.worker.resident
    shared, personal = resident.layouts.shared, resident.layouts.personal
    values = {**shared.unpack(finished.received), **personal.unpack(finished.personal)}
    return {e.name: torch.tensor(values[e.name]).to(resident.device) for e in resident.stacks}


def _entries(resident: Resident, lane: int) -> dict[str, torch.Tensor]:
    return {entry.name: stack[lane] for entry, stack in resident.stacks.items()}


def _mean_square(finished: FinishedUpdate, batches: Sequence[NDArray[np.int64]]) -> float:
    """Return the mean over batches of the loss's squared gradient norm, at the entries of the lane."""
    resident = finished.worker.resident
    for layer in resident.module.eval().modules():
        if isinstance(layer, nn.RNNBase) and not layer.dropout:
            layer.train()  # the same values, and on a GPU cuDNN has no gradient of them in evaluation
    entries = _entries(resident, finished.lane)
    trained = {name: entries.pop(name) for name in resident.trained(finished.local)}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return finished.local.loss.mean(functional_call(resident.module, (parameters, entries), (x,)), y)

    def square(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        gradients: dict[str, torch.Tensor] = grad(loss)(trained, x, y)
        return torch.stack([g.square().sum() for g in gradients.values()]).sum()

    # Sequential training may have a model that cannot be mapped.
    most = 1 if finished.local.compute.execution == "sequential" else MAPPED
    squares = []
    for x, y in _gathered(finished.work, batches, most):
        with left_out():
            squares.append(square(x[0], y[0]).view(1) if len(x) == 1 else vmap(square)(x, y))
    return float(torch.cat(squares).double().mean())


def _gathered(
    work: Work, batches: Sequence[NDArray[np.int64]], most: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the samples [k, n, *shape] and labels of at most `most` neighbouring batches of one size."""
    for _, group in groupby(batches, key=len):
        alike = list(group)
        for start in range(0, len(alike), most):
            rows = torch.from_numpy(np.stack(alike[start : start + most])).to(work.y.device)
            yield work.x[rows], work.y[rows]
