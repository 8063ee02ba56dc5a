"""Weights & Biases: a run for each algorithm, in a group; offline unless `watch.wandb_mode` is "online"."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raysim.common.errors import InputError
from raysim.watching.loggers.logger import Watched, titled

if TYPE_CHECKING:
    from wandb import Run


class WandB:
    """Writes RUN/watch/wandb/offline-run-*, which `wandb sync` sends, or sends at once."""

    _run: Watched
    _logged: Run | None = None

    def begin(self, run: Watched) -> None:
        """Check that there is a key where runs are sent at once: W&B would ask for one on the terminal."""
        # Nothing is sent but to the user's server.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        if run.table.wandb_mode == "online" and not wandb.api.api_key:
            raise InputError(
                'watch.wandb_mode = "online": must find a key of W&B; run `wandb login`, or set WANDB_API_KEY'
            )
        self._run = run

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Begin a run of W&B's, or go on with the one whose id is in RUN/watch/wandb/ALGORITHM.id."""
        import wandb

        self.close()
        folder = self._run.folder / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / f"{name}.id"
        if not known.exists():
            known.write_text(secrets.token_hex(8), encoding="utf-8")
        identity = known.read_text(encoding="utf-8")
        for before in folder.glob(f"offline-run-*-{identity}"):
            shutil.rmtree(before)  # all of it is told again
        self._logged = wandb.init(
            project=self._run.project,
            group=self._run.name,
            name=f"{self._run.name}/{name}",
            id=identity,
            resume="allow",
            dir=str(self._run.folder),
            mode=self._run.table.wandb_mode,
            config=dict(settings),
            # What is on the screen, and in the working folder, is not the run's.
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
        )

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Log a round as a step, unless W&B's server has it already."""
        if self._logged is not None and number >= self._logged.step:
            self._logged.log({titled(column): value for column, value in row.items()}, step=number)

    def end(self, summary: Mapping[str, float]) -> None:
        """Write the final metrics; W&B's run has ended."""
        if self._logged is not None:
            self._logged.summary.update({f"final/{name}": value for name, value in summary.items()})
            self._logged.finish()
            self._logged = None

    def close(self) -> None:
        """A run of W&B's that has not ended was stopped."""
        if self._logged is not None:
            self._logged.finish(exit_code=1)
            self._logged = None
