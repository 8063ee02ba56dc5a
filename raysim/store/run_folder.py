"""The folder of a run: its creation, its lock, and the removal of what a run made."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from partitioning.common.disk import lock
from partitioning.common.paths import read_bytes
from partitioning.store.writing import remove_drafts, remove_population
from raysim.common.errors import InputError
from raysim.common.log import LOG
from raysim.common.names import (
    ALGORITHM_FILES,
    CONFIG,
    CONFIG_DRAFTS,
    DRAFTS,
    POPULATION,
    RUN_LOG,
    RUN_NAMES,
    SUMMARY,
    WATCH,
    in_use,
    is_bare,
)
from raysim.common.surface import assigned, call
from raysim.store.journal import batches

FORMER = ("visits.journal", "visits.parquet", "kept", "kept.safetensors")
"""Files and folders of an algorithm that only former versions of raysim wrote."""

LOG_BEGINNING = b" INFO raysim "
"""Part of the first line of each run's log."""

LOG_BEGUN = b" INFO fingerprint "
"""Part of a line in the log of each run that has begun; its configuration is written before."""


@contextmanager
def run_folder(out: Path, algorithms: Sequence[str]) -> Iterator[None]:
    """Create the folder of a new run and lock it; remove it if the input turns out to be wrong before any round.

    A folder of a run that was killed before it wrote its configuration is as good as new.

    Raises:
        InputError: the folder exists and is not empty, or cannot be created.
    """
    claim = out / RUN_LOG
    try:
        created = [folder for folder in (out, *out.parents) if not folder.exists()]
        out.mkdir(parents=True, exist_ok=True)
        if not is_bare(out):
            raise FileExistsError
        # Only one of two runs can create the log, and that run owns the folder.
        if not _is_abandoned(claim):
            claim.touch(exist_ok=False)
    except FileExistsError:
        raise in_use(out) from None
    except OSError as error:
        raise InputError(
            f"{assigned('out', str(out))}: must be a folder that raysim can create ({error.strerror}); choose another"
        ) from None
    with locked(out):
        if not is_bare(out):  # another process was faster
            raise in_use(out)
        remove_made(out, (CONFIG_DRAFTS,))
        try:
            yield
        except BaseException as error:
            is_wrong_input = isinstance(error, InputError)
            if is_wrong_input and _has_rounds(out):
                kept = f"finished rounds are kept: continue with {call('resume', out)}"
                left = kept if has_checkpoint(out) else f"{out} has the rounds so far, and no checkpoint yet"
                raise InputError(f"{error}; {left}") from None
            if is_wrong_input or not has_begun(out):
                remove_run(out, algorithms)
                remove_empty(created)
            raise


def _is_abandoned(claim: Path) -> bool:
    """Return whether a run that was killed before it began has left this log; false if in doubt."""
    if claim.is_symlink() or not claim.is_file():
        return False
    try:
        with claim.open("ab") as opened:
            lock(opened, wait=False)
        text = read_bytes(claim)
        return not text or (LOG_BEGINNING in text.partition(b"\n")[0] and LOG_BEGUN not in text)
    except OSError:
        return False


def has_begun(folder: Path) -> bool:
    """Return whether a folder holds everything that `resume` needs."""
    return (folder / CONFIG).is_file() and (folder / RUN_LOG).is_file()


def has_checkpoint(folder: Path) -> bool:
    """Return whether `resume` would go on after some round: an algorithm has ended, or has a checkpoint."""
    return any(any(folder.glob(each)) for each in (f"*/{SUMMARY}", "*/checkpoint/round-*.safetensors"))


def check_version(folder: Path) -> None:
    """Raise InputError if a former version of raysim wrote this run."""
    for name in FORMER:
        for path in folder.glob(f"*/{name}"):
            raise InputError(
                f"{folder}: holds {path.relative_to(folder)} of an earlier raysim: must be resumed by the version that "
                f"wrote it; install that version, or start a new run from {folder / 'config.toml'}"
            )


def remove_run(folder: Path, algorithms: Sequence[str]) -> None:
    """Remove everything that a run made in its folder; all else stays."""
    for name in algorithms:
        remove_made(folder / name, ALGORITHM_FILES)
    remove_population(folder / POPULATION)
    remove_drafts(folder)
    shutil.rmtree(folder / WATCH, ignore_errors=True)
    remove_made(folder, (*algorithms, *RUN_NAMES, DRAFTS))


def remove_made(folder: Path, patterns: Iterable[str]) -> None:
    """Remove files of these patterns, and folders of these patterns that are empty by then."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):
                    path.rmdir()
            else:
                path.unlink(missing_ok=True)  # a process that reads the run may tidy it, too


def remove_empty(created: Iterable[Path]) -> None:
    """Remove folders that were created for a run, unless something else is in them by now."""
    for folder in created:
        with suppress(OSError):
            folder.rmdir()


def locked(folder: Path) -> AbstractContextManager[None]:
    """Return the context that locks a run for this process; see `held`."""
    return held(folder / RUN_LOG, str(folder))


@contextmanager
def held(file: Path, name: str) -> Iterator[None]:
    """Lock a file, which is created if it is missing, for this process; the end of the process unlocks it.

    Raises:
        InputError: another process works on the run of this name.
    """
    with file.open("a", encoding="utf-8") as opened:
        try:
            lock(opened, wait=False)
        except BlockingIOError:
            raise InputError(
                f"{name}: another process runs it: must have ended; wait for that process, or stop it"
            ) from None
        except OSError as error:
            # Some file systems of clusters have no locks.
            LOG.warning("%s cannot be locked (%s)", name, error.strerror)
        yield


def await_free(folder: Path, seconds: float) -> None:
    """Wait until no process works on the run, at most `seconds`: a killed process needs a moment to end."""
    deadline = time.monotonic() + seconds
    while (folder / RUN_LOG).is_file() and time.monotonic() < deadline:
        with suppress(InputError), locked(folder):
            return
        time.sleep(0.1)


def _has_rounds(out: Path) -> bool:
    finished = any(out.glob(f"*/{SUMMARY}"))
    return finished or any(True for path in out.glob("*/metrics.journal") for _ in batches(path))
