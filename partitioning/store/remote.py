"""Folders that a URI names, as those of object storage: listed, read and written file by file, by `pyarrow.fs`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
from pyarrow import fs

from partitioning.common.disk import report_full_disk
from partitioning.common.errors import InputError

CHUNK = 8 * 2**20
"""Bytes that are read and written at once."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_USER = re.compile(r"//[^/@?]*@")
_LONGEST = 300  # characters of another library's message
_GOOGLE = re.compile(r"(gs|gcs)://")
_GOOGLE_SECONDS = 15  # that are spent on trying again; Amazon's library gives up after some 6 by itself


def is_uri(name: object) -> bool:
    """Return whether a name is a URI, such as s3://bucket/folder, and not a path."""
    return isinstance(name, str) and _URI.match(name) is not None


@dataclass(frozen=True)
class RemoteFolder:
    """A folder that a URI names. Whatever fails there raises InputError: the address, a name, or the credentials.

    Args:
        uri: as it was given, without a password; what stands after a question mark are options of the file system.
        system: that it is in.
        path: where in it.
    """

    uri: str
    system: fs.FileSystem
    path: str

    @classmethod
    def of(cls, uri: str) -> "RemoteFolder":
        """Return the folder of a URI: s3://, gs://, file:// and whatever else `pyarrow.fs` knows."""
        with _answering(_USER.sub("//", uri)):
            system, path = fs.FileSystem.from_uri(_impatient(uri))
        return cls(_USER.sub("//", uri), system, path.rstrip("/"))

    @property
    def name(self) -> str:
        """Its last part."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> "RemoteFolder":
        """The folder that it is in."""
        before, mark, options = self.uri.partition("?")
        above = before.rstrip("/").rpartition("/")[0]
        return RemoteFolder(above + mark + options, self.system, str(PurePosixPath(self.path).parent))

    def files(self) -> dict[str, int]:
        """Return the bytes of every file in it, by its name from here; none where it does not exist."""
        with _answering(self.uri):
            found = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True, recursive=True))
        return {info.path[len(self.path) + 1 :]: info.size for info in found if info.type == fs.FileType.File}

    def read(self, name: str) -> bytes:
        """Return the content of a small file."""
        with _answering(self.uri, name), self.system.open_input_stream(f"{self.path}/{name}") as source:
            content: bytes = source.read()
        return content

    def chunks(self, name: str) -> Iterator[bytes]:
        """Give the content of a file, piece by piece."""
        with _answering(self.uri, name):
            source = self.system.open_input_stream(f"{self.path}/{name}")
        with source:
            while True:
                with _answering(self.uri, name):
                    chunk = source.read(CHUNK)
                if not chunk:
                    return
                yield chunk

    def fetch(self, name: str, path: Path) -> None:
        """Copy a file from here; DiskFullError where it does not fit."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with report_full_disk(path), path.open("wb") as sink:
            for chunk in self.chunks(name):
                sink.write(chunk)

    def store(self, path: Path, name: str) -> None:
        """Copy a file to here, where it takes the place of an older one when it is whole."""
        target = f"{self.path}/{name}"
        # An object is there when it is whole; a file is there from its first byte.
        aside = f"{target}.partial" if isinstance(self.system, fs.LocalFileSystem) else target
        with _answering(self.uri, name, "written"), path.open("rb") as source:
            if aside != target:
                self.system.create_dir(str(PurePosixPath(target).parent), recursive=True)
            with self.system.open_output_stream(aside) as sink:
                while chunk := source.read(CHUNK):
                    sink.write(chunk)
            if aside != target:
                self.system.move(aside, target)

    def remove(self, name: str) -> None:
        """Remove a file, unless it is gone already."""
        with _answering(self.uri, name, "removed"), suppress(FileNotFoundError):
            self.system.delete_file(f"{self.path}/{name}")


def _impatient(uri: str) -> str:
    # Google's library would try for a quarter of an hour.
    if not _GOOGLE.match(uri) or "retry_limit_seconds" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}retry_limit_seconds={_GOOGLE_SECONDS}"


@contextmanager
def _answering(uri: str, name: str = "", what: str = "read") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{uri} has no {name or 'such folder'}: correct the address") from None
    except (OSError, pa.ArrowException) as error:
        where = f"{uri} ({name})" if name else uri
        raise InputError(
            f"{where} cannot be {what} ({' '.join(str(error).split())[:_LONGEST]}): correct the address, or see to the "
            "network and the credentials"
        ) from error
