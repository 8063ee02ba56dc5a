"""Availability: intervals by hand, periods, and the look-up of all devices against that of each."""

from math import inf

import numpy as np
import pytest

from algorithms import Availability


def availability(*devices: tuple[float, list[tuple[float, float]]]) -> Availability:
    """Return the availability of devices, each given as its period and its intervals."""
    intervals = [interval for _, own in devices for interval in own]
    first = np.cumsum([0, *(len(own) for _, own in devices)])
    starts, ends = (np.array([each[side] for each in intervals], float) for side in (0, 1))
    return Availability(first, starts, ends, np.array([period for period, _ in devices]))


def test_once() -> None:
    devices = availability((inf, [(1, 2), (3, 5)]), (inf, []))
    assert [devices.until(0, now) for now in (0, 1, 1.5, 2, 4, 5, 9)] == [0, 2, 2, 2, 5, 5, 9]
    assert [devices.until(1, now) for now in (0, 3)] == [0, 3]
    assert [devices.wait(now).tolist() for now in (0, 1, 2, 5)] == [[1, inf], [0, inf], [1, inf], [inf, inf]]


def test_every_day() -> None:
    devices = availability((24, [(0, 6), (22, 24)]), (24, [(0, 24)]), (10, [(2, 3)]))
    assert [devices.until(0, now) for now in (5, 6, 22, 23, 24, 30, 47)] == [6, 6, 30, 30, 30, 30, 54]
    assert devices.until(1, 7) == inf
    assert devices.wait(8).tolist() == [14, 0, 4] and devices.wait(32).tolist() == [14, 0, 0]


def test_intervals_that_touch_are_one() -> None:
    assert availability((inf, [(1, 2), (2, 4)])).until(0, 1) == 4


@pytest.mark.parametrize("seed", range(20))
def test_all_devices_are_looked_up_like_each(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(30):
        times = np.sort(rng.choice(100, 2 * int(rng.integers(0, 6)), replace=False)).tolist()
        pairs = list(zip(times[::2], times[1::2], strict=True))
        drawn.append((float(rng.choice([100.0, 120.0, inf])), pairs))
    devices = availability(*drawn)
    for now in rng.integers(0, 400, 30).tolist():
        covers, wait = devices.covers(now), devices.wait(now)
        for device, (period, pairs) in enumerate(drawn):
            time = now if period == inf else now % period
            assert covers[device] == any(start <= time < end for start, end in pairs)
            assert covers[device] == (devices.until(device, now) > now) == (wait[device] == 0)
            if np.isfinite(wait[device]):
                assert devices.until(device, now + wait[device]) > now + wait[device]
