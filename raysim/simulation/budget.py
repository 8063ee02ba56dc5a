"""Length of runs and of client updates: a budget of epochs in rounds, and the memory that the batches' rows take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from algorithms import Algorithm, Census, Local
from algorithms.centralized import UnionRounds
from raysim.common.errors import InputError

ROW_BYTES = 32
"""Bytes of a sample's place in the plan of a client update: its number in four arrays."""

BATCH_BYTES = 300
"""Bytes of a batch in the plan of a client update, besides its rows."""

PLAN_BYTES = 2**30
"""Largest plan of the client updates of a stack. Real ones have megabytes: 10 epochs of ImageNet take 0.5 GB."""

MOST_ROUNDS = 10**9
"""Largest number of rounds that a budget of epochs may come to."""


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
    rounds = epochs * float(samples.sum()) / (cohort * float(per_update))
    if rounds > MOST_ROUNDS:
        raise InputError(f"epochs = {epochs:g}: are {rounds:.3g} rounds: must be at most {MOST_ROUNDS:g}; set fewer")
    return max(1, round(rounds))


def check_updates(algorithm: Algorithm, census: Census, lanes: int) -> None:
    """Refuse client updates, `lanes` at once, so long that the plan of their batches fills the memory.

    Raises:
        InputError: the plan takes more than `PLAN_BYTES`.
    """
    largest = census.samples.max(initial=0, keepdims=True)
    for phase in algorithm.phases:
        samples = census.samples.sum(keepdims=True) if isinstance(phase.schedule, UnionRounds) else largest
        local = phase.local.fitted(census)
        rows = float(samples_per_update(local, samples)[0]) * local.method.repeats
        batches = rows / max(1, int(samples[0]) if local.batch_size == "full" else local.batch_size)
        size = lanes * (ROW_BYTES * rows + BATCH_BYTES * max(batches, rows / max(1, int(samples[0]))))
        if size > PLAN_BYTES:
            name = next(key for key in ("steps", "batches", "epochs") if isinstance(getattr(local, key), int))
            each = f" with {local.method.repeats} steps on each batch" if local.method.repeats > 1 else ""
            raise InputError(
                f"local.{name} = {getattr(local, name)}{each}: the batches of {lanes} client updates of {rows:,.0f} "
                f"samples take {size / 1e9:,.1f} GB: must be at most {PLAN_BYTES / 1e9:.1f} GB; set a smaller number, "
                "and more rounds"
            )


def samples_per_update(local: Local, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the samples that an update of each client uses, [K]: those of its batches on average, repeats left out."""
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
