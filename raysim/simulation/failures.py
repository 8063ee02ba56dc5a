"""Ends of runs that fail: one line, with the remedy."""

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
from raysim.store.run_folder import has_begun
from raysim.watching.progress import Watcher


@contextmanager
def offer_resume(folder: Path, watcher: Watcher, name: str | None = None) -> Iterator[None]:
    """Say how to continue a run that ends early, if it can be continued.

    Args:
        folder: folder of the run.
        watcher: observer of the run.
        name: name of the run for its user, if it is not the folder's.
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
        from raysim.report.page import write_report  # late, because matplotlib takes a second to import

        page = write_report([folder], folder / "report.html")
        raise DivergedError(f"{error}; {page} shows the rounds before") from None
    except Exception:
        if has_begun(folder):
            watcher.notice(f"the rounds so far are saved; {remedy}")
        raise


@contextmanager
def name_user_code(experiment: Experiment, log: Path) -> Iterator[None]:
    """Turn an error in the user's own code into one line that names the place; the log has the traceback."""
    try:
        yield
    except (InputError, AlgorithmInputError, DivergedError, OutOfMemoryError, RetriesSpentError, DiskFullError):
        raise
    except Exception as error:
        if text := own.describe_error(error, experiment.own_code):
            raise OwnCodeError(f"your own code raised {text}; see {log}") from error
        raise
