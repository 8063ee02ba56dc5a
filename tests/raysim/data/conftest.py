"""Real data, for the tests that read them, and a cache for each test."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let populations that a test prepares be in its own folder."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def real() -> Callable[[str], Path]:
    """Return a function that finds a real file by name, or skips the test."""
    folder = Path(os.environ.get("RAYSIM_TEST_DATA") or REPOSITORY.parent / "shared" / "data")

    def find(name: str) -> Path:
        if not (folder / name).exists():
            pytest.skip(f"no real {name}: set RAYSIM_TEST_DATA to a folder that holds it")
        return folder / name

    return find
