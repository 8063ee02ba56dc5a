"""Conversion of a budget of epochs to rounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from algorithms import Algorithm, Census, Local
from algorithms.centralized import UnionRounds
from raysim.common.errors import InputError


def rounds_of(epochs: float, algorithm: Algorithm, census: Census) -> int:
    """Return the number of rounds in which all clients together pass all training data `epochs` times.

        rounds = max(1, round(epochs N / (m v)))

    N is the number of all training samples, m the cohort's size, and v the mean over all K clients of the samples that
    a client update uses. Centralised training counts as one client with all the data. The formula also serves cohorts
    that are not uniform, or not whole because clients are inactive.

    Args:
        epochs: passes over all training data, > 0.
        algorithm: algorithm; `local` of its first phase counts for all phases.
        census: training clients.

    Raises:
        InputError: no client has a sample to train on.
    """
    local = algorithm.local.fitted(census)
    samples = census.samples
    if isinstance(algorithm.schedule, UnionRounds):
        samples = samples.sum(keepdims=True)
    per_update = samples_per_update(local, samples).mean()
    if not per_update:
        raise InputError(f"epochs = {epochs}: must count training samples, but no client has any; set rounds instead")
    cohort = algorithm.schedule.size(len(census.clients))
    return max(1, round(epochs * float(samples.sum()) / (cohort * float(per_update))))


def samples_per_update(local: Local, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the samples that an update of each client uses, [K]: the average over the batches of `Local.plan`.

    Args:
        local: training of a client.
        samples: number of samples of each client, [K].
    """
    if local.epochs is not None:
        return samples.astype(np.float64) * local.epochs
    size = np.minimum(samples, samples if local.batch_size == "full" else local.batch_size)
    # The steps make some whole passes, each with a smaller last batch, and the remaining steps use whole batches.
    a_pass = np.maximum(1, -(-samples // np.maximum(1, size)))
    if local.batches is not None:
        updates: NDArray[np.int64] = -(-a_pass // local.batches)
        return np.divide(samples, updates)
    whole, rest = np.divmod(int(local.steps or 0), a_pass)
    return np.asarray(whole * samples + rest * size, np.float64)
