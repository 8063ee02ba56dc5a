"""TensorBoard: an event folder per algorithm, RUN/watch/tensorboard/ALGORITHM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raysim.watching.loggers.logger import LoggedRun, metric_path

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

PLAIN = (bool, str, float, int)
"""Types of a hyper-parameter in TensorBoard."""


class TensorBoard:
    """Logger of scalars by round and, at the end, of hyper-parameters with the final metrics."""

    _run: LoggedRun
    _settings: Mapping[str, Any]
    _writer: SummaryWriter | None = None

    def begin(self, run: LoggedRun) -> None:
        """Keep the run's name and folder."""
        self._run = run

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Begin the algorithm's event folder anew."""
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self._settings = settings
        folder = self._run.folder / "tensorboard" / name
        for events in folder.glob("events.out.tfevents.*"):
            events.unlink()
        self._writer = SummaryWriter(folder)

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Write a scalar per column, with the round as step."""
        if self._writer is not None:
            for column, value in row.items():
                self._writer.add_scalar(metric_path(column), value, number)

    def end(self, summary: Mapping[str, float]) -> None:
        """Write the hyper-parameters and the final metrics."""
        if self._writer is not None:
            given = self._settings
            plain = {name: value if isinstance(value, PLAIN) else json.dumps(value) for name, value in given.items()}
            final = {f"final/{name}": value for name, value in summary.items()}
            # TensorBoard would show a folder of their own as another algorithm.
            self._writer.add_hparams(plain, final, run_name=".")

    def close(self) -> None:
        """Close the algorithm's event folder."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
