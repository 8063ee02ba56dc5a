"""TensorBoard: an event folder for each algorithm, RUN/watch/tensorboard/ALGORITHM, so that all compare in one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raysim.loggers.logger import Watched, titled

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Writes scalars by round and, at the end, hyper-parameters with the final metrics."""

    _run: Watched
    _settings: Mapping[str, Any]
    _writer: SummaryWriter | None = None

    def begin(self, run: Watched) -> None:
        """Nothing is to do before the first algorithm."""
        self._run = run

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Open the algorithm's events; those of rounds that are done again are left out by whoever reads them."""
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self._settings = settings
        folder = self._run.folder / "tensorboard" / name
        # Only a folder that is there has events to be purged.
        purged = done + 1 if folder.exists() else None
        self._writer = SummaryWriter(folder, purge_step=purged)  # type: ignore[no-untyped-call]

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Write a scalar a column, the round being its step."""
        if self._writer is not None:
            for column, value in row.items():
                self._writer.add_scalar(titled(column), value, number)  # type: ignore[no-untyped-call]

    def end(self, summary: Mapping[str, float]) -> None:
        """Write the hyper-parameters and what they came to."""
        if self._writer is not None:
            plain = {
                key: each if isinstance(each, _PLAIN) else json.dumps(each) for key, each in self._settings.items()
            }
            final = {f"final/{name}": value for name, value in summary.items()}
            # In the same folder: a folder of its own would be one more algorithm.
            self._writer.add_hparams(plain, final, run_name=".")  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the events of the algorithm."""
        if self._writer is not None:
            self._writer.close()  # type: ignore[no-untyped-call]
            self._writer = None


_PLAIN = (bool, str, float, int)
