"""Day and night: shares of the available clients by the hour, and speeds that do not depend on availability."""

import numpy as np
import pytest

from algorithms import DrawnDevices
from raysim.devices.night import DAY, HOUR, night_devices, nights


def test_in_one_zone_most_are_available_at_night_and_few_at_noon() -> None:
    drawn = nights(np.random.default_rng(0), 20_000, zones=1)
    share = [float(drawn.covers(hour * HOUR).mean()) for hour in range(24)]
    # Seven nights of ten begin within an hour of 22 h, and half of them are longer than 8 hours.
    assert share[22] == pytest.approx(0.5, abs=0.02) and share[2] > 0.97 and share[6] == pytest.approx(0.5, abs=0.05)
    assert max(share[11:20]) < 0.05
    assert sum(share) / 24 == pytest.approx(8 * np.exp(0.25**2 / 2) / 24, abs=0.01)


def test_in_all_zones_the_share_is_the_same_at_every_hour() -> None:
    drawn = nights(np.random.default_rng(0), 20_000, hours=6)
    share = [float(drawn.covers(now).mean()) for now in np.arange(0, DAY, HOUR / 2)]
    assert share == pytest.approx([6 * np.exp(0.25**2 / 2) / 24] * 48, abs=0.015)


def test_nights_are_ordered_intervals_that_repeat_every_day() -> None:
    drawn = nights(np.random.default_rng(1), 5_000, hours=20)
    assert (drawn.ends > drawn.starts).all() and drawn.starts.min() == 0 and drawn.ends.max() == DAY
    assert np.diff(drawn.first).max() == 2
    inner = np.setdiff1d(np.arange(len(drawn.starts)), drawn.first)
    assert (drawn.starts[inner] >= drawn.ends[inner - 1]).all()
    assert np.array_equal(drawn.covers(5 * HOUR), drawn.covers(5 * HOUR + 3 * DAY))
    whole = [device for device in range(5_000) if drawn.until(device, 0) == np.inf]
    assert 0.1 < len(whole) / 5_000 < 0.4  # a median of 20 hours, and none is longer than a day


def test_speeds_are_those_of_clients_that_are_always_available() -> None:
    drawn = DrawnDevices(compute=50, spread=0.7, up=100, latency=0.5)
    devices = night_devices(drawn, 3, 20, 24, 8)
    for client in range(20):
        assert devices.seconds(3, client, 10, 5, 6) == pytest.approx(drawn.seconds(3, client, 10, 5, 6), rel=1e-12)
