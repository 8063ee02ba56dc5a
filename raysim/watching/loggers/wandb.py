"""Weights & Biases: a run per algorithm in a group, offline unless `watch.wandb_mode` is "online"."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from partitioning.common.paths import read_text
from raysim.common.errors import InputError
from raysim.watching.loggers.logger import LoggedRun, metric_path

if TYPE_CHECKING:
    from wandb import Run


class WandB:
    """Logger that writes RUN/watch/wandb/offline-run-* for `wandb sync`, or sends every round at once."""

    _run: LoggedRun
    _logged: Run | None = None

    def begin(self, run: LoggedRun) -> None:
        """Check that an online logger has an API key, because W&B would ask for it on the terminal."""
        # W&B must contact only the user's server.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        if run.table.wandb_mode == "online" and not wandb.api.api_key:
            raise InputError(
                'watch.wandb_mode = "online": must find an API key of W&B; run `wandb login`, or set WANDB_API_KEY'
            )
        self._run = run

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Begin a W&B run, or continue the one with the id in RUN/watch/wandb/ALGORITHM.id."""
        import wandb

        self.close()
        folder = self._run.folder / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / f"{name}.id"
        if not known.exists():
            known.write_text(secrets.token_hex(8), encoding="utf-8")
        identity = read_text(known)
        for before in folder.glob(f"offline-run-*-{identity}"):
            shutil.rmtree(before)  # Every round is logged again.
        self._logged = wandb.init(
            project=self._run.project,
            group=self._run.name,
            name=f"{self._run.name}/{name}",
            id=identity,
            resume="allow",
            dir=str(self._run.folder),
            mode=self._run.table.wandb_mode,
            config=dict(settings),
            # The terminal and the working directory may hold more than the run.
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Log a round as a step unless W&B's server has it."""
        if self._logged is not None and number >= self._logged.step:
            self._logged.log({metric_path(column): value for column, value in row.items()}, step=number)

    def end(self, summary: Mapping[str, float]) -> None:
        """Log the final metrics and end the W&B run."""
        if self._logged is not None:
            self._logged.summary.update({f"final/{name}": value for name, value in summary.items()})
            self._logged.finish()
            self._logged = None

    def close(self) -> None:
        """Mark an unfinished W&B run as stopped."""
        if self._logged is not None:
            self._logged.finish(exit_code=1)
            self._logged = None
