"""Where trials run: one after the other here, or side by side in processes of Ray."""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Protocol

from raysim.common.errors import InputError
from raysim.config import own
from raysim.fleet.process_pool import ProcessPool
from raysim.fleet.ray_runtime import running
from raysim.fleet.results import ActorLostError
from raysim.simulation.options import RunOptions, placed
from raysim.studies.file import Study
from raysim.studies.trial import Ending, Trial, attempt

LOG = logging.getLogger("raysim.studies")

RETRIES = 3
"""How often a trial is run again whose process died."""


class Place(Protocol):
    """Runs trials; a context that ends what it started."""

    @property
    def free(self) -> bool:
        """Whether another trial could run now."""

    @property
    def busy(self) -> int:
        """How many are under way."""

    def begin(self, trial: Trial) -> None:
        """Have a trial run."""

    def next(self) -> tuple[Trial, Ending]:
        """Wait for one that is under way, and how it ended."""

    def __enter__(self) -> Place: ...

    def __exit__(self, *_: object) -> None: ...


class InTurn:
    """Trials one after the other.

    Args:
        folder: of the trials.
        how: each is run.
        ray: what they run on, entered with the first.
    """

    def __init__(
        self,
        folder: Path,
        how: RunOptions,
        ray: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._folder, self._how, self._ray = folder, how, ray
        self._stack = ExitStack()
        self._started = False
        self._waiting: deque[Trial] = deque()

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def free(self) -> bool:
        return not self._waiting

    @property
    def busy(self) -> int:
        return len(self._waiting)

    def begin(self, trial: Trial) -> None:
        if not self._started:
            self._stack.enter_context(self._ray())
            self._started = True
        self._waiting.append(trial)

    def next(self) -> tuple[Trial, Ending]:
        trial = self._waiting.popleft()
        return trial, attempt(trial.experiment.to_toml(), self._folder / trial.name, self._how)


class SideBySide:
    """Trials side by side, each inline in a process of its own; one whose process dies goes on in another.

    Args:
        folder: of the trials.
        processes: that run them.
        tell: called with what a person should know of.
    """

    def __init__(self, folder: Path, processes: ProcessPool, tell: Callable[[str], None]) -> None:
        self._folder, self._processes, self._tell = folder, processes, tell
        self._deaths: Counter[str] = Counter()

    def __enter__(self) -> SideBySide:
        self._processes.__enter__()
        return self

    def __exit__(self, *given: object) -> None:
        self._processes.__exit__(*given)

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
                return trial, Ending("failed", f"its process died {RETRIES + 1} times: {ending.cause}")
            self._tell(f"{trial.name}: its process died ({ending.cause}); it goes on in another")
            self.begin(trial)


def place_for(
    study: Study,
    folder: Path,
    how: RunOptions,
    tell: Callable[[str], None],
) -> Place:
    """The place that a study's trials want.

    Trials whose file says how many client actors they want, or that want GPUs, have all of them to themselves.

    Args:
        study: resolved.
        folder: of the trials.
        how: it is run: with so many client actors a trial, or trials at once.
        tell: called with what a person should know of.

    Raises:
        InputError: what was asked for does not go together.
    """
    for dataset in study.datasets:
        placed(dataset.experiment, how)
    tables = [dataset.experiment.fleet for dataset in study.datasets]
    if how.inline:
        return InTurn(folder, how)
    cpus = max(table.cpus_per_actor for table in tables)
    if any(table.gpus_per_actor or table.actors for table in tables):
        cores = os.cpu_count() or 1
        most = max(how.actors or table.actors or max(1, cores // table.cpus_per_actor) for table in tables)
        return InTurn(folder, how, lambda: running(most * cpus, how.address or os.environ.get("RAY_ADDRESS")))
    for name in own.names_in(study.raw):
        if name.startswith("__main__:"):
            raise InputError(
                f"{name} is of a script: must be of a module that other processes can import; move it to one, or set "
                "inline = True"
            )
    return SideBySide(folder, ProcessPool(how.actors, cpus, how.address), tell)
