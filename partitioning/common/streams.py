"""Random streams: every draw of the package is keyed by (seed, purpose) and touches no global state."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream is for; the numbers are part of the results, so they are never reused or changed."""

    SIZES = 1
    MIXES = 2
    DEAL = 3
    ORDER = 4
    TEST_CLIENTS = 5
    FEATURES = 6
    RANDOMISE = 7
    SHARDS = 8
    LABELS = 9
    NOISE = 10
    RELABEL = 11
    FOLDS = 20


def generator(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """Return the generator of one purpose under one seed, and of one client, column, ... under `counters`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *counters)))
