"""Losses of client updates from those of their batches, and of owners of samples from their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.training.loss import Loss

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
