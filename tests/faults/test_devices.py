"""Hostile tables of devices: each is read, or refused in one line."""

import pytest

from tests.faults.devices import check

MANY = range(100, 1100)


def ends(seeds: range) -> set[str]:
    found = {seed: check(seed) for seed in seeds}
    assert {seed: wrong for seed, (_, wrong) in found.items() if wrong} == {}
    return {end for end, _ in found.values()}


def test_hostile_tables_of_devices() -> None:
    assert ends(range(100)) == {"read", "refused"}


@pytest.mark.slow
def test_a_thousand_hostile_tables_of_devices() -> None:
    ends(MANY)
