"""Cross-entropy over labels: a class for each sample, or for each pixel of an image that has one."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

IGNORED = 255
"""What a pixel without a class has in a label that is an image."""


def mean_loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of a batch's labels, pixels without a class left out; 0 where no pixel has one.

        F = 1/|P| sum_{p in P} -log softmax(logits_p)[y_p],   P the samples, or all pixels with a class

    Args:
        logits: [n, classes], or [n, classes, height, width].
        y: class indices, [n], or [n, height, width] with 255 for no class.
    """
    if y.dim() == 1:
        return cross_entropy(logits, y)
    return cross_entropies(logits, y).sum() / (y != IGNORED).sum().clamp(min=1)


def cross_entropies(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of each label, [n] or [n height width]: 0 of a pixel without a class; see `mean_loss`."""
    if y.dim() == 1:
        return cross_entropy(logits, y, reduction="none")
    # A row a pixel: the kernels for whole images add up in no fixed order on a GPU.
    rows = logits.movedim(1, -1).reshape(-1, logits.shape[1])
    return cross_entropy(rows, y.reshape(-1).long(), reduction="none", ignore_index=IGNORED)


def labelled(y: torch.Tensor) -> int:
    """How many labels count: all samples [n], or the pixels with a class of [n, height, width]."""
    return len(y) if y.dim() == 1 else int((y != IGNORED).sum())
