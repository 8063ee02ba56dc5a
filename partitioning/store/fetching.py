"""Fetching remote populations: copied into the cache once and checked against their manifest."""

import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from partitioning.common.errors import InputError
from partitioning.common.paths import cache as default_cache
from partitioning.common.paths import read_bytes
from partitioning.store.files import check_size
from partitioning.store.manifest import MANIFEST, Manifest
from partitioning.store.remote import RemoteFolder
from partitioning.store.writing import Progress, only_writer, write_folder


def fetch(uri: str, cache: Path | None = None, *, told: Progress | None = None) -> Path:
    """Copy a remote population into the cache, unless it is there, and return its local folder.

    Args:
        uri: URI of a folder that `make` wrote: s3://, gs://, file:// ...
        cache: cache folder; by default RAYSIM_CACHE.
        told: callback with the bytes copied so far and the bytes of all files.

    Raises:
        InputError: the URI cannot be reached or holds no population, or a file differs from its manifest.
        DiskFullError: the population does not fit on the disk.
    """
    remote = RemoteFolder.of(uri)
    return copy_to_cache(remote.read(MANIFEST), remote.chunks, uri, cache, told=told)


def cached_folder(digest: str, cache: Path | None = None) -> Path:
    """Return the cache folder of the population whose manifest.json has this sha256, present or not."""
    return (cache or default_cache()) / "populations" / digest


def has_manifest(folder: Path, digest: str) -> bool:
    """Return whether a folder has a manifest with this sha256."""
    try:
        return hashlib.sha256(read_bytes(folder / MANIFEST)).hexdigest() == digest
    except OSError:
        return False


def is_whole(folder: Path, digest: str) -> bool:
    """Return whether a folder has a manifest with this sha256 and all files in their sizes."""
    if not has_manifest(folder, digest):
        return False
    try:
        for stored in Manifest.from_json(read_bytes(folder / MANIFEST), name=str(folder)).files:
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
    told: Progress | None = None,
) -> Path:
    """Copy a population's files into the cache, unless they are there, and return the local folder.

    Only one process per machine copies; others wait for it.

    Args:
        content: bytes of manifest.json.
        chunks: function from a file's name to its content in chunks.
        origin: origin of the files, for messages.
        cache: cache folder; by default RAYSIM_CACHE.
        told: callback with the bytes copied so far and the bytes of all files.
    """
    manifest = Manifest.from_json(content, name=f"{origin}/{MANIFEST}")
    digest = hashlib.sha256(content).hexdigest()
    folder = cached_folder(digest, cache)
    if is_whole(folder, digest):
        return folder
    with only_writer(folder):
        if is_whole(folder, digest):  # another process was faster
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
