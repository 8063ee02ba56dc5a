"""From samples in the source's order to one record batch a client.

A table in memory is gathered from at once. Any other source is streamed: consecutive clients form runs that
fit in memory, each sample is appended to the scratch file of its run, and then run by run is gathered.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import check_values
from partitioning.common.errors import InputError
from partitioning.sources.arrow import ArrowSource
from partitioning.sources.sound import SoundSource, unified
from partitioning.sources.source import Source, TableSource, read_columns, record_bytes
from partitioning.store.writing import Progress

MEMORY = 256 * 2**20
"""Bytes of samples that are held at once unless told otherwise."""

_FILES = 32  # runs are made larger where more than about twice as many scratch files would be open at once


def arrange_samples(
    source: Source,
    rows: Integers,
    sizes: Integers,
    *,
    scratch: Path,
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Give each client's samples as one record batch; the same whatever the kind of source and the memory.

    Args:
        source: samples in its own order.
        rows: their numbers in the source, those of one client after those of another; some may be left out.
        sizes: how many of them each client has [K].
        scratch: a folder to make for the time of the call; on failure it stays, for the caller to remove.
        memory: bytes of samples to hold at once; a client with more is held whole.
        progress: called with the clients given so far and K.

    Raises InputError where a value is missing, the source is damaged, or no row is asked for.
    """
    if not rows.size:
        raise InputError(f"no client has a sample of {source.name}: choose other parameters of the scheme")
    if isinstance(source, TableSource):
        check_values(source.table, name=source.name)
        batches = gather_batches(source.table, rows, sizes)
    else:
        sound = SoundSource(source)
        batches = _streamed(sound, rows, sizes, scratch, memory, _row_bytes(sound))
    for done, batch in enumerate(batches, start=1):
        yield batch
        if progress is not None:
            progress(done, sizes.size)


def _streamed(
    source: Source, rows: Integers, sizes: Integers, scratch: Path, memory: int, row_bytes: float
) -> Iterator[pa.RecordBatch]:
    scratch.mkdir()
    # Half of the memory, because some rows are larger than others; and no more files than may be open at once.
    most = max(int(memory / 2 / row_bytes), rows.size // _FILES)
    runs = list(_runs(rows, sizes, most, scratch))
    _distribute(source, runs)
    for run in runs:
        stored = ArrowSource(run.path)
        if run.bytes <= memory or np.count_nonzero(run.sizes) == 1:
            yield from gather_batches(read_columns(stored), run.rows, run.sizes)
        else:  # its rows were larger than estimated, or the files too few
            yield from _streamed(stored, run.rows, run.sizes, run.path.with_suffix(""), memory, run.row_bytes)
        run.path.unlink()
    scratch.rmdir()


def _row_bytes(source: Source) -> float:
    # An estimate from the first rows: a run that it makes too large is streamed once more.
    return next((record_bytes(batch) / batch.num_rows for batch in source.batches() if batch.num_rows), 1.0)


class _Run:
    # Consecutive clients, and the file that collects their samples in the source's order.

    def __init__(self, path: Path, rows: Integers, sizes: Integers) -> None:
        self.path = path
        self.sizes = sizes
        self.bytes = 0
        self._wanted = np.sort(rows)  # numbers in the source
        self.rows = np.searchsorted(self._wanted, rows)  # numbers in the file

    @property
    def row_bytes(self) -> float:
        return self.bytes / self.rows.size

    def pick(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        # of a batch whose first row has the number `start`
        first, last = np.searchsorted(self._wanted, [start, start + batch.num_rows])
        picked = batch.take(pa.array(self._wanted[first:last] - start))
        self.bytes += record_bytes(picked) if picked.num_rows else 0
        return picked


def _runs(rows: Integers, sizes: Integers, most: int, scratch: Path) -> Iterator[_Run]:
    # Each has a row at least and, unless a client alone has more, `most` rows at most.
    ends = np.cumsum(sizes)
    client = done = 0
    while client < sizes.size:
        first_end = ends[np.searchsorted(ends, done, side="right")]  # of a client with rows
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
                picked = run.pick(batch, seen)
                if picked.num_rows:
                    writer.write_batch(picked)
            seen += batch.num_rows


@contextmanager
def _writer(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchStreamWriter]:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        yield writer


def gather_batches(table: pa.Table, rows: Integers, sizes: Integers) -> Iterator[pa.RecordBatch]:
    """Give the table's rows that each owner has, a batch an owner: the next of `sizes` of the row numbers."""
    source = _compact(table)
    starts = np.cumsum([0, *(batch.num_rows for batch in source)])
    for start, end in itertools.pairwise([0, *np.cumsum(sizes).tolist()]):
        yield _take(source, starts, rows[start:end])


def _compact(table: pa.Table) -> list[pa.RecordBatch]:
    # One dictionary for all batches, because an Arrow file holds one a column; and few batches, because each
    # costs a lookup a client.
    table = unified(table)
    with suppress(pa.ArrowInvalid):  # more than 2 GiB of strings or images: they stay in several batches
        table = table.combine_chunks()
    return [_unshifted(batch) for batch in table.to_batches() if batch.num_rows]


def _unshifted(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Arrow's `take` silently returns wrong rows of nested fixed-size lists that start at an offset, as those of
    # a sliced table do; a copy starts at 0.
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
    # starts: the first row number of each batch, and the number of all rows
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
