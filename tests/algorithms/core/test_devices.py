"""DrawnDevices in virtual time: exact seconds, and what a synchronous round takes."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

import numpy as np
import pytest

from algorithms import (
    Algorithm,
    DrawnDevices,
    InputError,
    Local,
    Participation,
    Purpose,
    begin,
    ditto,
    fedavg,
    fedbn,
    generator,
    next_round,
    radfed,
)
from algorithms.options.attendance import durations
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron

Federation = Callable[..., InlineFleet]
SIZES = (11, 4, 1, 23, 0, 8)
LOCAL = Local(lr=0.1, epochs=2, batch_size=4)


def test_seconds_by_hand() -> None:
    assert DrawnDevices(compute=50).seconds(0, 3, samples=20, down=8, up=8) == 0.4
    devices = DrawnDevices(compute=50, down=4, up=2, latency=0.25)
    assert devices.seconds(0, 3, samples=20, down=8, up=8) == pytest.approx(0.4 + 2 + 4 + 0.25)
    assert devices.seconds(0, 3, samples=20, down=8, up=8, exchanges=3) == pytest.approx(0.4 + 2 + 4 + 0.75)
    assert DrawnDevices(down=0, up=None).seconds(0, 3, samples=0, down=8, up=8) == 0


def test_the_spread_is_the_clients_own() -> None:
    devices = DrawnDevices(compute=50, spread=0.5)
    assert devices.rate(7, 3) == 50 * exp(0.5 * generator(7, Purpose.DEVICE, 0, 3).standard_normal())
    assert devices.rate(7, 3) == devices.rate(7, 3) != devices.rate(7, 4)
    logarithms = np.log([devices.rate(0, client) / 50 for client in range(2000)])
    assert np.mean(logarithms) == pytest.approx(0, abs=0.04) and np.std(logarithms) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize(
    ("algorithm", "newcomers", "models"),
    [
        (fedavg(Participation(), LOCAL), 0, 1),
        (radfed(Participation(), LOCAL, aggregate_every=2), 0, 1),
        (fedbn(Participation(), LOCAL), 0, 1),
        (fedbn(Participation(), LOCAL, newcomer="average"), 1, 1),
        (ditto(Participation(), LOCAL), 0, 2),
    ],
)
def test_a_round_takes_as_long_as_its_slowest_update(
    algorithm: Algorithm, newcomers: int, models: int, federation: Federation
) -> None:
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    devices = DrawnDevices(compute=100, spread=1.0, down=1e4, up=1e3, latency=0.5)
    fleet.census = replace(fleet.census, devices=devices)
    state = begin(perceptron(True), fleet, 5)
    shared, personal = fleet.layouts.shared.nbytes, newcomers * fleet.layouts.personal.nbytes
    for number in (1, 2):
        state = next_round(state, algorithm, fleet)
        seconds = []
        for client, size in enumerate(SIZES):
            # Under batch norm a batch of one is passed over: 23 = 5 x 4 + 3, 11 = 2 x 4 + 3, and the client of one.
            used = 2 * size if size > 1 else 0
            new = personal if number == 1 or used == 0 else 0  # who takes no step keeps nothing yet
            wire = (shared + new) / 1e4 + (shared + personal) / 1e3
            seconds.append(0.5 + wire + models * used / devices.rate(5, client))
        assert state.report is not None
        assert state.report.measures["simulated_seconds"] == pytest.approx(max(seconds), rel=1e-12)


def test_every_model_of_an_update_takes_its_time(federation: Federation) -> None:
    own, plain = ditto(Participation(), LOCAL), fedavg(Participation(), LOCAL)
    fleet = federation(clients(SIZES), perceptron(True), own.sharing)
    fleet.census = replace(fleet.census, devices=DrawnDevices(compute=100))
    state = begin(perceptron(True), fleet, 5)
    assert durations(state, plain, fleet)(0) == (22, 0.22) and durations(state, own, fleet)(0) == (22, 0.44)


def test_without_devices_nothing_is_simulated(federation: Federation) -> None:
    fleet = federation(clients(SIZES), perceptron(True))
    state = next_round(begin(perceptron(True), fleet, 0), fedavg(Participation(), LOCAL), fleet)
    assert state.report is not None and not state.report.measures


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"compute": 0.0}, "devices.compute = 0.0: must be a finite number > 0"),
        ({"spread": -1.0}, "devices.spread = -1.0: must be in"),
        ({"down": -1.0}, "devices.down"),
        ({"up": float("inf")}, "devices.up"),
        ({"latency": -0.1}, "devices.latency"),
    ],
)
def test_devices_that_make_no_sense_are_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DrawnDevices(**given)
