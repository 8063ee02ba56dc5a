"""Cross-entropy over labels: a class for each sample, or for each labelled pixel of an image."""

from __future__ import annotations

import torch
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
    return len(y) if y.dim() == 1 else int((y != IGNORED).sum())
