"""Remote folders, for example in object storage: list, read and write files with `pyarrow.fs`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from partitioning.common.disk import report_full_disk
from partitioning.common.errors import InputError
from partitioning.common.paths import open_regular
from partitioning.common.uris import MASK

CHUNK = 8 * 2**20
"""Bytes read and written at once."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_USER = re.compile(r"//[^/@?]*@")
_LONGEST = 300  # characters quoted of another library's message
_GOOGLE = re.compile(r"(gs|gcs)://")
_GOOGLE_SECONDS = 15  # of retries; Amazon's library gives up after about 6 by itself


def is_uri(name: object) -> bool:
    """Return whether a name is a URI such as s3://bucket/folder, not a path."""
    return isinstance(name, str) and _URI.match(name) is not None


@dataclass(frozen=True)
class RemoteFolder:
    """A folder behind a URI; every failure raises InputError with the address and the remedy.

    The URI has no password; after a question mark come options of the file system, in which the folder has the path.
    """

    uri: str
    system: fs.FileSystem
    path: str

    @classmethod
    def of(cls, uri: str) -> "RemoteFolder":
        """Return the folder of a URI: s3://, gs://, file://, or another scheme of `pyarrow.fs`."""
        if MASK in uri:  # read from a run's files: the environment has the password
            uri = _USER.sub("//", uri)
        with _explain_errors(_USER.sub("//", uri)):
            system, path = fs.FileSystem.from_uri(_limit_retries(uri))
        return cls(_USER.sub("//", uri), system, path.rstrip("/"))

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> "RemoteFolder":
        """Parent folder."""
        before, mark, options = self.uri.partition("?")
        above = before.rstrip("/").rpartition("/")[0]
        return RemoteFolder(above + mark + options, self.system, str(PurePosixPath(self.path).parent))

    def files(self) -> dict[str, int]:
        """Return the size in bytes of every file, by relative name; empty if the folder does not exist."""
        with _explain_errors(self.uri):
            found = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True, recursive=True))
        return {info.path[len(self.path) + 1 :]: info.size for info in found if info.type == fs.FileType.File}

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        with _explain_errors(self.uri, name), self.system.open_input_stream(f"{self.path}/{name}") as source:
            content: bytes = source.read()
        return content

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file in chunks."""
        with _explain_errors(self.uri, name):
            source = self.system.open_input_stream(f"{self.path}/{name}")
        with source:
            while True:
                with _explain_errors(self.uri, name):
                    chunk = source.read(CHUNK)
                if not chunk:
                    return
                yield chunk

    def fetch(self, name: str, path: Path) -> None:
        """Copy a file of the folder to a local path; raise DiskFullError if it does not fit."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with report_full_disk(path), path.open("wb") as sink:
            for chunk in self.chunks(name):
                sink.write(chunk)

    def store(self, path: Path, name: str) -> None:
        """Copy a local file into the folder; it replaces an older file once it is complete."""
        target = f"{self.path}/{name}"
        # An object appears when it is complete; a file appears with its first byte.
        draft = f"{target}.partial" if isinstance(self.system, fs.LocalFileSystem) else target
        with _explain_errors(self.uri, name, "written"), open_regular(path) as source:
            if draft != target:
                self.system.create_dir(str(PurePosixPath(target).parent), recursive=True)
            with self.system.open_output_stream(draft) as sink:
                while chunk := source.read(CHUNK):
                    sink.write(chunk)
            if draft != target:
                self.system.move(draft, target)

    def remove(self, name: str) -> None:
        """Remove a file; do nothing if it does not exist."""
        with _explain_errors(self.uri, name, "removed"), suppress(FileNotFoundError):
            self.system.delete_file(f"{self.path}/{name}")


def _limit_retries(uri: str) -> str:
    # By default, Google's library retries for a quarter of an hour.
    if not _GOOGLE.match(uri) or "retry_limit_seconds" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={_GOOGLE_SECONDS}"


@contextmanager
def _explain_errors(uri: str, name: str = "", action: str = "read") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{uri} has no {name or 'such folder'}: correct the address") from None
    except (OSError, pa.ArrowException) as error:
        where = f"{uri} ({name})" if name else uri
        raise InputError(
            f"{where} cannot be {action} ({' '.join(str(error).split())[:_LONGEST]}): correct the address, or check "
            "the network and the credentials"
        ) from error
