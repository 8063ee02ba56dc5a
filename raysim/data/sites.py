"""The sites of a population's clients: where the data of each may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from partitioning import Population


@dataclass(frozen=True)
class Sites:
    """The sites of a population.

    Args:
        names: of the sites, in alphabetical order; a site's number is its place.
        numbers: of each client's site, int64 [K]; `len(names)` where a client has none.
    """

    names: tuple[str, ...]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, population: Population) -> Sites | None:
        """The sites of all its clients; None where no client has one."""
        if population.sites is None:
            return None
        column = population.sites.cast(pa.string())
        names = sorted(column.drop_null().unique().to_pylist())
        numbers = pc.fill_null(pc.index_in(column, pa.array(names, pa.string())), len(names))
        return cls(tuple(names), np.array(numbers, np.int64))
