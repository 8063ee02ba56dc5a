"""Whatever happens to a run, whenever: resumed, it ends with the bytes of a run that nothing happened to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disturbed.cases import FIRST_OPTION, INJURIES, Case, survive
from tests.faults.disturbed.grid import Grid

HANDFUL = [3, 13, 8]


@pytest.fixture(scope="module")
def grid() -> Iterator[Grid]:
    with Grid() as made:
        yield made


@pytest.mark.parametrize("seed", [HANDFUL[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in HANDFUL[1:])])
def test_a_disturbed_run_ends_with_the_bytes_of_an_undisturbed_one(seed: int, tmp_path: Path, grid: Grid) -> None:
    case = Case(seed)
    grid.complete()
    outcome = survive(case, tmp_path, grid if case.on_grid else None)
    assert outcome.injured and not outcome.wrong, f"{case}: {outcome}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST_OPTION, FIRST_OPTION + 20))
def test_a_disturbed_run_with_an_option_ends_with_the_same_bytes(seed: int, tmp_path: Path, grid: Grid) -> None:
    test_a_disturbed_run_ends_with_the_bytes_of_an_undisturbed_one(seed, tmp_path, grid)


def test_the_handful_has_different_injuries() -> None:
    assert len({Case(seed).injury for seed in HANDFUL}) == len(HANDFUL) <= len(INJURIES)
