"""Runs that a URI names: their files, fetched from there and stored there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from partitioning.store.remote import RemoteFolder, is_uri
from raysim.common.errors import InputError
from raysim.store.folder import SUMMARY

CONFIG = "config.toml"

PARTIAL = ".partial"
"""What the names of files contain that are not whole yet."""


class Mirror:
    """Keeps a remote folder as a folder here is; files that were there before are those of this run.

    Args:
        folder: here.
        remote: there.
        there: the names of the files that were fetched from it.
    """

    def __init__(self, folder: Path, remote: RemoteFolder, there: Sequence[str] = ()) -> None:
        self._folder, self._remote = folder, remote
        self._stored = {name: _state(folder / name) for name in there}

    def update(self) -> None:
        """Store what has changed, and then what names it; at last remove what is no longer here.

        So at each instant what is there can be gone on with.

        Raises:
            InputError: it cannot be written.
        """
        here = {name: _state(path) for name, path in _files(self._folder).items()}
        for name in sorted(here, key=_names_others):
            if self._stored.get(name) != here[name]:
                self._remote.store(self._folder / name, name)
                self._stored[name] = here[name]
        for name in [name for name in self._stored if name not in here]:
            self._remote.remove(name)
            del self._stored[name]


def _files(folder: Path) -> dict[str, Path]:
    """The files of a run's folder by their names in it."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path for name, path in found.items() if PARTIAL not in path.name}


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file does."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _names_others(name: str) -> int:
    """How late a file is stored: a checkpoint, and a summary, say that other files are there."""
    path = Path(name)
    return 2 if path.name == SUMMARY else int(path.parent.name == "checkpoint")


@contextmanager
def here(names: Sequence[str | Path]) -> Iterator[list[Path]]:
    """The folders of runs; within, those that URIs name are there as well."""
    with tempfile.TemporaryDirectory(prefix="raysim-") as folder:
        yield [_here(name, Path(folder) / str(number)) for number, name in enumerate(names)]


def _here(name: str | Path, folder: Path) -> Path:
    if not is_uri(name):
        return Path(name)
    remote = RemoteFolder.of(str(name))
    fetched(remote, folder / remote.name)
    return folder / remote.name


def fetched(
    remote: RemoteFolder, folder: Path, told: Callable[[int, int], object] = lambda done, total: None
) -> list[str]:
    """Fetch the files of a run; their names.

    Args:
        remote: the run's folder.
        folder: here, where they go.
        told: is told of the bytes so far, and of all.
    """
    sizes = {name: size for name, size in remote.files().items() if PARTIAL not in name}
    if CONFIG not in sizes:
        raise InputError(
            f"{remote.uri}: must be the folder of a run, with a {CONFIG}; give one that `raysim run` wrote"
        )
    done, total = 0, sum(sizes.values())
    for name, size in sizes.items():
        remote.fetch(name, folder / name)
        told(done := done + size, total)
    return list(sizes)
