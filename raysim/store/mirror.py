"""Runs at a URI: download and upload of their files."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from partitioning.common.disk import write_whole
from partitioning.common.paths import read_text
from partitioning.store.remote import RemoteFolder, is_uri
from raysim.common.errors import InputError
from raysim.common.names import CONFIG, SUMMARY

PARTIAL = ".partial"
"""Part of the names of incomplete files."""

State = tuple[int, int]
"""Size of a file, and the time of its last change in nanoseconds."""


def mirror_to(folder: Path, remote: RemoteFolder, stored: Mapping[str, State]) -> Callable[[], None]:
    """Return a function that makes a remote folder equal to a local one; `stored` are its files there already.

    It uploads changed files in an order that keeps the remote run resumable at any time: a checkpoint or summary
    follows the files that it names. Removed files are removed last. The function raises InputError if it cannot write;
    then `unstored` tells so until a later call succeeds.
    """
    uploaded, mark = dict(stored), _mark(folder)

    def note() -> None:
        with write_whole(mark) as aside:
            aside.write_text(json.dumps(uploaded), encoding="utf-8")

    def upload() -> None:
        local = _states(folder)
        for name in sorted(local, key=_upload_order):
            if uploaded.get(name) != local[name] and (folder / name).exists():
                remote.store(folder / name, name)
                uploaded[name] = local[name]
                if mark.is_file():  # whoever is killed now leaves a mark that is true
                    note()
        for name in [name for name in uploaded if name not in local]:
            remote.remove(name)
            del uploaded[name]

    def marked_upload() -> None:
        try:
            upload()
        except BaseException:
            note()
            raise
        mark.unlink(missing_ok=True)

    return marked_upload


def unstored(folder: Path) -> dict[str, State] | None:
    """Return the states of the files that were stored, if storing the others failed; None if all were stored."""
    mark = _mark(folder)
    if not mark.is_file():
        return None
    return {name: (size, time) for name, (size, time) in json.loads(read_text(mark)).items()}


def remove_copy(folder: Path) -> None:
    """Remove the local folder of a run at a URI."""
    _mark(folder).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def sizes_of(remote: RemoteFolder) -> dict[str, int]:
    """Return the size of each complete file of a remote folder, by name."""
    return {name: size for name, size in remote.files().items() if PARTIAL not in name}


def _mark(folder: Path) -> Path:
    return folder.with_suffix(".unstored")


def _states(folder: Path) -> dict[str, State]:
    """Return the states of the complete files by their names; loggers may remove theirs at any moment."""
    found = {}
    # Unlike `Path.rglob`, it passes over a folder that has just been removed.
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names if PARTIAL not in name):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[str(path.relative_to(folder))] = _state(path)
    return found


def _state(path: Path) -> State:
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
) -> dict[str, State]:
    """Download the files of a run and return their states; report the bytes so far and in total to `progress`.

    Raises:
        InputError: the remote folder holds no run, or a file whose name leads out of the local folder.
    """
    sizes = sizes_of(remote)
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
    return {name: _state(folder / name) for name in sizes}
