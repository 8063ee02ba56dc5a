"""TensorBoard: an event folder for each algorithm, RUN/watch/tensorboard/ALGORITHM, so that all compare in one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raysim.watching.loggers.logger import Watched, titled

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

PLAIN = (bool, str, float, int)
"""What TensorBoard takes as a hyper-parameter."""


class TensorBoard:
    """Writes scalars by round and, at the end, hyper-parameters with the final metrics."""

    _run: Watched
    _settings: Mapping[str, Any]
    _writer: SummaryWriter | None = None

    def begin(self, run: Watched) -> None:
        """Nothing is to do before the first algorithm."""
        self._run = run

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Begin the algorithm's events; those that are there are told again."""
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self._settings = settings
        folder = self._run.folder / "tensorboard" / name
        shutil.rmtree(folder, ignore_errors=True)
        self._writer = SummaryWriter(folder)

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Write a scalar a column, the round being its step."""
        if self._writer is not None:
            for column, value in row.items():
                self._writer.add_scalar(titled(column), value, number)

    def end(self, summary: Mapping[str, float]) -> None:
        """Write the hyper-parameters and what they came to."""
        if self._writer is not None:
            given = self._settings
            plain = {name: value if isinstance(value, PLAIN) else json.dumps(value) for name, value in given.items()}
            final = {f"final/{name}": value for name, value in summary.items()}
            # In the same folder: a folder of its own would be one more algorithm.
            self._writer.add_hparams(plain, final, run_name=".")

    def close(self) -> None:
        """Close the events of the algorithm."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
