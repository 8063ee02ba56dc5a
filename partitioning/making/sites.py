"""Sites: where each client's samples are to stay, and which of a population's files belong there."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.errors import InputError
from partitioning.schemes.parts import Parts


def placed(parts: Parts, values: npt.ArrayLike, column: str) -> Parts:
    """Return the same clients with their sites; those that the data name come site after site, in sorted order.

    Args:
        parts: each client's rows.
        values: of the column, one a row of the source [N].
        column: its name, for messages.

    Raises InputError where a client has rows of two sites, or none at all.
    """
    names, codes = np.unique(np.asarray(values), return_inverse=True)
    sites = _shared(parts, codes, names, column)
    # Numbers of other clients mean something: a row of a table, a strength that grows with them.
    are_free = parts.names is not None or parts.domains is not None
    order = np.argsort(sites, kind="stable") if are_free else np.arange(len(parts))
    return Parts(
        [parts[place] for place in order],
        report=parts.report,
        names=_taken(parts.names, order),
        domains=_taken(parts.domains, order),
        sites=[str(name) for name in names[sites[order]]],
        shift=parts.shift,
    )


def runs(sites: pa.Array | None) -> list[int | None]:
    """Return the lengths of runs of clients of one site; the last is None, for all that are left."""
    if sites is None:
        return [None]
    codes = np.asarray(sites.dictionary_encode().indices)
    bounds = np.flatnonzero(np.diff(codes)) + 1
    return [*np.diff(bounds, prepend=0).tolist(), None]


def _shared(parts: Parts, codes: Integers, names: npt.NDArray[np.generic], column: str) -> Integers:
    # The code that all rows of a client have [K].
    sizes = np.array([part.size for part in parts])
    if not sizes.all():
        raise InputError(
            f"site is {column!r} and client {int(np.argmin(sizes))} has no row that would say its site: "
            "ask for a min_size of 1 or more"
        )
    starts = np.cumsum(sizes) - sizes
    found = codes[np.concatenate(parts)]
    first, last = np.minimum.reduceat(found, starts), np.maximum.reduceat(found, starts)
    if (first != last).any():
        client = int(np.argmax(first != last))
        raise InputError(
            f"site is {column!r} and client {client} has rows of {str(names[first[client]])!r} and of "
            f"{str(names[last[client]])!r}: a client's rows must be of one site; take scheme 'domains' with domain "
            f"{column!r}, or 'natural' with a column of clients that are each at one site"
        )
    return first


def _taken(words: Sequence[str] | None, order: Integers) -> list[str] | None:
    return None if words is None else [words[place] for place in order]
