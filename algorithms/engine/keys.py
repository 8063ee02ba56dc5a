"""Keyed randomness: every draw is named by (seed, purpose, counter, client), never by the order of calls."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of every result: append, never renumber."""

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
    """The random stream of one key.

    Args:
        seed: the run's seed, >= 0.
        purpose: what is drawn.
        counter: the round, dispatch or pass that draws, >= 0.
        client: the client for whom, >= 0; 0 where the draw is the server's (its purposes are its own).
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, purpose, counter, client))))


def torch_seed(seed: int, purpose: Purpose, counter: int = 0, client: int = 0) -> int:
    """A 63-bit seed of the same key, for code that draws from torch."""
    return int(generator(seed, purpose, counter, client).integers(2**63))
