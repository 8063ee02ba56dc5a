"""manifest.json: what a population is, where it came from, and the checksums of its files."""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from partitioning.columns import Column, Label
from partitioning.errors import InputError
from partitioning.files import Section, StoredFile

FORMAT, VERSION = "partitioning.population", 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # no separator and no leading dot: never outside the folder

T = TypeVar("T")


@dataclass(frozen=True)
class Counts:
    """How much a population holds; `test_rows` are those of the global test set."""

    clients: int
    samples: int
    test_rows: int


@dataclass(frozen=True)
class ClientsFile:
    """The size and hash of clients.parquet."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class TestFile:
    """The global test set: its file and the fixed slices that it is read in."""

    file: StoredFile
    slices: tuple[Section, ...]


@dataclass(frozen=True)
class Manifest:
    """All of manifest.json.

    `classes[c]` is the label of class c, `parameters` are all that the scheme takes, and `test_clients` is
    how many clients are held out.
    """

    dataset: str
    label: str
    classes: list[Label]
    columns: tuple[Column, ...]
    scheme: str
    parameters: dict[str, Any]
    seed: int
    test_clients: int
    local_test: float
    counts: Counts
    clients: ClientsFile
    shards: tuple[StoredFile, ...]
    test: TestFile | None

    def to_json(self) -> bytes:
        """Return the bytes of manifest.json: the same for the same population."""
        record = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes, *, name: str) -> "Manifest":
        """Read a manifest; raises InputError, headed by `name`, where it is none, newer or inconsistent."""
        try:
            record = json.loads(content)
            _check_format(record, name)
            return _read_manifest(record)
        except InputError:
            raise
        except KeyError as error:
            raise InputError(
                f"{name} lacks {error}: it is no population manifest; make the population again"
            ) from error
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} is no population manifest ({error}): make the population again") from error


def _check_format(record: object, name: str) -> None:
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{name} is not of the format {FORMAT!r}: give a folder that `partitioning make` wrote")
    version = _get(record, "version", int)
    if version > VERSION:
        raise InputError(f"{name} has version {version} and this package reads up to {VERSION}: update the package")


def _read_manifest(record: Mapping[str, Any]) -> Manifest:
    test = record["test"]
    classes = _get(record, "classes", list)
    if not classes or not all(isinstance(label, get_args(Label)) for label in classes):
        raise ValueError("classes are not labels")
    return Manifest(
        dataset=_get(record, "dataset", str),
        label=_get(record, "label", str),
        classes=classes,
        columns=tuple(_column(column) for column in _get(record, "columns", list)),
        scheme=_get(record, "scheme", str),
        parameters=_get(record, "parameters", dict),
        seed=_get(record, "seed", int),
        test_clients=_get(record, "test_clients", int),
        local_test=_get(record, "local_test", float),
        counts=_flat(Counts, record["counts"]),
        clients=_named(_flat(ClientsFile, record["clients"])),
        shards=tuple(_stored(shard) for shard in _get(record, "shards", list)),
        test=None if test is None else _test_file(test),
    )


def _test_file(record: Mapping[str, Any]) -> TestFile:
    slices = tuple(_flat(Section, section) for section in _get(record, "slices", list))
    file = _stored(record["file"])
    if any(s.offset < file.start or s.length < 0 or s.offset + s.length > file.end for s in slices):
        raise ValueError("a test slice lies outside its file")
    return TestFile(file, slices)


def _stored(record: Mapping[str, Any]) -> StoredFile:
    stored = _named(_flat(StoredFile, record))
    if not 0 <= stored.start <= stored.end <= stored.bytes:
        raise ValueError(f"the byte range of {stored.name} is wrong")
    return stored


N = TypeVar("N", StoredFile, ClientsFile)


def _named(file: N) -> N:
    if not _NAME.fullmatch(file.name):
        raise ValueError(f"the file name {file.name!r} leaves the folder")
    return file


def _column(record: Mapping[str, Any]) -> Column:
    shape = record["shape"]
    if shape is not None:
        shape = tuple(_get({"shape": size}, "shape", int) for size in _get(record, "shape", list))
    return Column(_get(record, "name", str), _get(record, "type", str), shape)


def _flat(kind: type[T], record: Mapping[str, Any]) -> T:
    # Fields of these dataclasses are int or str.
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: _get(record, field.name, field.type) for field in fields})  # type: ignore[arg-type]


def _get(record: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = record[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{key!r} is {value!r}")
    return value
