"""Arranging samples in the source's order into one record batch per client.

A table in memory is gathered directly. Any other source is streamed: consecutive clients form runs that fit in memory,
each sample is appended to the scratch file of its run, and the runs are gathered one by one.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import check_values
from partitioning.common.errors import InputError
from partitioning.sources.arrow import open_arrow
from partitioning.sources.checked import check_source, unify_dictionaries
from partitioning.sources.source import Source, TableSource, read_columns, record_bytes

MEMORY = 256 * 2**20
"""Default limit of the samples held at once, in bytes."""

_FILES = 32  # runs grow so that at most about twice as many scratch files are open


def arrange_samples(
    source: Source,
    rows: Integers,
    sizes: Integers,
    *,
    scratch: Path,
    memory: int = MEMORY,
    missing: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield each client's samples as one record batch, independent of the kind of source and of `memory`.

    Args:
        source: samples in the source's order.
        rows: one or more row numbers in the source, client after client; rows may be left out.
        sizes: rows per client [K].
        scratch: temporary folder that the call creates; on failure it stays for the caller to remove.
        memory: limit of the samples held at once, in bytes; a larger client is held whole.
        missing: columns that may have missing values.

    Raises:
        InputError: a value is missing, or the source is damaged.
    """
    if isinstance(source, TableSource):
        check_values(source.table, name=source.name, missing=missing)
        yield from gather_batches(source.table, rows, sizes)
    else:
        checked = check_source(source, missing)
        yield from _stream(checked, rows, sizes, scratch, memory, _row_bytes(checked))


def _stream(
    source: Source, rows: Integers, sizes: Integers, scratch: Path, memory: int, row_bytes: float
) -> Iterator[pa.RecordBatch]:
    scratch.mkdir()
    # Plan for half of the memory, because rows differ in size. Limit the number of open files.
    most = max(int(memory / 2 / row_bytes), rows.size // _FILES)
    runs = list(_runs(rows, sizes, most, scratch))
    _distribute(source, runs)
    for run in runs:
        stored = open_arrow(run.path)
        if run.bytes <= memory or np.count_nonzero(run.sizes) == 1:
            yield from gather_batches(read_columns(stored), run.rows, run.sizes)
        else:  # rows were larger than estimated, or there were too few files
            yield from _stream(stored, run.rows, run.sizes, run.path.with_suffix(""), memory, run.row_bytes)
        run.path.unlink()
    scratch.rmdir()


def _row_bytes(source: Source) -> float:
    # Estimate from the first rows; a run that turns out too large is streamed again.
    return next((record_bytes(batch) / batch.num_rows for batch in source.batches() if batch.num_rows), 1.0)


class _Run:
    # Consecutive clients and the file of their samples in the source's order.

    def __init__(self, path: Path, rows: Integers, sizes: Integers) -> None:
        self.path = path
        self.sizes = sizes
        self.bytes = 0
        self._wanted = np.sort(rows)  # row numbers in the source
        self.rows = np.searchsorted(self._wanted, rows)  # row numbers in the file

    @property
    def row_bytes(self) -> float:
        return self.bytes / self.rows.size

    def pick(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch | None:
        # Return the run's rows of a batch whose first row has the number `start`; None if it has none of them.
        first, last = np.searchsorted(self._wanted, [start, start + batch.num_rows])
        if first == last:
            return None
        picked = batch.take(pa.array(self._wanted[first:last] - start))
        self.bytes += record_bytes(picked)
        return picked


def _runs(rows: Integers, sizes: Integers, most: int, scratch: Path) -> Iterator[_Run]:
    # Each run has at least one row and at most `most`, unless a single client has more.
    ends = np.cumsum(sizes)
    client = done = 0
    while client < sizes.size:
        first_end = ends[np.searchsorted(ends, done, side="right")]  # end of the first client with rows
        following = int(np.searchsorted(ends, max(done + most, first_end), side="right"))
        end = int(ends[following - 1])
        yield _Run(scratch / f"{client}.arrow", rows[done:end], sizes[client:following])
        client, done = following, end


def _distribute(source: Source, runs: Sequence[_Run]) -> None:
    seen = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(_writer(run.path, source.schema)) for run in runs]
        for batch in map(_unshifted, source.batches()):
            for run, writer in zip(runs, writers, strict=True):
                if (picked := run.pick(batch, seen)) is not None:
                    writer.write_batch(picked)
            seen += batch.num_rows


@contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchStreamWriter]:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        yield writer


def gather_batches(table: pa.Table, rows: Integers, sizes: Integers) -> Iterator[pa.RecordBatch]:
    """Yield one batch per owner: the table's rows at the next of the row numbers, as many as `sizes` says."""
    source = _compact(table)
    starts = np.cumsum([0, *(batch.num_rows for batch in source)])
    for start, end in itertools.pairwise([0, *np.cumsum(sizes).tolist()]):
        yield _take(source, starts, rows[start:end])


def _compact(table: pa.Table) -> list[pa.RecordBatch]:
    # An Arrow file holds one dictionary per column. Few batches are faster, because each costs a lookup per client.
    table = unify_dictionaries(table)
    with suppress(pa.ArrowInvalid):  # more than 2 GiB of strings or images stay in several batches
        table = table.combine_chunks()
    return [_unshifted(batch) for batch in table.to_batches() if batch.num_rows]


def _unshifted(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Arrow's `take` silently returns wrong rows of nested fixed-size lists that start at an offset, for example those
    # of a sliced table. A copy starts at 0.
    columns = [pa.concat_arrays([column]) if _is_shifted(column) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_shifted(array: pa.Array) -> bool:
    if array.offset:
        return True
    if isinstance(array, pa.ExtensionArray):
        return _is_shifted(array.storage)
    if pa.types.is_struct(array.type):
        return any(_is_shifted(array.field(place)) for place in range(array.type.num_fields))
    return hasattr(array, "values") and _is_shifted(array.values)


def _take(source: Sequence[pa.RecordBatch], starts: Integers, rows: Integers) -> pa.RecordBatch:
    # starts: first row number of each batch, then the number of all rows.
    if len(source) == 1:
        return source[0].take(pa.array(rows))
    places = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(places, kind="stable")
    parts = [source[place].take(pa.array(rows[places == place] - starts[place])) for place in np.unique(places)]
    if not parts:
        return source[0].slice(0, 0)
    taken = pa.Table.from_batches(parts).combine_chunks().to_batches()
    if len(taken) > 1:
        raise InputError(f"a client's {rows.size} rows hold more than 2 GiB of text: cast it to large_string")
    return taken[0].take(pa.array(np.argsort(order)))
