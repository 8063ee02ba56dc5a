"""Keyed randomness: (seed, purpose, counter, client) names every draw, never the order of calls."""

import threading
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


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
    SAMPLE = 23
    FINETUNE = 24
    UPLINK = 25
    DOWNLINK = 26
    ATTACKERS = 30
    ATTACK = 31
    PRIVACY = 40
    CLUSTERS = 45
    DEVICE_ROW = 50
    NIGHT = 51
    DEVICE_TABLE = 52
    TIES = 53
    OWN_TRIAL = 60
    OWN_BLOCK = 61
    OWN_UPDATE = 62
    OWN_UPLINK = 63
    OWN_REPORT = 64
    OWN_SCORE = 65
    OWN_ROUND = 66
    OWN_RECORD = 67
    OWN_SELECTION = 68
    OWN_CHOICE = 69
    GRAPH = 70
    EDGES = 80
    LEVELS = 81
    OWN_VIEWS = 90
    OWN_TABLES = 91
    ADAPTERS = 100


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


class Streams:
    """Random streams of many clients for one seed, purpose and counter; equal to those of `generator`, but faster.

    NumPy's `SeedSequence` and `PCG64` are fixed algorithms, and their streams never change. Here the keys of all
    clients are hashed at once, and one generator takes the state of each client in turn.

    Args:
        seed: seed of the run, >= 0.
        purpose: purpose of the draws.
        counter: number of the round, dispatch or pass, >= 0.
        clients: ids of the clients.
    """

    def __init__(self, seed: int, purpose: Purpose, counter: int, clients: Sequence[int]) -> None:
        self._key, self._clients = (seed, purpose, counter), clients
        # A longer number would be several words of the key.
        short = max(seed, counter, *clients, 0) < 2**32
        self._seeds = _seeds(self._key, np.array(clients, np.uint32)).tolist() if short else None

    def at(self, place: int) -> np.random.Generator:
        """Return a client's stream from its start, valid until the next call; `place` counts the clients from 0."""
        if self._seeds is None:
            return generator(*self._key, self._clients[place])
        high, low, stream_high, stream_low = self._seeds[place]
        increment = ((stream_high << 64 | stream_low) << 1 | 1) & MASK
        state = ((increment + (high << 64 | low)) * PCG_MULTIPLIER + increment) & MASK
        if not hasattr(LOCAL, "generator"):
            LOCAL.generator = np.random.Generator(np.random.PCG64(0))
        drawn: np.random.Generator = LOCAL.generator
        drawn.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        return drawn


LOCAL = threading.local()
"""Generator that takes the state of one stream after the other, one for each thread: a new one costs more."""

MASK = 2**128 - 1
PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
"""Multiplier of PCG64's step."""

Words = NDArray[np.uint32]


def _constants(first: int, factor: int, count: int) -> Words:
    """Return the constants of a chain of hashes, [count + 1, 1]: those before each hash, and the one after the last."""
    constants = [first]
    while len(constants) <= count:
        constants.append(constants[-1] * factor % 2**32)
    return np.array(constants, np.uint32)[:, None]


POOL = _constants(0x43B0D7E5, 0x931E8875, 16)
"""Constants of `SeedSequence` for its pool: one for each word of the key, then one for each pair of words."""

GIVEN = _constants(0x8B51F9DD, 0x58F38DED, 8)
"""Constants of `SeedSequence` for the words that it gives."""


HALF, LEFT, RIGHT = np.uint32(16), np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
"""Shift and factors of `SeedSequence`."""


def _hashed(words: Words, before: Words, after: Words) -> Words:
    hashed: Words = (words ^ before) * after
    return hashed ^ hashed >> HALF


def _mixed(target: Words, hashed: Words) -> Words:
    mixed: Words = LEFT * target - RIGHT * hashed
    return mixed ^ mixed >> HALF


@lru_cache(16)
def _prefix(key: tuple[int, int, int]) -> tuple[Words, Words]:
    """Return the part of a pool that does not depend on the client: words 0 to 2, and what word 3 is mixed with."""
    words, given = list(_hashed(np.array(key, np.uint32)[:, None], POOL[:3], POOL[1:4])), []
    for source in range(3):
        start = 4 + 3 * source
        hashed = _hashed(words[source], POOL[start : start + 3], POOL[start + 1 : start + 4])
        others = [target for target in range(3) if target != source]
        for target, each in zip(others, hashed, strict=False):
            words[target] = _mixed(words[target], each)
        given.append(hashed[2])
    return np.array(words), np.array(given)


def _seeds(key: tuple[int, int, int], clients: Words) -> NDArray[np.uint64]:
    """Return the four 64-bit words, [n, 4], by which `SeedSequence((*key, client))` seeds a PCG64."""
    words, given = _prefix(key)
    last = _hashed(clients, POOL[3], POOL[4])
    for hashed in given:
        last = _mixed(last, hashed)
    pool = np.empty((8, len(clients)), np.uint32)
    pool[:3] = pool[4:7] = _mixed(words, _hashed(last, POOL[13:16], POOL[14:17]))
    pool[3] = pool[7] = last
    whole = _hashed(pool, GIVEN[:8], GIVEN[1:9]).astype(np.uint64)
    return (whole[::2] | whole[1::2] << np.uint64(32)).T
