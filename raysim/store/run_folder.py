"""The folder of a run: its creation, its lock and its configuration."""

from __future__ import annotations

import fcntl
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli_w

from partitioning.common.disk import write_whole
from raysim.common.errors import InputError
from raysim.store.journal import batches

LOG = logging.getLogger("raysim")

SUMMARY = "summary.json"
"""File that marks an algorithm as finished: all its other files are complete."""

STOPPED = "stopped.json"
"""File with the reason why an algorithm stopped; it is removed when the algorithm continues."""

FORMER = ("visits.journal", "visits.parquet", "kept", "kept.safetensors")
"""Files and folders of an algorithm that only former versions of raysim wrote."""


@contextmanager
def run_folder(out: Path) -> Iterator[Path]:
    """Create the folder of a new run and lock it; remove it if the input turns out to be wrong before any round.

    Raises:
        InputError: the folder exists and is not empty, or cannot be created.
    """
    created = [folder for folder in (out, *out.parents) if not folder.exists()]
    claim = out / "run.log"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(path.name != claim.name for path in out.iterdir()):
            raise FileExistsError
        # Only one of two runs can create the log, and that run owns the folder.
        claim.touch(exist_ok=False)
    except FileExistsError:
        what = "already holds a run" if claim.exists() or (out / "config.toml").exists() else "exists and is not empty"
        raise InputError(f"--out = {str(out)!r} {what}: must be a new folder; choose another, or remove it") from None
    except OSError as error:
        raise InputError(
            f"--out = {str(out)!r}: must be a folder that raysim can create ({error.strerror}); choose another"
        ) from None
    with locked(out):
        try:
            yield out
        except InputError as error:
            if _has_rounds(out):
                raise InputError(f"{error}; finished rounds are kept: continue with raysim resume {out}") from None
            remove_created(out, created)
            raise
        except BaseException:
            if not has_begun(out):
                remove_created(out, created)
            raise


def has_begun(folder: Path) -> bool:
    """Return whether a folder holds everything that `resume` needs."""
    return (folder / "config.toml").is_file() and (folder / "run.log").is_file()


def check_version(folder: Path) -> None:
    """Raise InputError if a former version of raysim wrote this run."""
    for name in FORMER:
        for path in folder.glob(f"*/{name}"):
            raise InputError(
                f"{folder}: holds {path.relative_to(folder)} of an earlier raysim: must be resumed by the version that "
                f"wrote it; install that version, or start a new run from {folder / 'config.toml'}"
            )


def remove_created(out: Path, created: Sequence[Path]) -> None:
    """Empty a run's folder, then remove it and its parents as far as they were created for it."""
    for path in out.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for folder in created:
        # Another run may use a parent by now: then the parent stays.
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def existing_folder(folder: Path) -> Iterator[Path]:
    """Lock the folder of a run that continues, and remove half-written populations from it.

    Raises:
        InputError: another process works on the run.
    """
    with locked(folder):
        for draft in folder.glob(".population.*.draft"):
            shutil.rmtree(draft)
        yield folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a run for this process; the end of the process unlocks it.

    Raises:
        InputError: another process works on the run.
    """
    with (folder / "run.log").open("a", encoding="utf-8") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another process runs it: must have ended; wait for that process, or stop it"
            ) from None
        except OSError as error:
            # Some file systems of clusters have no locks.
            LOG.warning("%s cannot be locked (%s)", folder, error.strerror)
        yield


def await_free(folder: Path, seconds: float) -> None:
    """Wait until no process works on the run, at most `seconds`: a killed process needs a moment to end."""
    deadline = time.monotonic() + seconds
    while (folder / "run.log").is_file() and time.monotonic() < deadline:
        with suppress(InputError), locked(folder):
            return
        time.sleep(0.1)


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write the resolved experiment as TOML."""
    with write_whole(path) as aside:
        aside.write_text(tomli_w.dumps(config), encoding="utf-8")


def _has_rounds(out: Path) -> bool:
    finished = any(True for _ in out.glob(f"*/{SUMMARY}"))
    return finished or any(True for path in out.glob("*/metrics.journal") for _ in batches(path))
