"""Location of a run: a local folder, or a URI with a local working folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from partitioning.common.paths import cache
from partitioning.store.remote import RemoteFolder, is_uri
from raysim.common.errors import InputError
from raysim.common.files import text_sha256
from raysim.common.log import LOG
from raysim.common.names import CONFIG
from raysim.common.surface import assigned, call
from raysim.store.mirror import fetch_run, mirror_to, remove_copy, sizes_of, unstored
from raysim.store.resume import run_of
from raysim.store.run_folder import has_begun, held
from raysim.watching.progress import Watcher, copy_progress


@dataclass(frozen=True)
class RunLocation:
    """Location of a run.

    Args:
        folder: local working folder.
        name: name for the user: the folder or its URI.
        upload: function that stores the folder's files at the URI; None for a local run.
    """

    folder: Path
    name: str
    upload: Callable[[], None] | None = None

    @property
    def uri(self) -> str | None:
        """URI of the run; None for a local run."""
        return None if self.upload is None else self.name

    def store(self) -> None:
        """Store the files at the URI, if there is one; raise InputError if that fails."""
        if self.upload is not None:
            self.upload()

    def after_checkpoint(self, watcher: Watcher) -> Callable[[], None]:
        """Return the function to call after each checkpoint; if storing fails, the next call tries again."""

        def store() -> None:
            try:
                self.store()
            except InputError as error:
                LOG.warning("%s", error)
                watcher.notice(f"{error}; the run continues, and tries again after the next checkpoint")

        return store


@contextmanager
def new_location(out: str | Path, watcher: Watcher) -> Iterator[RunLocation]:
    """Yield the location of a new run; at the end, however it comes, store the files at the URI.

    Raises:
        InputError: the URI is in use, or cannot be reached, or files of an earlier run there are only on this machine.
    """
    if not is_uri(out):
        yield RunLocation(Path(out), str(out))
        return
    remote = RemoteFolder.of(str(out))
    if remote.files():
        raise InputError(f"{assigned('out', remote.uri)} exists and is not empty: must be a new folder; choose another")
    with _working_folder(remote.uri) as folder:
        if folder.exists():
            raise _only_here(remote.uri, folder)
        with _storing(RunLocation(folder, remote.uri, mirror_to(folder, remote, {})), watcher) as location:
            yield location


@contextmanager
def existing_location(name: str | Path, watcher: Watcher) -> Iterator[tuple[RunLocation, str | None]]:
    """Yield the location of a run that continues, and the algorithm that the name selects; None for all.

    Raises:
        InputError: there is no run, or it cannot be reached.
    """
    if not is_uri(name):
        folder, only = run_of(Path(name))
        yield RunLocation(folder, str(folder)), only
        return
    remote, only = RemoteFolder.of(str(name)), None
    if CONFIG not in remote.files() and CONFIG in (above := remote.parent).files():
        remote, only = above, remote.name
    with fetched_location(remote, watcher) as location:
        run_of(location.folder if only is None else location.folder / only)
        yield location, only


@contextmanager
def fetched_location(remote: RemoteFolder, watcher: Watcher) -> Iterator[RunLocation]:
    """Yield the location of a run at a URI whose files were fetched, and not read yet.

    If storing failed before and the URI is unchanged since, the files on this machine are the newer ones, and stay.
    At the end, however it comes, store the files at the URI.

    Raises:
        InputError: there is no run, or it cannot be reached, or another machine continued it while this one has files
            that were never stored.
    """
    with _working_folder(remote.uri) as folder:
        stored = unstored(folder)
        if stored is None:
            stored = fetch_run(remote, folder, copy_progress(watcher.stage, f"fetching {remote.uri}"))
        elif {name: size for name, (size, _) in stored.items()} == sizes_of(remote):
            watcher.notice(f"{remote.uri} lacks files of its copy {folder}: the run continues from the copy")
        else:
            raise _only_here(remote.uri, folder)
        with _storing(RunLocation(folder, remote.uri, mirror_to(folder, remote, stored)), watcher) as location:
            yield location


@contextmanager
def _working_folder(uri: str) -> Iterator[Path]:
    """Yield the local folder of a run at a URI, locked, and left as a copy.

    The folder does not exist yet, unless it holds rounds that could not be stored.
    """
    folder = cache() / "runs" / text_sha256(uri)[:32]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(folder.with_suffix(".lock"), uri):
        if unstored(folder) is None or not has_begun(folder):
            remove_copy(folder)
        yield folder


def _only_here(uri: str, folder: Path) -> InputError:
    return InputError(
        f"{uri}: {folder} holds files of an earlier run there that could not be stored: must not be lost; continue "
        f"that run with {call('resume', folder)}, or remove the folder"
    )


@contextmanager
def _storing(location: RunLocation, watcher: Watcher) -> Iterator[RunLocation]:
    """Store a run's files at its URI when the work on it ends, with or without an error."""
    try:
        yield location
    except BaseException as error:
        # The user knows the run by its URI, not by its working folder.
        error.args = tuple(
            each.replace(str(location.folder), location.name) if isinstance(each, str) else each for each in error.args
        )
        try:
            location.store()
        except InputError as late:
            kept = f"; finished rounds are in {location.folder}: continue with {call('resume', location.name)}"
            watcher.notice(f"{late}{kept if has_begun(location.folder) else ''}")
        raise
    try:
        location.store()
    except InputError as error:
        raise RuntimeError(
            f"{error}; the run has ended, and its files are in {location.folder}: store them with "
            f"{call('resume', location.name)}"
        ) from error
