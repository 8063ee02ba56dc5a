"""Cross-entropy over labels: a class for each sample, or for each labelled pixel of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

IGNORED = 255
"""Label of a pixel without a class."""


def mean_loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of a batch's labels, without pixels that have no class; 0 without any label.

        F = 1/|P| sum_{p in P} -log softmax(logits_p)[y_p],   P the samples, or all pixels with a class

    Args:
        logits: [n, classes], or [n, classes, height, width].
        y: class indices, [n], or [n, height, width] with 255 for no class.
    """
    if y.dim() == 1:
        return cross_entropy(logits, y)
    return cross_entropies(logits, y).sum() / (y != IGNORED).sum().clamp(min=1)


def cross_entropies(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of each label, [n] or [n height width]; a pixel without a class gives 0."""
    if y.dim() == 1:
        return cross_entropy(logits, y, reduction="none")
    # One row a pixel: on a GPU the kernels for whole images add up in no fixed order.
    rows = logits.movedim(1, -1).reshape(-1, logits.shape[1])
    return cross_entropy(rows, y.reshape(-1).long(), reduction="none", ignore_index=IGNORED)


def labelled(y: torch.Tensor) -> int:
    """Return the number of labels: all samples of [n], or the pixels with a class of [n, height, width]."""
    return y.shape[0] if y.dim() == 1 else int((y != IGNORED).sum())


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
