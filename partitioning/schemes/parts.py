"""What a scheme returns: the rows of each client."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.errors import InputError
from partitioning.measures.statistics import Fit

Column = Annotated[npt.ArrayLike, "column"]
"""A parameter with a value a sample [N]; on the command line and in files it is the name of a column."""

ClassTable = Annotated[Sequence[Sequence[int]], "class table"]
"""Samples a client and class [K, C]; on the command line and in files also the name of a file."""

Change = Callable[[int, pa.RecordBatch], pa.RecordBatch]
"""From a client and its rows to what is stored: the same rows and columns, with other values."""


class Shift(Protocol):
    """A scheme's change of the samples themselves, where it makes one."""

    def fit(self, batches: Iterable[pa.RecordBatch], label: str, classes: Sequence[Any]) -> Change:
        """Learn from all samples what the change needs, and return the change."""

    def relabel(self, clients: Integers, codes: Integers) -> Integers:
        """Return the class that each sample of a client has after the change [n]."""


class Parts(list[Integers]):
    """One ascending int64 array of row numbers a client: a list that `torch.utils.data.Subset` takes item by item.

    Args:
        parts: the arrays.
        report: how the scheme ended, in numbers and words; it is written to the manifest.
        names: of the clients, where the data name them.
        domains: of the clients, where each belongs to a domain.
        sites: of the clients, where their samples are to stay at one.
        shift: how each client's samples change; None for all schemes that only deal.
    """

    def __init__(
        self,
        parts: Iterable[Integers],
        *,
        report: Mapping[str, Any] | None = None,
        names: Sequence[str] | None = None,
        domains: Sequence[str] | None = None,
        sites: Sequence[str] | None = None,
        shift: Shift | None = None,
    ) -> None:
        super().__init__(parts)
        self.report = dict(report or {})
        self.names = names
        self.domains = domains
        self.sites = sites
        self.shift = shift


def report_of(shares: Fit, **others: Fit) -> dict[str, Any]:
    """Say how far the realised shares are from those that were drawn: of classes, and of others by name."""
    every = {"classes": shares, **others}
    return {"total_variation_to_asked": {name: _in_digits(each) for name, each in every.items()}}


def _in_digits(fit: Fit) -> dict[str, float]:
    return {name: digits(value) for name, value in asdict(fit).items()}


def digits(number: float) -> float:
    """Round to six digits: more than anyone reads."""
    return float(f"{number:.6g}")


def require(samples: int, clients: int, least: int) -> None:
    """Raise InputError where there are too few samples for all clients to have `least`."""
    if clients * least > samples:
        raise InputError(
            f"{clients} clients of at least {least} need {clients * least} samples and there are {samples}: "
            f"ask for at most {samples // least} clients" + (" or a smaller min_size" if least > 1 else "")
        )


def even(total: int, parts: int) -> Integers:
    """Cut `total` into parts that differ by 1 at most, the larger ones first."""
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes


def deal_by_size(sizes: Integers, samples: int, random: np.random.Generator) -> list[Integers]:
    """Deal all rows at random into parts of given sizes [K], whose sum is the number of samples."""
    owners = np.empty(samples, np.int64)
    owners[random.permutation(samples)] = np.repeat(np.arange(sizes.size), sizes)
    return group(owners, sizes.size)


def deal_by_table(codes: Integers, table: Integers, random: np.random.Generator) -> list[Integers]:
    """Deal each class's rows at random by that class's column of a table [K, C]; what the table leaves is left out."""
    owners = np.full(codes.size, -1, np.int64)
    by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=table.shape[1]))[:-1])
    for column, members in zip(table.T, by_class, strict=True):
        chosen = random.permutation(members)[: int(column.sum())]
        owners[chosen] = np.repeat(np.arange(column.size), column)
    return group(owners, table.shape[0])


def group(owners: Integers, clients: int) -> list[Integers]:
    """Turn each row's client [N], -1 for none, into ascending rows a client."""
    by_owner = np.argsort(owners, kind="stable").astype(np.int64)
    sizes = np.bincount(owners + 1, minlength=clients + 1)
    bounds = np.cumsum(sizes).tolist()
    return [by_owner[start:end] for start, end in itertools.pairwise(bounds)]
