"""Runs at a URI: download and upload of their files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from partitioning.store.remote import RemoteFolder, is_uri
from raysim.common.errors import InputError
from raysim.common.names import CONFIG, SUMMARY

PARTIAL = ".partial"
"""Part of the names of incomplete files."""


def mirror_to(folder: Path, remote: RemoteFolder, fetched: Sequence[str] = ()) -> Callable[[], None]:
    """Return a function that makes a remote folder equal to a local one.

    It uploads changed files in an order that keeps the remote run resumable at any time: a checkpoint or summary
    follows the files that it names. Removed files are removed last. The function raises InputError if it cannot write.

    Args:
        folder: local folder.
        remote: remote folder.
        fetched: names of files that were downloaded from it.
    """
    uploaded = {name: _state(folder / name) for name in fetched}

    def upload() -> None:
        local = _states(folder)
        for name in sorted(local, key=_upload_order):
            if uploaded.get(name) != local[name] and (folder / name).exists():
                remote.store(folder / name, name)
                uploaded[name] = local[name]
        for name in [name for name in uploaded if name not in local]:
            remote.remove(name)
            del uploaded[name]

    return upload


def _states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the states of the complete files by their names; loggers may remove theirs at any moment."""
    found = {}
    # Unlike `Path.rglob`, it passes over a folder that has just been removed.
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names if PARTIAL not in name):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[str(path.relative_to(folder))] = _state(path)
    return found


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _upload_order(name: str) -> tuple[int, str]:
    path = Path(name)
    return 2 if path.name == SUMMARY else int(path.parent.name == "checkpoint"), name


@contextmanager
def local_folders(names: Sequence[str | Path]) -> Iterator[list[Path]]:
    """Yield local folders of runs; runs at a URI are downloaded to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="raysim-") as folder:
        yield [_local_folder(name, Path(folder) / str(index)) for index, name in enumerate(names)]


def _local_folder(name: str | Path, folder: Path) -> Path:
    if not is_uri(name):
        return Path(name)
    remote = RemoteFolder.of(str(name))
    fetch_run(remote, folder / remote.name)
    return folder / remote.name


def fetch_run(
    remote: RemoteFolder, folder: Path, progress: Callable[[int, int], object] = lambda done, total: None
) -> list[str]:
    """Download the files of a run and return their names.

    Args:
        remote: folder of the run.
        folder: local destination.
        progress: receiver of the bytes downloaded so far and in total.

    Raises:
        InputError: the remote folder holds no run, or a file whose name leads out of the local folder.
    """
    sizes = {name: size for name, size in remote.files().items() if PARTIAL not in name}
    if CONFIG not in sizes:
        raise InputError(
            f"{remote.uri}: must be the folder of a run, with a {CONFIG}; give one that `raysim run` wrote"
        )
    for path in map(PurePosixPath, sizes):
        if path.is_absolute() or ".." in path.parts:  # an object store takes any name
            raise InputError(
                f"{remote.uri}: has an entry {str(path)[:100]!r}: must have none outside of the folder; remove it, or "
                "give a run that you trust"
            )
    done, total = 0, sum(sizes.values())
    for name, size in sizes.items():
        remote.fetch(name, folder / name)
        progress(done := done + size, total)
    return list(sizes)
