"""A population on disk, opened: clients' sizes and labels at once, their samples as memory-mapped views."""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.checks import Integers
from partitioning.clients import ClientTable
from partitioning.columns import describe
from partitioning.errors import InputError
from partitioning.files import MappedFile, StoredFile, check_size
from partitioning.manifest import Manifest
from partitioning.splits import TEST, TRAIN

MANIFEST = "manifest.json"

_READ_COUNTS = 2**20  # class counts that are read at once when opening

T = TypeVar("T", bound=np.generic)


class Population:
    """All clients of a partitioned data set, in a folder that `make` wrote.

    Cheap to open in many processes: shards are mapped when first needed and stay mapped. A batch's checksum
    is verified when it is first read in this process. Arrays that are kept are read-only. Pickling sends the
    path, and opens again at the other end.
    """

    def __init__(self, path: Path, manifest: Manifest, clients: ClientTable, fingerprint: str) -> None:
        """Hold what `open` has read and checked."""
        self.path = path
        self.manifest = manifest
        self.fingerprint = fingerprint
        self._clients = clients
        self._files: dict[str, MappedFile] = {}

    @classmethod
    def open(cls, path: str | Path) -> "Population":
        """Open a population's folder.

        Checks the manifest and its version, the sizes of all files, and the hash and content of
        clients.parquet. Raises InputError, with the remedy, where one of them is not what was written.
        """
        folder = Path(path)
        content = _read_manifest(folder / MANIFEST)
        manifest = Manifest.from_json(content, name=str(folder / MANIFEST))
        for shard in manifest.shards:
            check_size(folder / shard.name, shard.bytes)
        if manifest.test is not None:
            check_size(folder / manifest.test.file.name, manifest.test.file.bytes)
        clients = _read_clients(folder, manifest)
        return cls(folder, manifest, clients, hashlib.sha256(content).hexdigest())

    def __len__(self) -> int:
        return len(self._clients)

    def __repr__(self) -> str:
        return f"Population({str(self.path)!r}: {len(self)} clients, {int(self.sizes.sum())} samples)"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Population.open, (str(self.path),)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the source, and so of every batch."""
        return self._file(self.manifest.shards[0]).schema

    @property
    def sizes(self) -> Integers:
        """Samples a client [K], its own test part included."""
        return _read_only(self._clients.n)

    @property
    def test_sizes(self) -> Integers:
        """Samples a client's own test part has [K]: the last rows of its batch."""
        return _read_only(self._clients.n_test)

    @cached_property
    def splits(self) -> npt.NDArray[np.str_]:
        """For each client [K], "train" or "test"."""
        return _read_only(np.where(self._clients.held_out, TEST, TRAIN))

    @property
    def class_counts(self) -> Integers:
        """Samples a client and class [K, C], in the order of `manifest.classes`; a new array each time."""
        return self._clients.class_counts.astype(np.int64)

    @cached_property
    def train_clients(self) -> Integers:
        """Ids of the training clients, ascending."""
        return _read_only(np.flatnonzero(~self._clients.held_out))

    @cached_property
    def test_clients(self) -> Integers:
        """Ids of the clients held out for test, ascending."""
        return _read_only(np.flatnonzero(self._clients.held_out))

    @property
    def test_slices(self) -> tuple[int, ...]:
        """Rows of each fixed slice of the global test set; empty where there is none."""
        test = self.manifest.test
        return () if test is None else tuple(section.rows for section in test.slices)

    def batch(self, client: int) -> pa.RecordBatch:
        """Return all samples of a client, a view on the mapped shard.

        Raises InputError, naming the client and the file, where the bytes are not those that were written,
        and IndexError where there is no such client.
        """
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} is not in the population: its clients are 0 to {len(self) - 1}")
        number, section = int(self._clients.batch[client]), self._clients.section(client)
        return self._file(self.shard(client)).read(number, section, owner=f"client {client}")

    def shard(self, client: int) -> StoredFile:
        """Return the file that holds a client."""
        return self.manifest.shards[int(self._clients.shard[client])]

    def check_file(self, stored: StoredFile) -> None:
        """Map a shard or the test set now; raises InputError where its schema or footer was changed."""
        self._file(stored)

    def test_batch(self, number: int) -> pa.RecordBatch:
        """Return a slice of the global test set, checked as in `batch`; IndexError where there is none."""
        test, owner = self.manifest.test, f"test slice {number}"
        if test is None or not 0 <= number < len(test.slices):
            raise IndexError(f"{owner} is not in the population: it has {len(self.test_slices)} test slices")
        return self._file(test.file).read(number, test.slices[number], owner=owner)

    def _file(self, stored: StoredFile) -> MappedFile:
        if stored.name not in self._files:
            file = MappedFile(self.path, stored)
            if describe(file.schema) != self.manifest.columns:
                raise InputError(f"{self.path / stored.name}: its columns are not those in {MANIFEST}")
            self._files[stored.name] = file
        return self._files[stored.name]


def _read_clients(folder: Path, manifest: Manifest) -> ClientTable:
    path = folder / manifest.clients.name
    check_size(path, manifest.clients.bytes)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != manifest.clients.sha256:
        raise InputError(f"{path}: its sha256 is not the manifest's: restore it or make the population again")
    clients = _read_table(content, manifest)
    held = (len(clients), int(clients.n.sum()))
    if held != (manifest.counts.clients, manifest.counts.samples) or not len(clients):
        raise InputError(f"{path} has {held[0]} clients and {held[1]} samples, unlike {MANIFEST}")
    return clients


def _read_table(content: bytes, manifest: Manifest) -> ClientTable:
    import pyarrow.parquet as pq

    classes = len(manifest.classes)
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        batches = file.iter_batches(max(1, _READ_COUNTS // classes))
        clients = ClientTable.from_batches(batches, manifest.shards, classes)
    pa.default_memory_pool().release_unused()  # Arrow would keep what decoding took, in every process of a run
    return clients


def _read_only(array: npt.NDArray[T]) -> npt.NDArray[T]:
    # All who ask are given the same array.
    array.flags.writeable = False
    return array


def _read_manifest(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path.parent} is no population: {MANIFEST} cannot be read ({error.strerror}); "
            "give a folder that `partitioning make` wrote"
        ) from error
