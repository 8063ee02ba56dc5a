"""Moments: mean and standard deviation of each client's numeric columns, for standardisation."""

import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.common.bounds import MAX_ROW_BYTES
from partitioning.common.checks import Floats, Integers
from partitioning.common.columns import has_nulls
from partitioning.common.errors import InputError
from partitioning.common.paths import regular
from partitioning.measures.numeric import flatten
from partitioning.store.files import TableFile, reading

_VALUES = 2**20  # numbers held at once, of a client's rows or of the clients of a row group
_COLUMNS = b"columns"


@dataclass(frozen=True)
class Moment:
    """Number of rows, and mean and standard deviation of their numeric columns.

    Args:
        n: number of rows.
        mean: means [D] of all columns, column after column; zeros if n is 0.
        std: standard deviations [D], divided by n, not n - 1; zeros if n is 0. A constant column has exactly 0: divide
            by `np.where(std > 0, std, 1)`.
    """

    n: int
    mean: Floats
    std: Floats

    @classmethod
    def none(cls, numbers: int) -> "Moment":
        """Return the moment of no rows; a row has `numbers` values."""
        return cls(0, np.zeros(numbers), np.zeros(numbers))

    @classmethod
    def of(cls, values: Floats) -> "Moment":
        """Return the moment of rows [n, D]; a column with NaN has NaN."""
        return cls.pool(np.ones(len(values)), values, np.zeros_like(values))

    @classmethod
    def pool(cls, n: Floats, means: Floats, stds: Floats) -> "Moment":
        """Return the moment of all rows of several clients.

            mean = sum_k n_k m_k / n,   std^2 = sum_k n_k (s_k^2 + (m_k - mean)^2) / n   with n = sum_k n_k

        Args:
            n: rows per client [K].
            means: means of each client [K, D].
            stds: standard deviations of each client [K, D].
        """
        total, filled = int(n.sum()), n > 0
        if not total:
            return cls.none(means.shape[1])
        shares = (n[filled] / total)[:, None]
        means, stds = means[filled], stds[filled]
        with np.errstate(invalid="ignore", over="ignore"):  # columns with infinities
            mean = means[0] + (shares * (means - means[0])).sum(axis=0)  # relative to the first: exact if all are equal
            return cls(total, mean, np.sqrt((shares * (stds**2 + (means - mean) ** 2)).sum(axis=0)))

    def __add__(self, other: "Moment") -> "Moment":
        both = (self, other)
        return Moment.pool(*(np.array([getattr(each, name) for each in both]) for name in ("n", "mean", "std")))


def measure_moments(
    batches: Iterable[pa.RecordBatch], path: Path, columns: Mapping[str, int], test_sizes: Integers
) -> Iterator[pa.RecordBatch]:
    """Yield the clients' batches unchanged and write the moment of each client's training part.

    Args:
        batches: one batch per client, in order.
        path: moments.parquet, complete after the last batch.
        columns: numbers per sample of each numeric column, from `numeric_columns`.
        test_sizes: rows of each client's own test part, which are left out [K].
    """
    import pyarrow.parquet as pq

    schema = _SCHEMA.with_metadata({_COLUMNS: json.dumps(dict(columns))})
    group, waiting, first = _rows_at_once(columns), list[Moment](), 0
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for batch, n_test in zip(batches, test_sizes.tolist(), strict=True):
            waiting.append(_measure(batch.slice(0, batch.num_rows - n_test), columns))
            if len(waiting) == group:
                writer.write_table(_table(waiting, first, schema), row_group_size=group)
                first, waiting = first + group, []
            yield batch
        if waiting:
            writer.write_table(_table(waiting, first, schema), row_group_size=group)


_Group = tuple[Integers, Floats, Floats]  # n [G], mean [G, D] and std [G, D] of a row group


class Moments:
    """Moments of a population's clients over their training parts, which exclude their own test parts.

    RADFed standardises in two ways. "Localized" (-L) uses each client's own moment. "Global" (-G) uses the moment of
    several clients together: the training clients, or all clients as in the paper.
    """

    def __init__(self, folder: Path, stored: TableFile, clients: int) -> None:
        """Open moments.parquet; raise InputError if it is not the file that was written, or of other clients."""
        import pyarrow.parquet as pq

        self._path = stored.check(folder)
        with reading(self._path):
            self._file = pq.ParquetFile(regular(self._path), memory_map=True)
        schema = self._file.schema_arrow
        self._sizes = _sizes_of(schema.metadata or {})
        if schema.remove_metadata() != _SCHEMA or not self._sizes:
            raise InputError(f"{self._path} has other columns than {_SCHEMA.names}: make the population again")
        footer = self._file.metadata
        self._group: int = max(1, footer.row_group(0).num_rows) if footer.num_row_groups else 1
        if len(self) != clients or footer.num_row_groups != -(-clients // self._group):
            raise InputError(
                f"{self._path} does not have a moment of each of {clients} clients: make the population again"
            )
        self._latest: tuple[int, _Group] | None = None

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    @cached_property
    def columns(self) -> dict[str, slice]:
        """Slice of each column in `Moment.mean` and `Moment.std`."""
        ends = np.cumsum(list(self._sizes.values())).tolist()
        return {name: slice(end - size, end) for (name, size), end in zip(self._sizes.items(), ends, strict=True)}

    def client(self, client: int) -> Moment:
        """Return a client's own moment; raise IndexError for an unknown client."""
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} is not in the population: its clients are 0 to {len(self) - 1}")
        group, row = divmod(client, self._group)
        if self._latest is None or self._latest[0] != group:
            self._latest = group, self._read(group)  # callers ask for neighbouring clients next
        n, means, stds = self._latest[1]
        return Moment(int(n[row]), means[row], stds[row])

    def together(self, clients: Sequence[int] | Integers) -> Moment:
        """Return the exact moment of all training rows of several clients (see `Moment.pool`).

        Repeated clients count once. An unknown client raises IndexError.
        """
        wanted = np.unique(np.asarray(clients, dtype=np.int64))
        if wanted.size and not 0 <= wanted[0] <= wanted[-1] < len(self):
            raise IndexError(f"clients {wanted[0]} to {wanted[-1]} are not all in 0 to {len(self) - 1}")
        whole = Moment.none(sum(self._sizes.values()))
        for group in np.unique(wanted // self._group).tolist():
            rows = wanted[wanted // self._group == group] % self._group
            whole = whole + Moment.pool(*(part[rows] for part in self._read(group)))
        return whole

    def counts(self) -> Integers:
        """Return the number of rows of each client's moment [K]."""
        return np.concatenate([self._read(group)[0] for group in range(self._file.metadata.num_row_groups)])

    def _read(self, group: int) -> _Group:
        with reading(self._path):
            table = self._file.read_row_group(group)
        n, means, stds = (table.column(name).combine_chunks() for name in ("n", "mean", "std"))
        shape = (min(self._group, len(self) - group * self._group), sum(self._sizes.values()))
        lengths = np.concatenate([each.value_lengths().to_numpy(zero_copy_only=False) for each in (means, stds)])
        is_sound = len(n) == shape[0] and not any(map(has_nulls, (n, means, stds))) and (lengths == shape[1]).all()
        if not is_sound or (n.to_numpy() < 0).any():
            raise InputError(
                f"{self._path} has rows that are not moments of {shape[1]} numbers: make the population again"
            )
        means, stds = (each.flatten().to_numpy().reshape(shape) for each in (means, stds))
        return n.to_numpy(), means, stds


_SCHEMA = pa.schema(
    [("client", pa.int64()), ("n", pa.int64()), ("mean", pa.list_(pa.float64())), ("std", pa.list_(pa.float64()))]
)


def _sizes_of(metadata: Mapping[bytes, bytes]) -> dict[str, int]:
    # Numbers per sample of each column; empty if the metadata do not hold them.
    try:
        sizes = json.loads(metadata.get(_COLUMNS, b""))
    except ValueError:
        return {}
    is_sound = isinstance(sizes, dict) and all(type(size) is int and size > 0 for size in sizes.values())
    return sizes if is_sound and sum(sizes.values()) <= MAX_ROW_BYTES else {}


def _rows_at_once(columns: Mapping[str, int]) -> int:
    return max(1, _VALUES // sum(columns.values()))


def _measure(batch: pa.RecordBatch, columns: Mapping[str, int]) -> Moment:
    step = _rows_at_once(columns)
    parts = (_values(batch.slice(start, step), columns) for start in range(0, max(batch.num_rows, 1), step))
    return reduce(operator.add, map(Moment.of, parts))


def _table(moments: Sequence[Moment], first: int, schema: pa.Schema) -> pa.Table:
    bounds = np.arange(len(moments) + 1, dtype=np.int32) * moments[0].mean.size
    lists = {
        name: pa.ListArray.from_arrays(pa.array(bounds), np.concatenate([getattr(each, name) for each in moments]))
        for name in ("mean", "std")
    }
    clients = np.arange(first, first + len(moments))
    return pa.table({"client": clients, "n": [each.n for each in moments], **lists}, schema=schema)


def _values(batch: pa.RecordBatch, columns: Mapping[str, int]) -> Floats:
    parts = [flatten(batch.column(name)).reshape(-1, size) for name, size in columns.items()]
    return np.concatenate(parts, axis=1, dtype=np.float64)  # [n, D]
