"""Keyed streams: all at once are the same as one by one."""

import numpy as np
import pytest

from algorithms.core.keys import Purpose, Streams, generator

CLIENTS = [0, 1, 7, 12_345, 2**31, 2**32 - 1]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**70 + 3])
@pytest.mark.parametrize("counter", [0, 5, 2**32 - 1, 2**33])
def test_streams_are_those_of_the_generator(seed: int, counter: int) -> None:
    streams = Streams(seed, Purpose.BATCHES, counter, CLIENTS)
    for place in (3, 0, 5, 1, 2, 4, 3):
        one, other = streams.at(place), generator(seed, Purpose.BATCHES, counter, CLIENTS[place])
        np.testing.assert_array_equal(one.permutation(40), other.permutation(40))
        np.testing.assert_array_equal(one.integers(2**63, size=3), other.integers(2**63, size=3))
        # A draw of 32 bits, whose other half a generator may keep.
        assert one.integers(10, dtype=np.int32) == other.integers(10, dtype=np.int32)


def test_a_client_with_a_long_number_has_its_own_stream() -> None:
    streams = Streams(3, Purpose.DROPOUT, 1, [2**40, 2])
    assert streams.at(0).random() == generator(3, Purpose.DROPOUT, 1, 2**40).random()
    assert streams.at(1).random() == generator(3, Purpose.DROPOUT, 1, 2).random()
