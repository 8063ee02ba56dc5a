"""Ends of runs that fail: one line, with the remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from algorithms import DamagedError as PersonalDamagedError
from algorithms import InputError as AlgorithmInputError
from partitioning.common.disk import DiskFullError
from partitioning.common.text import word
from raysim.common.errors import (
    DamagedError,
    DivergedError,
    InputError,
    ModelsLostError,
    OutOfMemoryError,
    OwnCodeError,
    RetriesSpentError,
    StoppedError,
)
from raysim.common.names import CONFIG, REPORT, SUMMARY
from raysim.common.surface import call
from raysim.config.experiment import Experiment
from raysim.config.own_errors import describe_error, describe_unordered
from raysim.data.decoding import cache_remedy
from raysim.simulation.options import RunOptions
from raysim.store.location import RunLocation
from raysim.store.run_folder import has_begun, has_checkpoint

COMPLETE_ERRORS = (
    *(InputError, AlgorithmInputError, DamagedError, PersonalDamagedError),
    *(DivergedError, OutOfMemoryError, RetriesSpentError, DiskFullError),
)
"""Errors that are none of the user's code, and whose message needs no addition."""

REPEATS = 3
"""Times that work is repeated after damage to files, or the loss of a node."""

T = TypeVar("T")


@contextmanager
def offer_resume(location: RunLocation, options: RunOptions) -> Iterator[None]:
    """Say how to continue a run that ends early, if it can be continued."""
    folder = location.folder
    # The number of actors is in the run's configuration.
    remedy = f"continue with: {call('resume', location.name, inline=options.inline, address=options.address)}"
    try:
        yield
    except KeyboardInterrupt as error:
        what = str(error) or "interrupted"
        raise StoppedError(what, *([remedy] if has_begun(folder) else [])) from None
    except InputError as error:
        if also := cache_remedy(str(error)):
            raise InputError(f"{error}{also}") from None
        raise
    except DivergedError:
        raise
    except Exception as error:
        if has_begun(folder):
            saved = "is saved up to its last checkpoint" if has_checkpoint(folder) else "has no checkpoint yet"
            if isinstance(error, OwnCodeError):
                remedy = f"if nothing in your code is wrong, {remedy}; corrected code needs a new run"
            options.watcher.notice(f"the run {saved}; {remedy}")
        raise


@contextmanager
def report_if_stopped(location: RunLocation) -> Iterator[None]:
    """Write the report of a run that is stopped or diverged, and say which algorithms of a stopped one are complete."""
    folder = location.folder
    try:
        yield
    except DivergedError as error:
        raise DivergedError(f"{error}; {write_page(folder)} shows the rounds before") from None
    except KeyboardInterrupt as stopped:
        if not has_begun(folder):
            raise
        complete, left = _divided(folder)
        if not left and not isinstance(stopped, StoppedError):  # The report itself was interrupted.
            remedy = f"write the report with: raysim report {word(folder)}"
            raise StoppedError("interrupted", "all algorithms are complete", remedy) from None
        found = [f"complete: {', '.join(complete) or 'no algorithm'}", f"not complete: {', '.join(left)}"]
        if page := _page_so_far(folder):
            found.append(f"{page} shows the rounds so far")
        what, *rest = stopped.args or ("interrupted",)
        raise StoppedError(what, *found, *rest) from None


def write_page(folder: Path) -> Path:
    """Write the report of a run's folder, and return it."""
    from raysim.report.page import write_report  # late, because matplotlib takes a second to import

    return write_report([folder], folder / REPORT)


def _divided(folder: Path) -> tuple[list[str], list[str]]:
    """Return the algorithms of a run that are complete, and the others."""
    from raysim.report.read import algorithms_of, read_config

    config, _ = read_config(folder / CONFIG, f"{folder}: has no {CONFIG}", "run")
    names = list(algorithms_of(config))
    complete = [name for name in names if (folder / name / SUMMARY).is_file()]
    return complete, [name for name in names if name not in complete]


def _page_so_far(folder: Path) -> Path | None:
    """Write the report of the rounds so far; return None if there are none, or if that fails or is interrupted."""
    if not any(True for _ in folder.glob("*/metrics.*")):
        return None
    try:
        return write_page(folder)
    except (KeyboardInterrupt, RuntimeError, OSError, ValueError):
        return None


@contextmanager
def name_user_code(experiment: Experiment, log: Path) -> Iterator[None]:
    """Turn an error in the user's own code into one line that names the place; the log has the traceback."""
    handled = sys.exception()
    try:
        yield
    except (*COMPLETE_ERRORS, KeyboardInterrupt):
        raise
    except BaseException as error:
        if text := describe_error(error, experiment.named, handled):
            raise OwnCodeError(f"your own code raised {text}; see {log}") from error
        if text := describe_unordered(error):
            raise InputError(text) from error
        raise


def lost_again(what: str, error: ModelsLostError) -> RetriesSpentError:
    """Return the error for work that lost its models each time."""
    return RetriesSpentError(f"{what}: {error}, {REPEATS + 1} times in a row; check the nodes, and resume the run")


def repeat_after(kind: type[Exception], attempt: Callable[[], T], tell: Callable[[str], object]) -> T:
    """Call a function and return its value; after an error of this kind, tell it and call again, `REPEATS` times."""
    for _ in range(REPEATS):
        try:
            return attempt()
        except kind as error:
            tell(str(error))
    return attempt()
