"""Execution of trials: one after the other in this process, or side by side in Ray processes."""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TypeAlias

from raysim.common.errors import InputError
from raysim.config import own
from raysim.fleet.calls import ActorLostError
from raysim.fleet.process_pool import ProcessPool
from raysim.fleet.ray_private import START, untold
from raysim.fleet.ray_runtime import running
from raysim.simulation.options import RunOptions
from raysim.studies.file import Study
from raysim.studies.trial import Ending, Trial, attempt

LOG = logging.getLogger("raysim.studies")

RETRIES = 3
"""Most retries of a trial whose process died."""


class InTurn(ExitStack):
    """Trials one after the other.

    Args:
        folder: folder of the trials.
        options: options of their runs.
        ray: context with Ray, entered before the first trial.
    """

    def __init__(
        self, folder: Path, options: RunOptions, ray: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__()
        self._folder, self._options, self._ray = folder, options, ray
        self._started = False
        self._waiting: deque[Trial] = deque()

    @property
    def free(self) -> bool:
        """Whether another trial could run now."""
        return not self._waiting

    @property
    def busy(self) -> int:
        """Number of trials under way."""
        return len(self._waiting)

    def begin(self, trial: Trial) -> None:
        """Start a trial."""
        if not self._started:
            self.enter_context(self._ray())
            self._started = True
        self._waiting.append(trial)

    def next(self) -> tuple[Trial, Ending]:
        """Wait for a trial that is under way; return it and its end."""
        trial = self._waiting.popleft()
        return trial, attempt(trial.experiment.to_toml(), self._folder / trial.name, self._options)


class SideBySide(ExitStack):
    """Trials side by side, each inline in its own process; if a process dies, its trial resumes in another.

    Args:
        folder: folder of the trials.
        processes: Ray processes.
        notice: receives notices for the user.
    """

    def __init__(self, folder: Path, processes: ProcessPool, notice: Callable[[str], None]) -> None:
        super().__init__()
        self._folder, self._processes, self._notice = folder, self.enter_context(processes), notice
        self._deaths: Counter[str] = Counter()

    @property
    def free(self) -> bool:
        return self._processes.free

    @property
    def busy(self) -> int:
        return self._processes.busy

    def begin(self, trial: Trial) -> None:
        folder = (self._folder / trial.name).absolute()
        self._processes.begin(trial, attempt, trial.experiment.to_toml(), folder, RunOptions(inline=True))

    def next(self) -> tuple[Trial, Ending]:
        while True:
            trial, ending = self._processes.next()
            if not isinstance(ending, ActorLostError):
                return trial, ending
            self._deaths[trial.name] += 1
            if self._deaths[trial.name] > RETRIES:
                return trial, ("failed", f"its process died {RETRIES + 1} times: {ending.cause}")
            self._notice(f"{trial.name}: its process died ({ending.cause}); it resumes in another")
            self.begin(trial)


TrialRunner: TypeAlias = InTurn | SideBySide


def runner_for(study: Study, folder: Path, options: RunOptions, notice: Callable[[str], None]) -> TrialRunner:
    """Return the runner for a study's trials.

    If the study file sets client actors or GPUs, its trials run one after the other, and each has all of them.

    Args:
        study: resolved study.
        folder: folder of the trials.
        options: options of the study; `actors` counts trials at once, or the client actors of a trial.
        notice: receives notices for the user.

    Raises:
        InputError: the options do not go together.
    """
    for dataset in study.datasets:
        options.placed(dataset.experiment)
        options.check_gpus(dataset.experiment)
    tables = [dataset.experiment.fleet for dataset in study.datasets]
    if options.inline:
        return InTurn(folder, options)
    if lacking := untold(START):
        notice(lacking)
    cpus = max(table.cpus_per_actor for table in tables)
    if any(table.gpus_per_actor or table.actors for table in tables):
        cores = os.cpu_count() or 1
        most = max(options.actors or table.actors or max(1, cores // table.cpus_per_actor) for table in tables)
        return InTurn(folder, options, lambda: running(most * cpus, options.address or os.environ.get("RAY_ADDRESS")))
    for name in own.names_in(study.raw):
        if name.startswith("__main__:"):
            raise InputError(
                f"{name} is of a script: must be of a module that other processes can import; move it to one, or set "
                "inline = True"
            )
    return SideBySide(folder, ProcessPool(options.actors, cpus, options.address), notice)
