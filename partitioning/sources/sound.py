"""A source fit to be dealt: no value is missing, and each column has one dictionary."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import Label, check_values, class_codes, labels_of
from partitioning.common.errors import InputError
from partitioning.sources.source import Source


class SoundSource:
    """A source whose values are checked while it is read, and whose batches share their dictionaries.

    An Arrow file holds one dictionary a column, and a source may have another in every batch. They are joined
    in a first pass over just these columns.
    """

    def __init__(self, source: Source) -> None:
        """Join the dictionaries; raises InputError where that cannot be done."""
        self._source = source
        self.name = source.name
        self.schema = source.schema
        self._dictionaries = _join(source)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give the source's batches; raises InputError where a value is missing."""
        for batch in self._source.batches(columns):
            check_values(batch, name=self.name)
            yield _with_dictionaries(batch, self._dictionaries)


class SameSource:
    """A source that is read once more, and must have the rows and labels that it had."""

    def __init__(self, source: Source, label: str, labels: Sequence[Label], codes: Integers) -> None:
        """Remember which of the `labels` each row had: `codes` [N]."""
        self._source = source
        self._label, self._labels, self._codes = label, labels, codes
        self.name = source.name
        self.schema = source.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give the source's batches; raises InputError where it is not what it was."""
        seen = 0
        for batch in self._source.batches(columns):
            known = self._codes[seen : seen + batch.num_rows]
            seen += batch.num_rows
            is_same = known.size == batch.num_rows
            if is_same and self._label in batch.schema.names:
                is_same = np.array_equal(class_codes(labels_of(batch, self._label), self._labels), known)
            if not is_same:
                raise self._changed()
            yield batch
        if seen != self._codes.size:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(f"{self.name} has other rows than at first: leave it unchanged while it is read")


def unified(table: pa.Table) -> pa.Table:
    """Return the table with one dictionary a column: the values in the order in which its chunks have them."""
    try:
        return table.unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"dictionary-encoded values cannot be joined ({error}): decode their column first") from error


def _join(source: Source) -> Mapping[str, pa.Array]:
    # For each column with a dictionary, an array without rows that has the dictionary of all batches.
    names = [field.name for field in source.schema if _has_dictionary(field.type)]
    joined: dict[str, pa.Array] = {}
    for batch in source.batches(names) if names else ():
        for name in names:
            empty = batch.column(name).take(pa.array([], pa.int64()))  # a slice would keep the batch in memory
            joined[name] = _encoded(empty, joined.get(name, empty))
    return joined


def _with_dictionaries(batch: pa.RecordBatch, dictionaries: Mapping[str, pa.Array]) -> pa.RecordBatch:
    columns = [
        _encoded(column, dictionaries[name]) if name in dictionaries else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _encoded(column: pa.Array, first: pa.Array) -> pa.Array:
    # The column in the dictionary of `first`, to which the values that it lacks are appended.
    both = unified(pa.table({"column": pa.chunked_array([first, column])}))
    return both.column("column").chunk(1)


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return pa.types.is_dictionary(kind) or any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))
