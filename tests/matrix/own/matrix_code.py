"""Code as a user writes it, which the configurations name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from algorithms import Layout, Memory, Packed, SelectionContext
from algorithms.core.report import UpdateRows


def rarest(context: SelectionContext) -> list[int]:
    """Choose the clients that took part least often; a drawn number decides among equals."""
    counts = context.memory.setdefault("counts", np.zeros(len(context.clients)))
    if len(context.reports):
        counts[np.searchsorted(context.clients, context.reports["client"])] += 1 + context.reports["change"]
    order = np.lexsort((context.rng.random(len(counts)), counts))
    chosen: list[int] = context.clients[order[context.available[order]]][: context.size].tolist()
    return chosen


def cutout(sample: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Blacken a square of an image."""
    top, left = torch.randint(0, 6, (2,), generator=generator).tolist()
    sample[:, top : top + 3, left : left + 3] = 0
    return sample


def contrastive(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the contrastive loss of all pairs of a batch."""
    distances = (outputs[:, None] - outputs).square().mean(2)
    alike = (y[:, None] == y).to(outputs.dtype)
    return (alike * distances + (1 - alike) * torch.relu(1 - distances)).mean()


@dataclass(frozen=True)
class Extrapolated:
    """FedExP: w <- w + max(1, sum_k p_k |d_k|^2 / (2 (|d|^2 + eps))) d, d_k = w_k - w, d the weighted mean of the d_k.

    Args:
        eps: epsilon, > 0.
    """

    eps: float = 1e-3

    needs = ("change",)

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout, updates: UpdateRows
    ) -> tuple[Packed, Memory]:
        step = np.where(layout.parameters, mean.floats.astype(np.float64) - model.floats, 0.0)
        counted = updates.weights > 0
        squares = updates.weights[counted] @ updates.column("change")[counted] / total
        rate = max(1.0, squares / (2 * (np.square(step).sum() + self.eps)))
        return replace(mean, floats=(mean.floats + (rate - 1) * step).astype(mean.floats.dtype)), {
            "rate": np.array(rate)
        }


rarest.needs = ("change",)  # type: ignore[attr-defined]


def steady(context):
    """Every other client stays with its last model; the others choose by loss, or anything in the beginning."""
    best = context.losses.argmin(1)
    drawn = context.rng.integers(0, context.losses.shape[1], len(best))
    first = np.where(context.round == 0, drawn, best)
    return np.where((context.chosen >= 0) & (context.clients % 2 == 0), context.chosen, first)
