"""An opened population: sizes and labels of all clients in memory, samples as memory-mapped views."""

import hashlib
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers, whole
from partitioning.common.columns import describe
from partitioning.common.errors import ElsewhereError, InputError, excerpt, suggestion
from partitioning.common.paths import read_parquet, regular
from partitioning.measures.features import split_counts
from partitioning.store.clients import ClientTable
from partitioning.store.files import MappedFile, StoredFile, TableFile, check_size, reading
from partitioning.store.manifest import MANIFEST, Manifest, read_manifest
from partitioning.store.moments import Moments
from partitioning.store.reading import read_clients
from partitioning.store.splits import LEAST_FOLDS, SPLITS, TEST, TRAIN, VALIDATION, split_of_fold

T = TypeVar("T", bound=np.generic)


class Population:
    """All clients of a partitioned data set, in a folder that `make` wrote.

    Opening is cheap, also in many processes: shards are mapped when first needed and stay mapped. A batch's checksum is
    verified at its first read in a process. Cached arrays are read-only. Pickling sends only the path, the fold and the
    sites; unpickling opens the population again.

    Attributes:
        path: folder of the population.
        manifest: content of manifest.json.
        digest: sha256 of manifest.json, which holds the sha256 of all files.
        fingerprint: equal to `digest`, except that each fold's view has its own.
        table: clients.parquet as compact arrays.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        table: ClientTable,
        digest: str,
        fold: tuple[int, int] | None = None,
        sites: Collection[str] | None = None,
    ) -> None:
        """Hold the result of `open`; `fold` is the test and validation fold of a view."""
        self.path = path
        self.manifest = manifest
        self.table = table
        self.digest = digest
        self.fingerprint = digest if fold is None else hashlib.sha256(f"{digest} fold {fold}".encode()).hexdigest()
        self._fold = fold
        self._present_sites = None if sites is None else tuple(sites)
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
        """Open a population's folder, or one fold of it (see `fold`).

        Opening checks the manifest, the sizes of all files, and the hash and content of clients.parquet.

        Args:
            path: folder of the population.
            fold: test fold.
            validation: validation fold.
            sites: sites whose shards are present, possibly none; shards of other sites are never read. None requires
                all shards.

        Raises:
            InputError: the folder is no population, or a file is not the one that was written.
        """
        folder = Path(path)
        content = read_manifest(folder)
        manifest = Manifest.from_json(content, name=str(folder / MANIFEST))
        digest = hashlib.sha256(content).hexdigest()
        population = cls(folder, manifest, read_clients(folder, manifest, digest), digest, sites=sites)
        for stored in population.files:
            check_size(folder / stored.name, stored.bytes)
        return population if fold is None else population.fold(fold, validation)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"Population({str(self.path)!r}: {len(self)} clients, {int(self.sizes.sum())} samples)"

    def __reduce__(self) -> tuple[object, tuple[str, int | None, int | None, tuple[str, ...] | None]]:
        return Population.open, (str(self.path), *(self._fold or (None, None)), self._present_sites)

    def fold(self, number: int, validation: int | None = None) -> "Population":
        """Return a view with one fold as test, another as validation, and the others as training clients.

        Args:
            number: test fold.
            validation: validation fold; by default the next one, (number + 1) mod k.

        Raises:
            InputError: the population has no folds, or not these two. RADFed, section IV-C.
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
        fold = (number, validation)
        view = Population(self.path, self.manifest, self.table, self.digest, fold, self._present_sites)
        view._files = self._files
        return view

    @property
    def schema(self) -> pa.Schema:
        """Schema of every batch; InputError for an index-only population."""
        stored = self.table.schema
        if stored is None or self._present_sites is None:
            return self._file(self.shard(0)).schema
        return stored

    @property
    def sizes(self) -> Integers:
        """Samples per client [K], the client's own test part included."""
        return _read_only(self.table.n)

    @property
    def test_sizes(self) -> Integers:
        """Samples of each client's own test part [K]: the last rows of its batch."""
        return _read_only(self.table.n_test)

    @cached_property
    def splits(self) -> npt.NDArray[np.str_]:
        """Split of each client [K]: "train", "validation" or "test"."""
        return _read_only(np.array(SPLITS)[self._split])

    @property
    def folds(self) -> Integers:
        """Fold of each client [K]; -1 without folds."""
        return _read_only(self.table.fold)

    @property
    def names(self) -> pa.Array | None:
        """Name of each client [K], null for a client without one; None if no client has a name."""
        return self.table.names

    @property
    def domains(self) -> pa.Array | None:
        """Domain of each client [K], dictionary-encoded, null for a client without one; None if no client has one."""
        return self.table.domains

    @cached_property
    def sites(self) -> pa.Array | None:
        """Site of each client [K], which its samples must not leave; None without sites."""
        return None if self.table.sites is None else self.table.sites.cast(pa.string())

    @property
    def files(self) -> tuple[StoredFile | TableFile, ...]:
        """Files that must be present beside manifest.json: all except shards of absent sites."""
        if self._present_sites is None or self.table.locations is None:
            return self.manifest.files
        numbers = np.unique(self.table.locations["shard"][self.are_here]).tolist()
        absent = set(self.manifest.shards) - {self.manifest.shards[number] for number in numbers}
        return tuple(stored for stored in self.manifest.files if stored not in absent)

    @cached_property
    def are_here(self) -> npt.NDArray[np.bool_]:
        """Whether each client's samples may be read [K]; all True unless opened for some sites."""
        if self._present_sites is None:
            return _read_only(np.ones(len(self), np.bool_))
        if self.sites is None:
            raise InputError(f"{self.path} has no sites: make it again with a site column")
        known = sorted(self.sites.unique().to_pylist())
        for site in self._present_sites:
            if site not in known:
                raise InputError(f"{self.path} has no site {site!r}: choose {excerpt(known)}{suggestion(site, known)}")
        return _read_only(np.isin(np.asarray(self.sites, dtype=object), self._present_sites))

    @property
    def class_counts(self) -> Integers:
        """Samples per client and class [K, C], in the order of `manifest.classes`; a new array each time."""
        return self.table.class_counts.astype(np.int64)

    @property
    def feature_counts(self) -> dict[str, Integers]:
        """Samples per client and category [K, d] of each feature, in the order of `manifest.features`; new arrays."""
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
        """Source row of every sample, client after client, in the order of the batches.

        Raises InputError if rows.parquet is not the file that was written.
        """
        import pyarrow.parquet as pq

        path, samples = self.manifest.rows.check(self.path), self.manifest.counts.samples
        with reading(path):
            is_sound = pq.read_metadata(regular(path)).num_rows == samples  # before memory is taken for the rows
            table = read_parquet(path, memory_map=True) if is_sound else None
        if table is None or table.schema != pa.schema([("row", pa.int64())]) or len(table) != samples:
            raise InputError(f"{path} does not have a row number for every sample: make the population again")
        return _read_only(np.array(table.column("row"), dtype=np.int64))

    def rows(self, client: int) -> Integers:
        """Return the source rows of a client's samples [n], in order; raise IndexError for an unknown client."""
        self._check_client(client)
        return self.row_numbers[self._starts[client] : self._starts[client + 1]]

    @cached_property
    def _starts(self) -> Integers:
        return np.append(0, np.cumsum(self.table.n))

    @cached_property
    def moments(self) -> Moments | None:
        """Mean and standard deviation of every numeric column on each client; None unless made with `standardise`."""
        stored = self.manifest.moments
        return None if stored is None else Moments(self.path, stored, len(self))

    @property
    def tests(self) -> tuple[str | None, ...]:
        """Names of the test sets outside all clients; None names the global one."""
        return tuple(test.name for test in self.manifest.tests)

    @property
    def test_slices(self) -> tuple[int, ...]:
        """Rows of each fixed slice of the global test set; empty without one."""
        return self.slices_of(None)

    def slices_of(self, domain: str | None) -> tuple[int, ...]:
        """Return the rows of each fixed slice of a domain's test set; empty without one."""
        return tuple(section.rows for test in self.manifest.tests if test.name == domain for section in test.slices)

    def batch(self, client: int) -> pa.RecordBatch:
        """Return all samples of a client, a view on the mapped shard.

        Raises:
            InputError: the bytes are not those that were written; the message names the client and the file.
            IndexError: there is no such client.
        """
        self._check_client(client)
        if not self.are_here[client]:
            raise ElsewhereError(
                f"{self.path} was opened without the site of client {client}: its samples must be read at that site"
            )
        stored, number = self.shard(client), int(self._locations["batch"][client])
        return self._file(stored).read(number, self.table.section(client), owner=f"client {client}")

    def shard(self, client: int) -> StoredFile:
        """Return the file that holds a client; raise InputError for an index-only population."""
        return self.manifest.shards[int(self._locations["shard"][client])]

    @property
    def _locations(self) -> npt.NDArray[np.void]:
        if self.table.locations is None:
            raise InputError(
                f"{self.path} is index-only and holds no samples: take `rows(client)` of its source, "
                "or make the population again without index_only"
            )
        return self.table.locations

    def _check_client(self, client: int) -> None:
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} is not in the population: its clients are 0 to {len(self) - 1}")

    def check_file(self, stored: StoredFile) -> None:
        """Map a shard or a test set now; raise InputError if its schema or footer was changed."""
        self._file(stored)

    def test_batch(self, number: int, domain: str | None = None) -> pa.RecordBatch:
        """Return a slice of the global test set, or of a domain's; raise the errors of `batch`."""
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


def _read_only(array: npt.NDArray[T]) -> npt.NDArray[T]:
    # All callers share the array.
    array.flags.writeable = False
    return array
