"""A budget of passes over all training data, in rounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from algorithms import Algorithm, Census, Local
from algorithms.centralized import United
from raysim.common.errors import InputError


def rounds_of(epochs: float, algorithm: Algorithm, census: Census) -> int:
    """The rounds in which all clients together make so many passes over all training data.

        rounds = max(1, round(epochs N / (m v)))

    with N all training samples, m the cohort's size and v the mean over all K clients of what a visit of theirs trains
    on; where their data are united, of one client who has it all. Where cohorts are drawn in another way, or not all
    clients are active, m v is the expectation of whole uniform cohorts all the same.

    Args:
        epochs: passes, > 0.
        algorithm: its first phase's `local` counts for all of them.
        census: the training clients.

    Raises:
        InputError: no client has a sample to train on.
    """
    local = algorithm.local.fitted(census)
    samples = census.samples
    if isinstance(algorithm.schedule, United):
        samples = samples.sum(keepdims=True)
    per_update = updated(local, samples).mean()
    if not per_update:
        raise InputError(f"epochs = {epochs}: must be of training samples, and no client has any; set rounds instead")
    cohort = algorithm.schedule.size(len(census.clients))
    return max(1, round(epochs * float(samples.sum()) / (cohort * float(per_update))))


def updated(local: Local, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many samples a visit of each client goes through, batch after batch; those of `Local.plan`, on average.

    Args:
        local: what a visit does.
        samples: of each client [K].
    """
    if local.epochs is not None:
        return samples.astype(np.float64) * local.epochs
    size = np.minimum(samples, samples if local.batch_size == "full" else local.batch_size)
    # Of so many steps some make whole passes, the last batch of which may be smaller, and the rest are whole batches.
    a_pass = np.maximum(1, -(-samples // np.maximum(1, size)))
    if local.batches is not None:
        updates: NDArray[np.int64] = -(-a_pass // local.batches)
        return np.divide(samples, updates)
    whole, rest = np.divmod(int(local.steps or 0), a_pass)
    return np.asarray(whole * samples + rest * size, np.float64)
