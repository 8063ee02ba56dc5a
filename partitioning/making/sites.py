"""Sites: the place that each client's samples must not leave."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Integers
from partitioning.common.errors import InputError
from partitioning.schemes.parts import Parts


def assign_sites(parts: Parts, values: npt.ArrayLike, column: str) -> Parts:
    """Return the clients with their sites; clients that the data name are sorted by site.

    Args:
        parts: each client's rows.
        values: site of each source row [N].
        column: name of the site column, for messages.

    Raises:
        InputError: a client has rows of two sites, or no row.
    """
    names, codes = np.unique(np.asarray(values), return_inverse=True)
    sites = _site_of_each(parts, codes, names, column)
    # Other clients keep their numbers, which mean something: a row of a table, or a strength that grows with them.
    may_move = parts.names is not None or parts.domains is not None
    order = np.argsort(sites, kind="stable") if may_move else np.arange(len(parts))
    return Parts(
        [parts[place] for place in order],
        report=parts.report,
        names=_reorder(parts.names, order),
        domains=_reorder(parts.domains, order),
        sites=[str(name) for name in names[sites[order]]],
        shift=parts.shift,
    )


def _site_of_each(parts: Parts, codes: Integers, names: npt.NDArray[np.generic], column: str) -> Integers:
    # The code that all rows of a client share [K].
    sizes = parts.sizes
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


def _reorder(words: Sequence[str] | None, order: Integers) -> list[str] | None:
    return None if words is None else [words[place] for place in order]
