"""Code as a user writes it, which the configurations name."""

from __future__ import annotations

import numpy as np
import torch

from algorithms import SelectionContext


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


rarest.needs = ("change",)  # type: ignore[attr-defined]
