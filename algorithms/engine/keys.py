"""Keyed randomness: (seed, purpose, counter, client) names every draw, never the order of calls."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """Purpose of a draw. The numbers are part of every result: append, never renumber."""

    INITIALISE = 1
    COHORT = 2
    DEAL = 3
    BATCHES = 4
    TEST_ROWS = 5
    DROPOUT = 6
    DEVICE = 7
    AUGMENT = 8
    TWIN = 10
    ACTIVE = 11
    DOMAIN_ROWS = 20
    SHIFT = 21
    SYNTHETIC = 22


def generator(seed: int, purpose: Purpose, counter: int = 0, client: int = 0) -> np.random.Generator:
    """Return the random stream of one key.

    Args:
        seed: seed of the run, >= 0.
        purpose: purpose of the draws.
        counter: number of the round, dispatch or pass, >= 0.
        client: id of the client, >= 0; 0 for draws of the server, which have purposes of their own.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, purpose, counter, client))))


def torch_seed(seed: int, purpose: Purpose, counter: int = 0, client: int = 0) -> int:
    """Return a 63-bit seed of a key, for code that draws from torch."""
    return int(generator(seed, purpose, counter, client).integers(2**63))
