"""manifest.json: what a population is, where it came from, and the checksums of its files and of itself."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from partitioning.common.columns import Column, Label
from partitioning.common.errors import InputError
from partitioning.measures.features import Feature
from partitioning.store.files import Section, StoredFile, TableFile
from partitioning.store.splits import Splits

FORMAT, VERSION = "partitioning.population", 3
_SEAL = "sha256"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # no separator and no leading dot: never outside the folder

T = TypeVar("T")


@dataclass(frozen=True)
class Counts:
    """How much a population holds: `samples` of `source_rows`, and `test_rows` in the global test set."""

    clients: int
    samples: int
    source_rows: int
    test_rows: int


@dataclass(frozen=True)
class TestSet:
    """A test set: the global one, without a name, or a domain's; its file and the fixed slices it is read in."""

    name: str | None
    file: StoredFile
    slices: tuple[Section, ...]


@dataclass(frozen=True)
class Manifest:
    """All of manifest.json.

    `classes[c]` is the label of class c, `parameters` are all that the scheme takes, and `report` is what it says
    about itself. An index-only population has no shards; `moments` is None where none were taken, `site` where no
    column says where clients are.
    """

    dataset: str
    label: str
    classes: list[Label]
    columns: tuple[Column, ...]
    scheme: str
    parameters: dict[str, Any]
    dividing: list[str]
    report: dict[str, Any]
    seed: int
    splits: Splits
    local_test: float
    features: tuple[Feature, ...]
    counts: Counts
    clients: TableFile
    rows: TableFile
    moments: TableFile | None
    shards: tuple[StoredFile, ...]
    tests: tuple[TestSet, ...]
    site: str | None = None

    @property
    def files(self) -> tuple[StoredFile | TableFile, ...]:
        """Every file of the population beside manifest.json."""
        moments = () if self.moments is None else (self.moments,)
        return (self.clients, self.rows, *moments, *self.arrow_files)

    @property
    def arrow_files(self) -> tuple[StoredFile, ...]:
        """The shards and the test sets."""
        return (*self.shards, *(test.file for test in self.tests))

    def to_json(self) -> bytes:
        """Return the bytes of manifest.json: the same for the same population."""
        return sealed({"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, content: bytes, *, name: str) -> "Manifest":
        """Read a manifest; raises InputError, headed by `name`, where it is none, of another version or unsound."""
        try:
            record = json.loads(content)
            _check_format(record, name)
            manifest = _read_manifest(record)
            if record[_SEAL] != _digest(record):
                raise InputError(f"{name}: its content was changed: restore it or make the population again")
            return manifest
        except InputError:
            raise
        except RecursionError:
            raise InputError(f"{name} is no population manifest (too deep): make the population again") from None
        except KeyError as error:
            raise InputError(
                f"{name} lacks {error}: it is no population manifest; make the population again"
            ) from error
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} is no population manifest ({error}): make the population again") from error


def sealed(record: Mapping[str, Any]) -> bytes:
    """Return the bytes of manifest.json with this content, which close with a checksum of it."""
    content = json.loads(json.dumps(record))  # as it will be read: every key a string
    return (json.dumps({**content, _SEAL: _digest(content)}, indent=2, ensure_ascii=False) + "\n").encode()


def _digest(record: Mapping[str, Any]) -> str:
    # Of the values alone: in whichever order and layout they stand.
    content = {key: value for key, value in record.items() if key != _SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check_format(record: object, name: str) -> None:
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{name} is not of the format {FORMAT!r}: give a folder that `partitioning make` wrote")
    version = _get(record, "version", int)
    if version > VERSION:
        raise InputError(f"{name} has version {version} and this package reads version {VERSION}: update the package")
    if version < VERSION:
        raise InputError(
            f"{name} has version {version} and this package reads version {VERSION}: make the population again"
        )


def _read_manifest(record: Mapping[str, Any]) -> Manifest:
    classes = _get(record, "classes", list)
    if not classes or not all(isinstance(label, get_args(Label)) for label in classes):
        raise ValueError("classes are not labels")
    columns = tuple(_column(column) for column in _get(record, "columns", list))
    if len({type(label) for label in classes}) > 1 or record["label"] not in [column.name for column in columns]:
        raise ValueError("the classes are of several types, or the label is no column")
    moments = record["moments"]
    return Manifest(
        dataset=_get(record, "dataset", str),
        label=_get(record, "label", str),
        classes=classes,
        columns=columns,
        scheme=_get(record, "scheme", str),
        parameters=_get(record, "parameters", dict),
        dividing=[_get({"column": name}, "column", str) for name in _get(record, "dividing", list)],
        report=_get(record, "report", dict),
        seed=_get(record, "seed", int),
        splits=_flat(Splits, record["splits"]),
        local_test=_get(record, "local_test", float),
        features=tuple(_feature(feature) for feature in _get(record, "features", list)),
        counts=_flat(Counts, record["counts"]),
        clients=_named(_flat(TableFile, record["clients"])),
        rows=_named(_flat(TableFile, record["rows"])),
        moments=None if moments is None else _named(_flat(TableFile, moments)),
        shards=tuple(_stored(shard) for shard in _get(record, "shards", list)),
        tests=tuple(_test_set(test) for test in _get(record, "tests", list)),
        site=_get(record, "site", str) if record.get("site") is not None else None,
    )


def _feature(record: Mapping[str, Any]) -> Feature:
    categories, edges = record["categories"], record["edges"]
    if (categories is None) == (edges is None):
        raise ValueError("a feature has not either categories or edges")
    for values, kind in ((categories, get_args(Label)), (edges, (float,))):
        if values is not None and not all(isinstance(value, kind) for value in _get({"": values}, "", list)):
            raise ValueError("the categories or edges of a feature are of a wrong type")
    return Feature(_get(record, "name", str), categories, edges)


def _test_set(record: Mapping[str, Any]) -> TestSet:
    name = record["name"]
    slices = tuple(_flat(Section, section) for section in _get(record, "slices", list))
    file = _stored(record["file"])
    if any(s.offset < file.start or s.length < 0 or s.offset + s.length > file.end for s in slices):
        raise ValueError("a test slice lies outside its file")
    if len(slices) != file.batches:
        raise ValueError(f"{file.name} has {file.batches} record batches and {len(slices)} slices")
    return TestSet(None if name is None else _get(record, "name", str), file, slices)


def _stored(record: Mapping[str, Any]) -> StoredFile:
    stored = _named(_flat(StoredFile, record))
    if not 0 <= stored.start <= stored.end <= stored.bytes:
        raise ValueError(f"the byte range of {stored.name} is wrong")
    return stored


N = TypeVar("N", StoredFile, TableFile)


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
    # Fields of these dataclasses are int, bool or str.
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    values = {field.name: _get(record, field.name, field.type) for field in fields}  # type: ignore[arg-type]
    for name, value in values.items():
        if isinstance(value, int) and not 0 <= value < 2**63:
            raise ValueError(f"{name!r} is {value}")
    return kind(**values)


def _get(record: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = record[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{key!r} is {value!r}")
    return value
