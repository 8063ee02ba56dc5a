"""Runs at a URI that end early."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from raysim.simulation.stop import Stop
from raysim.watching.progress import Watcher

EXPERIMENT: dict[str, Any] = {
    "rounds": 6,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 6, "test_clients": 2},
    "model": {"name": "mlp", "hidden": [6], "norm": "batch"},
    "algorithm": {"name": "fedbn", "cohort": 3},
    "local": {"lr": 0.1, "batch_size": 32},
    "evaluate": {"every": 2},
}


class Ends(Watcher):
    """Asks for a stop after a round, or raises an error; keeps what the store held after each round."""

    def __init__(self, far: Path, after: int, error: type[Exception] | None = None) -> None:
        self.stop, self._far, self._after, self._error = Stop(), far, after, error
        self.notices: list[str] = []
        self.copies: list[Path] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def round(self, number: int, metrics: dict[str, float]) -> None:
        copy = self._far.with_name(f"after-{number}")
        with suppress(FileNotFoundError, shutil.Error):  # a file may go meanwhile
            shutil.copytree(self._far, copy)
        self.copies.append(copy)
        if number == self._after:
            if self._error is not None:
                raise self._error
            self.stop.asked = True


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def assert_same(folder: Path, whole: Path) -> None:
    assert names(folder) == names(whole)
    for name in ("model", "personal"):
        file = f"fedbn/{name}.safetensors"
        assert (folder / file).read_bytes() == (whole / file).read_bytes()
