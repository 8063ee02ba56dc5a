"""Sources with checks: no missing values, one dictionary per column, the same rows in the second pass."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import Label, check_values, class_codes, labels_of
from partitioning.common.errors import InputError
from partitioning.sources.source import Source, StreamedSource


def check_source(source: Source, missing: Collection[str] = ()) -> Source:
    """Return the source with its values checked during reading, and with one dictionary per column.

    An Arrow file holds one dictionary per column, but a source may have another in every batch. A first pass over the
    dictionary columns joins them.

    Raises:
        InputError: a value is missing in a column not in `missing` (during reading), or dictionaries cannot be joined.
    """
    dictionaries = _join(source)

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in source.batches(names):
            check_values(batch, name=source.name, first=rows, missing=missing)
            rows += batch.num_rows
            yield _with_dictionaries(batch, dictionaries)

    return StreamedSource(source.name, source.schema, read)


def check_unchanged(source: Source, label: str, labels: Sequence[Label], codes: Integers) -> Source:
    """Return the source; reading it raises InputError unless it still has the rows and labels of the first pass.

    Args:
        source: source in its second pass.
        label: label column.
        labels: distinct labels.
        codes: index in `labels` of each row's label in the first pass [N].
    """

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        seen = 0
        for batch in source.batches(names):
            known = codes[seen : seen + batch.num_rows]
            seen += batch.num_rows
            is_same = known.size == batch.num_rows
            if is_same and label in batch.schema.names:
                is_same = np.array_equal(class_codes(labels_of(batch, label), labels), known)
            if not is_same:
                raise _changed(source)
            yield batch
        if seen != codes.size:
            raise _changed(source)

    return StreamedSource(source.name, source.schema, read)


def _changed(source: Source) -> InputError:
    return InputError(f"{source.name} changed while it was read: leave it unchanged until `make` has ended")


def unify_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with one dictionary per column, its values in order of first appearance."""
    try:
        return table.unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"dictionary-encoded values cannot be joined ({error}): decode their column first") from error


def _join(source: Source) -> Mapping[str, pa.Array]:
    # For each dictionary column: an array without rows, with the dictionary of all batches.
    names = [field.name for field in source.schema if _has_dictionary(field.type)]
    joined: dict[str, pa.Array] = {}
    for batch in source.batches(names) if names else ():
        for name in names:
            empty = batch.column(name).take(pa.array([], pa.int64()))  # a slice would keep the batch in memory
            joined[name] = _encode(empty, joined.get(name, empty))
    return joined


def _with_dictionaries(batch: pa.RecordBatch, dictionaries: Mapping[str, pa.Array]) -> pa.RecordBatch:
    columns = [
        _encode(column, dictionaries[name]) if name in dictionaries else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _encode(column: pa.Array, first: pa.Array) -> pa.Array:
    # Encode the column in the dictionary of `first`; append missing values to it.
    both = unify_dictionaries(pa.table({"column": pa.chunked_array([first, column])}))
    return both.column("column").chunk(1)


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
