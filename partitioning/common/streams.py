"""Random streams: every draw is keyed by seed and purpose, without global state."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """Purpose of a random stream; its numbers decide the results and never change."""

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
    """Return the generator of a seed and a purpose; `counters` number clients, columns, and so on."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(purpose), *counters)))
