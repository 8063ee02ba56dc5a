"""What a population looks like in numbers."""

from dataclasses import dataclass

import numpy as np

from partitioning.checks import Integers


@dataclass(frozen=True)
class Statistics:
    """A row of RADFed's Table I: client sizes and how far class mixes are from the global one."""

    clients: int
    samples: int
    classes: int
    min: int
    max: int
    mean: float
    std: float
    c_score: float


def summarise(class_counts: Integers) -> Statistics:
    """Summarise the sizes and class mixes of all clients.

    C-score = 1/K sum_k sum_c |r_kc - R_c|   with r a client's class shares and R those of all data: 0 to 2

    Args:
        class_counts: samples a client and class [K, C].

    RADFed, section V-C and Table I. Clients without samples have no class shares and are left out of the
    C-score; the standard deviation is that of these clients (divided by K, not K - 1).
    """
    sizes = class_counts.sum(axis=1)
    filled = class_counts[sizes > 0]
    shares = filled / filled.sum(axis=1, keepdims=True)
    distances = np.abs(shares - filled.sum(axis=0) / max(filled.sum(), 1)).sum(axis=1)
    return Statistics(
        clients=sizes.size,
        samples=int(sizes.sum()),
        classes=class_counts.shape[1],
        min=int(sizes.min()),
        max=int(sizes.max()),
        mean=float(sizes.mean()),
        std=float(sizes.std()),
        c_score=float(distances.mean()) if distances.size else 0.0,
    )
