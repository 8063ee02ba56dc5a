"""How many actors share a GPU: tables of exact numbers."""

from math import inf

import pytest

from raysim.common.errors import InputError
from raysim.fleet.gpu_sharing import MAX_SHARERS, arranged, capacity, fraction, sharers

GB = 10**9


@pytest.mark.parametrize(
    ("peak", "total", "context", "margin", "expected"),
    [
        (1 * GB, 8 * GB, 0, 0.0, 8),
        (1 * GB, 8 * GB, 1 * GB, 0.0, 4),
        (1 * GB, 8 * GB, 0, 0.5, 4),
        (3 * GB, 8 * GB, 0, 0.0, 2),
        (3 * GB, 8 * GB, 0, 0.3, 1),
        (8 * GB, 8 * GB, 0, 0.0, 1),
        (8 * GB, 8 * GB, 1 * GB, 0.1, 1),
        (1, 80 * GB, 0, 0.1, MAX_SHARERS),
    ],
)
def test_sharers_leave_the_margin(peak: int, total: int, context: int, margin: float, expected: int) -> None:
    assert sharers(peak, total, context, margin) == expected


def test_a_part_holds_the_peak_the_context_the_data_and_the_margin() -> None:
    for total in (8 * GB, 24 * GB, 80 * GB, 141 * GB):
        for peak in range(GB // 10, total, total // 50):
            k = sharers(peak, total)
            assert k == 1 or (peak + 600 * 2**20 + 0.2 * total / k) <= 0.9 * total / k + 1
            assert k == MAX_SHARERS or (peak + 600 * 2**20) > 0.7 * total / (k + 1) - 1


@pytest.mark.parametrize(
    ("held", "gpus", "places", "actors", "expected"),
    [
        (4, 1, 16, None, (4, 4)),
        (4, 1, 2, None, (2, 2)),
        (4, 2, 16, None, (8, 4)),
        (4, 2, 5, None, (5, 3)),
        (16, 4, 4, None, (4, 1)),
        (16, 4, 0, None, (1, 1)),
        (4, 2, 16, 2, (2, 1)),
        (4, 2, 16, 3, (3, 2)),
        (4, 2, 1, 8, (8, 4)),
    ],
)
def test_actors_spread_over_the_gpus(
    held: int, gpus: int, places: int, actors: int | None, expected: tuple[int, int]
) -> None:
    assert arranged(held, gpus, places, actors) == expected


def test_more_actors_than_the_gpus_hold_are_refused() -> None:
    with pytest.raises(InputError, match=r"fleet.actors = 9: must be at most 8, .* set fleet.actors = 8"):
        arranged(4, 2, 16, 9)


@pytest.mark.parametrize(
    ("each", "nodes", "expected"),
    [
        (0, [], inf),
        (1, [2, 1], 3),
        (2, [3, 3], 2),  # not 3: none spans two nodes
        (2, [1, 1], 0),
        (0.5, [1], 2),
        (0.6, [2], 2),  # not 3: none spans two devices
        (0.6, [1, 2, 0], 3),
        (0.3333, [1], 3),
        (1, [0.0], 0),
    ],
)
def test_what_nodes_hold(each: float, nodes: list[float], expected: float) -> None:
    assert capacity(each, nodes) == expected


@pytest.mark.parametrize("count", range(1, MAX_SHARERS + 1))
def test_as_many_fractions_fit_as_were_meant(count: int) -> None:
    assert capacity(fraction(count), [1]) == capacity(1 / count, [1]) == count
    assert round(10_000 * fraction(count)) * count <= 10_000
