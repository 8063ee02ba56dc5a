"""A population on disk, opened: clients' sizes and labels at once, their samples as memory-mapped views."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from errno import EINVAL
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers, whole
from partitioning.common.columns import describe
from partitioning.common.errors import ElsewhereError, InputError, listing, suggestion
from partitioning.measures.features import split_counts
from partitioning.store.clients import ClientTable, Places, schema_of
from partitioning.store.files import MappedFile, StoredFile, TableFile, check_size, reading
from partitioning.store.manifest import Manifest
from partitioning.store.moments import Moments
from partitioning.store.reading import Reader
from partitioning.store.splits import LEAST_FOLDS, SPLITS, TEST, TRAIN, VALIDATION, split_of_fold

MANIFEST = "manifest.json"

_READ_COUNTS = 2**20  # class and feature counts that are read at once when opening

T = TypeVar("T", bound=np.generic)


class Population:
    """All clients of a partitioned data set, in a folder that `make` wrote.

    Cheap to open in many processes: shards are mapped when first needed and stay mapped. A batch's checksum
    is verified when it is first read in this process. Arrays that are kept are read-only. Pickling sends the
    path, the fold and the sites, and opens again at the other end.

    Attributes:
        path: the folder.
        manifest: all of manifest.json.
        digest: the sha256 of manifest.json, which has those of all files.
        fingerprint: the same, or one of its own for each fold's view.
        table: clients.parquet as compact arrays.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        table: ClientTable,
        digest: str,
        fold: tuple[int, int] | None = None,
        here: Collection[str] | None = None,
    ) -> None:
        """Hold what `open` has read and checked.

        Args:
            path: the folder.
            manifest: what it says of itself.
            table: its clients.
            digest: of the manifest.
            fold: the test and the validation fold of a view.
            here: the sites whose samples may be read; None for all.
        """
        self.path = path
        self.manifest = manifest
        self.table = table
        self.digest = digest
        self.fingerprint = digest if fold is None else hashlib.sha256(f"{digest} fold {fold}".encode()).hexdigest()
        self._fold = fold
        self._here = None if here is None else tuple(here)
        self._split = table.split if fold is None else split_of_fold(table.fold, *fold)
        self._files: dict[str, MappedFile] = {}

    @classmethod
    def open(
        cls,
        path: str | Path,
        fold: int | None = None,
        validation: int | None = None,
        sites: Collection[str] | None = None,
    ) -> "Population":
        """Open a population's folder, or a fold of it (see `fold`).

        Checks the manifest and its version, the sizes of all files, and the hash and content of
        clients.parquet. Raises InputError, with the remedy, where one of them is not what was written.

        Args:
            path: the folder.
            fold: the test fold.
            validation: the validation fold.
            sites: those of which the samples are there, perhaps none: other sites' shards need not be, and are never
                read. None: all shards must be there.
        """
        folder = Path(path)
        content = _read_manifest(folder / MANIFEST)
        manifest = Manifest.from_json(content, name=str(folder / MANIFEST))
        digest = hashlib.sha256(content).hexdigest()
        population = cls(folder, manifest, _read_clients(folder, manifest), digest, here=sites)
        for stored in population.files:
            check_size(folder / stored.name, stored.bytes)
        return population if fold is None else population.fold(fold, validation)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"Population({str(self.path)!r}: {len(self)} clients, {int(self.sizes.sum())} samples)"

    def __reduce__(self) -> tuple[object, tuple[str, int | None, int | None, tuple[str, ...] | None]]:
        return Population.open, (str(self.path), *(self._fold or (None, None)), self._here)

    def fold(self, number: int, validation: int | None = None) -> "Population":
        """Return a view of the same folder in which one fold is test, another validation, and the rest training.

        Args:
            number: the test fold.
            validation: the validation fold; None is the next, (number + 1) mod k.

        Raises InputError where there are no folds, or not these two. RADFed, section IV-C.
        """
        folds = self.manifest.splits.folds
        if not folds:
            raise InputError(f"{self.path} has no folds: make it again with folds of {LEAST_FOLDS} or more")
        number = whole("fold", number, least=0)
        validation = (number + 1) % folds if validation is None else whole("validation", validation, least=0)
        if not (number < folds and validation < folds and number != validation):
            raise InputError(
                f"fold is {number} and validation is {validation}: give two different folds from 0 to {folds - 1}"
            )
        view = Population(self.path, self.manifest, self.table, self.digest, (number, validation), self._here)
        view._files = self._files
        return view

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch; InputError where the population is index-only."""
        noted = self.table.schema
        return self._file(self.shard(0)).schema if noted is None or self._here is None else noted

    @property
    def sizes(self) -> Integers:
        """Samples a client [K], its own test part included."""
        return _read_only(self.table.n)

    @property
    def test_sizes(self) -> Integers:
        """Samples a client's own test part has [K]: the last rows of its batch."""
        return _read_only(self.table.n_test)

    @cached_property
    def splits(self) -> npt.NDArray[np.str_]:
        """For each client [K], "train", "validation" or "test"."""
        return _read_only(np.array(SPLITS)[self._split])

    @property
    def folds(self) -> Integers:
        """The fold of each client [K]; -1 where there are none."""
        return _read_only(self.table.fold)

    @property
    def names(self) -> pa.Array | None:
        """The name of each client [K], null where it has none; None where no client has one."""
        return self.table.names

    @property
    def domains(self) -> pa.Array | None:
        """The domain of each client [K], likewise, dictionary-encoded."""
        return self.table.domains

    @cached_property
    def sites(self) -> pa.Array | None:
        """The site of each client [K], where its samples are to stay; None where there are no sites."""
        return None if self.table.sites is None else self.table.sites.cast(pa.string())

    @property
    def files(self) -> tuple[StoredFile | TableFile, ...]:
        """The files that must be there beside manifest.json: all, but the shards of sites that are elsewhere."""
        if self._here is None or self.table.places is None:
            return self.manifest.files
        numbers = np.unique(self.table.places.shard[self.are_here]).tolist()
        elsewhere = set(self.manifest.shards) - {self.manifest.shards[number] for number in numbers}
        return tuple(stored for stored in self.manifest.files if stored not in elsewhere)

    @cached_property
    def are_here(self) -> npt.NDArray[np.bool_]:
        """Whether the samples of each client may be read [K]: all, unless the population was opened for some sites."""
        if self._here is None:
            return _read_only(np.ones(len(self), np.bool_))
        if self.sites is None:
            raise InputError(f"{self.path} has no sites: make it again with a site column")
        known = sorted(self.sites.unique().to_pylist())
        for site in self._here:
            if site not in known:
                raise InputError(f"{self.path} has no site {site!r}: choose {listing(known)}{suggestion(site, known)}")
        return _read_only(np.isin(np.asarray(self.sites, dtype=object), self._here))

    @property
    def class_counts(self) -> Integers:
        """Samples a client and class [K, C], in the order of `manifest.classes`; a new array each time."""
        return self.table.class_counts.astype(np.int64)

    @property
    def feature_counts(self) -> dict[str, Integers]:
        """By feature, samples a client and category [K, d], in the order of `manifest.features`; new arrays."""
        return split_counts(self.table.feature_counts.astype(np.int64), self.manifest.features)

    @cached_property
    def train_clients(self) -> Integers:
        """Ids of the training clients, ascending."""
        return self._clients_of(TRAIN)

    @cached_property
    def validation_clients(self) -> Integers:
        """Ids of the clients held out for validation, ascending."""
        return self._clients_of(VALIDATION)

    @cached_property
    def test_clients(self) -> Integers:
        """Ids of the clients held out for test, ascending."""
        return self._clients_of(TEST)

    def _clients_of(self, split: str) -> Integers:
        return _read_only(np.flatnonzero(self._split == SPLITS.index(split)))

    @cached_property
    def row_numbers(self) -> Integers:
        """The source row of every sample, in client order: client 0's, in the order of its batch, come first.

        Raises InputError where rows.parquet is not what was written.
        """
        import pyarrow.parquet as pq

        path = self.manifest.rows.check(self.path)
        with reading(path):
            table = pq.read_table(path, memory_map=True)
        if table.schema != pa.schema([("row", pa.int64())]) or len(table) != self.manifest.counts.samples:
            raise InputError(f"{path} does not have a row number for every sample: make the population again")
        return _read_only(np.array(table.column("row"), dtype=np.int64))

    def rows(self, client: int) -> Integers:
        """Return the source rows of a client's samples [n], in their order; IndexError where it is unknown."""
        self._check_client(client)
        return self.row_numbers[self._starts[client] : self._starts[client + 1]]

    @cached_property
    def _starts(self) -> Integers:
        return np.append(0, np.cumsum(self.table.n))

    @cached_property
    def moments(self) -> Moments | None:
        """Mean and standard deviation of every numeric column on each client; None unless made with `standardise`."""
        stored = self.manifest.moments
        return None if stored is None else Moments(self.path, stored)

    @property
    def tests(self) -> tuple[str | None, ...]:
        """The names of the test sets that belong to no client; None is that of the global one."""
        return tuple(test.name for test in self.manifest.tests)

    @property
    def test_slices(self) -> tuple[int, ...]:
        """Rows of each fixed slice of the global test set; empty where there is none."""
        return self.slices_of(None)

    def slices_of(self, domain: str | None) -> tuple[int, ...]:
        """Rows of each fixed slice of a domain's test set; empty where there is none."""
        return tuple(section.rows for test in self.manifest.tests if test.name == domain for section in test.slices)

    def batch(self, client: int) -> pa.RecordBatch:
        """Return all samples of a client, a view on the mapped shard.

        Raises InputError, naming the client and the file, where the bytes are not those that were written,
        and IndexError where there is no such client.
        """
        self._check_client(client)
        if not self.are_here[client]:
            raise ElsewhereError(
                f"{self.path} was opened without the site of client {client}: its samples must be read at that site"
            )
        number, section = int(self._places.batch[client]), self.table.section(client)
        return self._file(self.shard(client)).read(number, section, owner=f"client {client}")

    def shard(self, client: int) -> StoredFile:
        """Return the file that holds a client; InputError where the population is index-only."""
        return self.manifest.shards[int(self._places.shard[client])]

    @property
    def _places(self) -> Places:
        if self.table.places is None:
            raise InputError(
                f"{self.path} is index-only and holds no samples: take `rows(client)` of its source, "
                "or make the population again without index_only"
            )
        return self.table.places

    def _check_client(self, client: int) -> None:
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} is not in the population: its clients are 0 to {len(self) - 1}")

    def check_file(self, stored: StoredFile) -> None:
        """Map a shard or the test set now; raises InputError where its schema or footer was changed."""
        self._file(stored)

    def test_batch(self, number: int, domain: str | None = None) -> pa.RecordBatch:
        """Return a slice of the global test set, or of a domain's; checks and raises as `batch` does."""
        owner = f"test slice {number}" + ("" if domain is None else f" of {domain!r}")
        test = next((test for test in self.manifest.tests if test.name == domain), None)
        if test is None or not 0 <= number < len(test.slices):
            raise IndexError(f"{owner} is not in the population: it has {len(self.slices_of(domain))} test slices")
        return self._file(test.file).read(number, test.slices[number], owner=owner)

    def _file(self, stored: StoredFile) -> MappedFile:
        if stored.name not in self._files:
            file = MappedFile(self.path, stored)
            if describe(file.schema) != self.manifest.columns:
                raise InputError(f"{self.path / stored.name}: its columns are not those in {MANIFEST}")
            self._files[stored.name] = file
        return self._files[stored.name]


def _read_clients(folder: Path, manifest: Manifest) -> ClientTable:
    path = manifest.clients.check(folder)
    content = path.read_bytes()
    with reading(path):
        clients = _read_table(content, manifest)
    held = (len(clients), int(clients.n.sum()))
    if held != (manifest.counts.clients, manifest.counts.samples) or not held[1]:
        raise InputError(f"{path} has {held[0]} clients and {held[1]} samples, unlike {MANIFEST}")
    return clients


def _read_table(content: bytes, manifest: Manifest) -> ClientTable:
    import pyarrow.parquet as pq

    features = [feature.size for feature in manifest.features]
    reader = Reader(manifest.shards, len(manifest.classes), features)
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        clients = reader.read(file.iter_batches(max(1, _READ_COUNTS // (reader.classes + sum(features)))))
        clients = replace(clients, schema=_schema(file.schema_arrow.metadata, manifest))
    pa.default_memory_pool().release_unused()  # Arrow would keep what decoding took, in every process of a run
    return clients


def _schema(metadata: Mapping[bytes, bytes] | None, manifest: Manifest) -> pa.Schema | None:
    noted = schema_of(metadata)
    if noted is not None and describe(noted) != manifest.columns:
        raise InputError(f"clients.parquet: its columns are not those in {MANIFEST}")
    return noted


def _read_only(array: npt.NDArray[T]) -> npt.NDArray[T]:
    # All who ask are given the same array.
    array.flags.writeable = False
    return array


def _read_manifest(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise OSError(EINVAL, "it is no file")  # a pipe would be waited for
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path.parent} is no population: {MANIFEST} cannot be read ({error.strerror}); "
            "give a folder that `partitioning make` wrote"
        ) from error
