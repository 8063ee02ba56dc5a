"""How runs end that do not reach their end: in one line, with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from algorithms import InputError as AlgorithmInputError
from partitioning.common.disk import DiskFullError
from raysim.common.errors import (
    DivergedError,
    InputError,
    OutOfMemoryError,
    OwnCodeError,
    RetriesSpentError,
    StoppedError,
)
from raysim.config import own
from raysim.config.experiment import Experiment
from raysim.report.page import write_report
from raysim.store.run_folder import has_begun
from raysim.watching.progress import Watcher


@contextmanager
def continuable(folder: Path, watcher: Watcher, name: str | None = None) -> Iterator[None]:
    """Within, whatever ends the run says how to go on, where it can.

    Args:
        folder: of the run.
        watcher: is told.
        name: by which its user knows it, where that is another one.
    """
    remedy = f"continue with: raysim resume {name or folder}"
    try:
        yield
    except KeyboardInterrupt as error:
        what = str(error) or "interrupted"
        raise StoppedError(f"{what}; {remedy}" if has_begun(folder) else what) from None
    except InputError:
        raise
    except DivergedError as error:
        page = write_report([folder], folder / "report.html")
        raise DivergedError(f"{error}; {page} shows the rounds before") from None
    except Exception:
        if has_begun(folder):
            watcher.notice(f"what was done stays; {remedy}")
        raise


@contextmanager
def own_errors(experiment: Experiment, log: Path) -> Iterator[None]:
    """Within, what a user's own part raises becomes one line that says where; the log has the traceback."""
    try:
        yield
    except (InputError, AlgorithmInputError, DivergedError, OutOfMemoryError, RetriesSpentError, DiskFullError):
        raise
    except Exception as error:
        if text := own.describe_error(error, experiment.own_code):
            raise OwnCodeError(f"your own code raised {text}; see {log}") from error
        raise
