"""Where a run's folder is: here, or at a URI, as in object storage; then it is worked on here, and kept there."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from partitioning.store.remote import RemoteFolder, is_uri
from raysim.common.errors import InputError
from raysim.data.cache import cache
from raysim.store.mirror import CONFIG, Mirror, fetched
from raysim.store.resume import run_of
from raysim.watching.progress import Copying, Watcher

LOG = logging.getLogger("raysim")


@dataclass(frozen=True)
class RunLocation:
    """Where a run's folder is.

    Args:
        folder: that it is worked on in.
        name: what its user calls it: the folder, or its URI.
        mirror: has it stored at the URI; None for a folder.
    """

    folder: Path
    name: str
    mirror: Mirror | None = None

    @property
    def uri(self) -> str | None:
        """Its URI, where it has one."""
        return None if self.mirror is None else self.name

    def of(self, only: str | None) -> str:
        """What to call it, or one of its algorithms."""
        return self.name if only is None else f"{self.name.rstrip('/')}/{only}"

    def keep(self) -> None:
        """Have what is here kept there, too; InputError where it cannot be."""
        if self.mirror is not None:
            self.mirror.update()

    def saving(self, watcher: Watcher) -> Callable[[], None]:
        """What is called after each checkpoint; where a store does not answer now, it may after the next one."""

        def save() -> None:
            try:
                self.keep()
            except InputError as error:
                LOG.warning("%s", error)
                watcher.notice(f"{error}; the run goes on, and tries again after the next checkpoint")

        return save


@contextmanager
def new_home(out: str | Path, watcher: Watcher) -> Iterator[RunLocation]:
    """A home for a new run; at the end, and where it ends early, what is here is kept there.

    Raises:
        InputError: there is something at the URI already, or it cannot be reached.
    """
    if not is_uri(out):
        yield RunLocation(Path(out), str(out))
        return
    remote = RemoteFolder.of(str(out))
    if remote.files():
        raise InputError(f"--out = {remote.uri!r} exists and is not empty: must be a new folder; choose another")
    with _staged(remote.uri) as folder, _kept(RunLocation(folder, remote.uri, Mirror(folder, remote)), watcher) as home:
        yield home


@contextmanager
def old_home(name: str | Path, watcher: Watcher) -> Iterator[tuple[RunLocation, str | None]]:
    """The home of a run that goes on, and the one of its algorithms that the name is of; None for all.

    Raises:
        InputError: there is no run, or it cannot be reached.
    """
    if not is_uri(name):
        folder, only = run_of(Path(name))
        yield RunLocation(folder, str(folder)), only
        return
    remote, above = RemoteFolder.of(str(name)), RemoteFolder.of(str(name)).parent
    only = None
    if CONFIG not in remote.files() and CONFIG in above.files():
        remote, only = above, remote.name
    with _staged(remote.uri) as folder:
        names = fetched(remote, folder, Copying(watcher.stage, f"fetching {remote.uri}"))
        run_of(folder if only is None else folder / only)
        with _kept(RunLocation(folder, remote.uri, Mirror(folder, remote, names)), watcher) as home:
            yield home, only


@contextmanager
def _staged(uri: str) -> Iterator[Path]:
    """The folder here in which a run at a URI is worked on; it is empty, nobody else's, and stays as a copy."""
    folder = cache() / "runs" / hashlib.sha256(uri.encode()).hexdigest()[:32]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{uri}: a process is running it: must have ended; wait for it, or stop it") from None
        if folder.exists():
            shutil.rmtree(folder)
        yield folder


@contextmanager
def _kept(home: RunLocation, watcher: Watcher) -> Iterator[RunLocation]:
    """Within, a run is worked on; however that ends, what is here then is kept there."""
    try:
        yield home
    except BaseException as error:
        # What went wrong is told by the run's own name.
        error.args = tuple(
            each.replace(str(home.folder), home.name) if isinstance(each, str) else each for each in error.args
        )
        try:
            home.keep()
        except InputError as late:
            watcher.notice(f"{late}; what was done is in {home.folder}, and raysim resume goes on from there")
        raise
    try:
        home.keep()
    except InputError as error:
        raise RuntimeError(f"{error}; the run has ended, and its files are in {home.folder}") from error
