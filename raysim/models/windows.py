"""Means over windows, with the same gradient on every device."""

import torch
from torch import nn


class WindowMean(nn.Module):
    """x <- R x C, the means over size x size windows that cover an image, as `nn.AdaptiveAvgPool2d` has them.

    That layer adds up its gradient on a GPU in the order in which threads come; two products do not.

    Args:
        height: of the images.
        width: likewise.
        size: windows a side; they overlap where it does not divide.
    """

    rows: torch.Tensor
    columns: torch.Tensor

    def __init__(self, height: int, width: int, size: int) -> None:
        super().__init__()
        self.register_buffer("rows", _means(height, size), persistent=False)
        self.register_buffer("columns", _means(width, size).T.contiguous(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows @ x @ self.columns


def _means(length: int, size: int) -> torch.Tensor:
    """[size, length]: row i is the mean over [floor(i length / size), ceil((i + 1) length / size))."""
    means = torch.zeros(size, length)
    for i in range(size):
        first, last = i * length // size, -(-(i + 1) * length // size)
        means[i, first:last] = 1 / (last - first)
    return means
