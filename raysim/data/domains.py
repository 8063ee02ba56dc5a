"""Domains' rows: as many of each as are asked for, and a test set of each."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from algorithms import Purpose, generator
from raysim.common.errors import InputError
from raysim.data.prepare import taken


def by_domain(table: pa.Table, column: str) -> Mapping[str, pa.Table]:
    """A table's rows by the domain that a column names."""
    names = sorted(pc.unique(table[column]).to_pylist(), key=str)
    values = np.asarray(table[column].to_pylist())
    return {str(name): taken(table, np.flatnonzero(values == name)) for name in names}


def of_each(table: pa.Table, column: str, count: int, seed: int) -> pa.Table:
    """So many rows of each domain, drawn at random without replacement, in the table's order.

    Raises:
        InputError: a domain has fewer.
    """
    values = np.asarray(table[column].to_pylist())
    chosen = []
    for place, name in enumerate(np.unique(values)):
        rows = np.flatnonzero(values == name)
        if len(rows) < count:
            raise InputError(
                f"data.per_domain = {count}: must be at most {len(rows)}, for domain {name} has no more rows to train "
                "on; lower it"
            )
        chosen.append(generator(seed, Purpose.DOMAIN_ROWS, place).permutation(rows)[:count])
    return taken(table, np.sort(np.concatenate(chosen)))
