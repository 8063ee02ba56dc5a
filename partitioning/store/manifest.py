"""manifest.json: contents and origin of a population, checksums of its files and of itself."""

import dataclasses
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from partitioning.common.bounds import check_row_count
from partitioning.common.columns import Column, Label
from partitioning.common.errors import InputError
from partitioning.common.paths import read_bytes
from partitioning.common.sealing import is_intact, sealed
from partitioning.measures.features import Feature
from partitioning.store.files import Section, StoredFile, TableFile
from partitioning.store.splits import Splits

MANIFEST = "manifest.json"
FORMAT, VERSION = "partitioning.population", 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # no separator and no leading dot, hence inside the folder
_LONGEST = 60  # characters of a wrong value in a message


@dataclass(frozen=True)
class Totals:
    """Numbers of clients, of samples, of rows in the source, and of rows in the global test set."""

    clients: int
    samples: int
    source_rows: int
    test_rows: int


@dataclass(frozen=True)
class TestSet:
    """A test set outside all clients: name of its domain (None for the global one), file, and fixed slices."""

    name: str | None
    file: StoredFile
    slices: tuple[Section, ...]


@dataclass(frozen=True)
class Manifest:
    """Content of manifest.json.

    Args:
        dataset: name of the source.
        label: label column.
        classes: label of each class [C].
        columns: columns of the samples.
        scheme: name of the scheme.
        parameters: all parameters of the scheme.
        dividing: columns that name a row's client, domain, site, class or split.
        report: report of the scheme.
        seed: seed of every draw.
        splits: held-out clients or folds.
        local_test: share of each client's samples in its own test part, or the column that names its rows.
        features: columns counted on every client.
        counts: totals of the population.
        clients: clients.parquet.
        rows: rows.parquet.
        moments: moments.parquet; None without moments.
        shards: shards; none in an index-only population.
        tests: test sets outside all clients.
        site: column that names each client's site; None without sites.
        by: column of `classes`; None for the label column.
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
    local_test: float | str
    features: tuple[Feature, ...]
    counts: Totals
    clients: TableFile
    rows: TableFile
    moments: TableFile | None
    shards: tuple[StoredFile, ...]
    tests: tuple[TestSet, ...]
    site: str | None = None
    by: str | None = None

    @property
    def class_column(self) -> str:
        """Column of the classes."""
        return self.by or self.label

    @property
    def files(self) -> tuple[StoredFile | TableFile, ...]:
        """All files of the population except manifest.json."""
        moments = () if self.moments is None else (self.moments,)
        return (self.clients, self.rows, *moments, *self.arrow_files)

    @property
    def arrow_files(self) -> tuple[StoredFile, ...]:
        """Shards and test sets."""
        return (*self.shards, *(test.file for test in self.tests))

    def to_json(self) -> bytes:
        """Return the bytes of manifest.json; equal populations give equal bytes."""
        return sealed({"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, content: bytes, *, name: str) -> "Manifest":
        """Read the bytes of a manifest.json; messages call it by `name`.

        Raises:
            InputError: the content is no manifest, of another version, or was changed.
        """
        from pydantic import ValidationError

        try:
            record = json.loads(content)
            _check_format(record, name)
            manifest: Manifest = _validator().validate_json(content, strict=True)
            _check_values(manifest, name)
        except InputError:
            raise
        except RecursionError:
            raise InputError(f"{name} is no population manifest (too deep): make the population again") from None
        except ValidationError as error:
            raise InputError(f"{name} {_first_fault(error)}: make the population again") from error
        except (TypeError, ValueError) as error:
            raise InputError(f"{name} is no population manifest ({error}): make the population again") from error
        if not is_intact(record):
            raise InputError(f"{name}: its content was changed: restore it or make the population again")
        return manifest


def read_manifest(folder: Path) -> bytes:
    """Return the bytes of a folder's manifest.json; raise InputError if the folder is no population."""
    try:
        return read_bytes(folder / MANIFEST)
    except OSError as error:
        raise InputError(
            f"{folder} is no population: {MANIFEST} cannot be read ({error.strerror}); "
            "give a folder that `partitioning make` wrote"
        ) from error


@cache
def _validator() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Manifest)


def _first_fault(error: Any) -> str:
    fault = error.errors(include_url=False)[0]
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "missing":
        return f"is no population manifest: it lacks {place!r}"
    value = repr(fault["input"])
    short = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    return f"is no population manifest ({place} = {short}: {fault['msg']})"


def _check_format(record: object, name: str) -> None:
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{name} is not of the format {FORMAT!r}: give a folder that `partitioning make` wrote")
    version = record.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(f"version = {version!r}")
    if version != VERSION:
        remedy = "update the package" if version > VERSION else "make the population again"
        raise InputError(f"{name} has version {version} and this package reads version {VERSION}: {remedy}")


def _check_values(manifest: Manifest, where: str) -> None:
    # Checks that types cannot express.
    if not manifest.classes or len({type(label) for label in manifest.classes}) > 1:
        raise ValueError("there are no classes, or they are of several types")
    columns = {column.name for column in manifest.columns}
    for name in (manifest.label, manifest.class_column):
        if name not in columns:
            raise ValueError(f"the label {name!r} is no column")
    for name in manifest.dividing:
        if name not in columns:
            raise ValueError(f"{name!r}, which divides the rows, is no column")
    if any((feature.categories is None) == (feature.edges is None) for feature in manifest.features):
        raise ValueError("a feature has not either categories or edges")
    check_row_count(f"{where}: the population", max(manifest.counts.clients, manifest.counts.samples))
    sections = [section for test in manifest.tests for section in test.slices]
    for record in (manifest.splits, manifest.counts, *manifest.files, *sections):
        for name, value in vars(record).items():
            if isinstance(value, int) and not 0 <= value < 2**63:
                raise ValueError(f"{name} = {value}")
    _check_files(manifest)


def _check_files(manifest: Manifest) -> None:
    for file in manifest.files:
        if not _NAME.fullmatch(file.name):
            raise ValueError(f"the file name {file.name!r} leaves the folder")
    for stored in manifest.arrow_files:
        if not stored.start <= stored.end <= stored.bytes:
            raise ValueError(f"the byte range of {stored.name} is wrong")
    if len({test.name for test in manifest.tests}) < len(manifest.tests):
        raise ValueError("two test sets have one name")
    for test in manifest.tests:
        stored = test.file
        if any(part.offset < stored.start or part.offset + part.length > stored.end for part in test.slices):
            raise ValueError("a test slice lies outside its file")
        if len(test.slices) != stored.batches:
            raise ValueError(f"{stored.name} has {stored.batches} record batches and {len(test.slices)} slices")
