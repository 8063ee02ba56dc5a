"""Populations from elsewhere: copied into the cache once, whole, and checked against their manifest."""

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from partitioning.common.caching import cache as default_cache
from partitioning.common.disk import report_full_disk
from partitioning.common.errors import InputError
from partitioning.store.files import check_size
from partitioning.store.manifest import Manifest
from partitioning.store.population import MANIFEST
from partitioning.store.remote import RemoteFolder
from partitioning.store.writing import write_folder

Told = Callable[[int, int], object]
"""Called with the bytes copied so far and those of all files."""


def fetch(uri: str, cache: Path | None = None, *, told: Told | None = None) -> Path:
    """Return the folder, in the cache, of the population that a URI names; it is copied there unless it is.

    Args:
        uri: of the folder that `make` wrote: s3://, gs://, file:// ...
        cache: the folder of all that is cached; by default RAYSIM_CACHE.
        told: is called while files are copied.

    Raises InputError where it cannot be reached, is no population, or a file is not what its manifest says, and
    DiskFullError where it does not fit; then nothing is left behind.
    """
    remote = RemoteFolder.of(uri)
    return copy_to_cache(remote.read(MANIFEST), remote.chunks, uri, cache, told=told)


def cached_folder(digest: str, cache: Path | None = None) -> Path:
    """Return where the cache has the population of which manifest.json has this sha256, or would have it."""
    return (cache or default_cache()) / "populations" / digest


def has_manifest(folder: Path, digest: str) -> bool:
    """Return whether a folder has the manifest of this sha256."""
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest() == digest
    except OSError:
        return False


def is_whole(folder: Path, digest: str) -> bool:
    """Return whether a folder has the population of which the manifest has this sha256, every file in its size."""
    if not has_manifest(folder, digest):
        return False
    try:
        for stored in Manifest.from_json((folder / MANIFEST).read_bytes(), name=str(folder)).files:
            check_size(folder / stored.name, stored.bytes)
    except (OSError, InputError):
        return False
    return True


def copy_to_cache(
    content: bytes,
    chunks: Callable[[str], Iterable[bytes]],
    origin: str,
    cache: Path | None = None,
    *,
    told: Told | None = None,
) -> Path:
    """Return the folder, in the cache, of a population; its files are copied there, by one process, unless they are.

    Args:
        content: of its manifest.json.
        chunks: gives a file's content, piece by piece, by its name.
        origin: where they come from, for messages.
        cache: as for `fetch`.
        told: likewise.
    """
    manifest = Manifest.from_json(content, name=f"{origin}/{MANIFEST}")
    digest = hashlib.sha256(content).hexdigest()
    folder = cached_folder(digest, cache)
    if is_whole(folder, digest):
        return folder
    with _alone(folder):
        if is_whole(folder, digest):  # another process has been faster
            return folder
        if folder.exists():
            shutil.rmtree(folder)
        with write_folder(folder) as draft:
            done, total = 0, sum(stored.bytes for stored in manifest.files)
            for stored in manifest.files:
                checked = hashlib.sha256()
                with (draft / stored.name).open("wb") as sink:
                    for chunk in chunks(stored.name):
                        checked.update(chunk)
                        sink.write(chunk)
                        done += len(chunk)
                        if told is not None:
                            told(done, total)
                if checked.hexdigest() != stored.sha256:
                    raise InputError(
                        f"{origin}/{stored.name}: its sha256 is not the manifest's: restore it there, or make the "
                        "population again"
                    )
            (draft / MANIFEST).write_bytes(content)
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    # Of all processes on a machine one copies, and the others wait for it; its death frees the lock.
    with report_full_disk(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
