"""Several sources joined into one; each is a domain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.errors import InputError
from partitioning.sources.source import Source, difference


@dataclass(frozen=True)
class JoinedSource:
    """The rows of several sources with equal columns, one source after the other.

    Raises:
        InputError: the columns differ, or two sources have the same name.
    """

    parts: tuple[Source, ...]

    def __post_init__(self) -> None:
        """Refuse sources that differ."""
        first = self.parts[0]
        for part in self.parts[1:]:
            if part.schema.names != first.schema.names or part.schema.types != first.schema.types:
                raise InputError(
                    f"{part.name} {difference(part.schema, first.schema)}, unlike {first.name}: give sources with the "
                    "same names and types, in the same order"
                )
        names = [part.name for part in self.parts]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"two sources are named {repeated!r}: rename one, because each is a domain")

    @property
    def name(self) -> str:
        """Names of all sources."""
        return ", ".join(part.name for part in self.parts)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the first source, equal to those of all."""
        return self.parts[0].schema

    @cached_property
    def domains(self) -> npt.NDArray[np.str_]:
        """Source of each row [N]; a file counts by its name without the suffix."""
        names = [part.name.partition(".")[0] or part.name for part in self.parts]
        if len(set(names)) < len(names):
            names = [part.name for part in self.parts]
        return np.repeat(names, [_count_rows(part) for part in self.parts])

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the first source, then of the second, and so on."""
        for part in self.parts:
            for batch in part.batches(columns):
                # Equal types may still name a list's inner field differently: Parquet says "element", memory "item".
                schema = pa.schema([self.schema.field(name) for name in batch.schema.names], self.schema.metadata)
                yield batch.cast(schema) if batch.schema != schema else batch


def _count_rows(source: Source) -> int:
    return sum(batch.num_rows for batch in source.batches(source.schema.names[:1]))
