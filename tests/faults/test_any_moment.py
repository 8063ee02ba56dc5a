"""Whatever happens to a run, whenever: resumed, it ends with the bytes of a run that nothing happened to."""

from pathlib import Path

import pytest

from .cases import INJURIES, Case, survive

HANDFUL = [2, 4, 11, 21, 39]


@pytest.mark.parametrize("seed", HANDFUL)
def test_a_disturbed_run_ends_with_the_bytes_of_an_undisturbed_one(seed: int, tmp_path: Path) -> None:
    outcome = survive(Case(seed), tmp_path)
    assert outcome.injured and not outcome.wrong, f"{Case(seed)}: {outcome}"


def test_the_handful_has_different_injuries() -> None:
    assert len({Case(seed).injury for seed in HANDFUL}) == len(HANDFUL) <= len(INJURIES)
