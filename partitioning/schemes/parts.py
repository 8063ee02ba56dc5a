"""Result of a scheme, and helpers that deal rows to clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Integers
from partitioning.common.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

ColumnValues = Annotated[npt.ArrayLike, "column"]
"""Parameter with one value per sample [N]; the command line and files give a column's name."""

ClassTable = Annotated[Sequence[Sequence[int]], "class table"]
"""Samples per client and class [K, C]; the command line and files may give a file name."""

Change: TypeAlias = "Callable[[int, pa.RecordBatch], pa.RecordBatch]"
"""From a client and its rows to the stored rows: the same rows and columns, with other values."""


class Shift(Protocol):
    """Change of the samples by a scheme."""

    def fit(self, batches: Iterable[pa.RecordBatch], label: str, classes: Sequence[Any]) -> Change:
        """Measure all samples as needed, and return the change."""

    def relabel(self, clients: Integers, codes: Integers) -> Integers:
        """Return the class of each sample after the change [n]."""


class Parts(list[Integers]):
    """List of one ascending int64 array of row numbers per client; `torch.utils.data.Subset` accepts each array.

    Args:
        parts: row numbers of each client.
        report: report of the scheme for the manifest.
        names: name of each client, if the data name clients.
        domains: domain of each client, if each belongs to one.
        sites: site of each client, which its samples must not leave.
        shift: change of the samples; None if the scheme only deals them.
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

    @property
    def sizes(self) -> Integers:
        """Rows per client [K]."""
        return np.array([part.size for part in self])

    @property
    def owners(self) -> Integers:
        """Client of each row, client after client [n]."""
        return np.repeat(np.arange(len(self)), self.sizes)


def report_of(fits: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Report the mean and largest distance of realised from drawn shares, of classes and features by name."""
    distances = {name: {"mean": digits(mean), "max": digits(largest)} for name, (mean, largest) in fits.items()}
    return {"total_variation_to_asked": distances}


def digits(number: float) -> float:
    """Round to six significant digits."""
    return float(f"{number:.6g}")


def require(samples: int, clients: int, least: int) -> None:
    """Raise InputError unless all clients can have `least` samples."""
    if clients * least > samples:
        raise InputError(
            f"{clients} clients of at least {least} need {clients * least} samples and there are {samples}: "
            f"ask for at most {samples // least} clients" + (" or a smaller min_size" if least > 1 else "")
        )


def even(total: int, parts: int) -> Integers:
    """Cut `total` into parts that differ by at most 1, larger ones first."""
    sizes = np.full(parts, total // parts, dtype=np.int64)
    sizes[: total % parts] += 1
    return sizes


def deal_by_size(sizes: Integers, samples: int, random: np.random.Generator) -> list[Integers]:
    """Deal all rows at random into parts of given sizes [K]; the sizes sum to the number of samples."""
    owners = np.empty(samples, np.int64)
    owners[random.permutation(samples)] = np.repeat(np.arange(sizes.size), sizes)
    return group(owners, sizes.size)


def deal_by_table(codes: Integers, table: Integers, random: np.random.Generator) -> list[Integers]:
    """Deal each class's rows at random by its column of a table [K, C]; leave out the remaining rows."""
    owners = np.full(codes.size, -1, np.int64)
    by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=table.shape[1]))[:-1])
    for column, members in zip(table.T, by_class, strict=True):
        chosen = random.permutation(members)[: int(column.sum())]
        owners[chosen] = np.repeat(np.arange(column.size), column)
    return group(owners, table.shape[0])


def group(owners: Integers, clients: int) -> list[Integers]:
    """Turn each row's client [N] (-1 for none) into ascending rows of each client."""
    by_owner = np.argsort(owners, kind="stable").astype(np.int64)
    sizes = np.bincount(owners + 1, minlength=clients + 1)
    bounds = np.cumsum(sizes).tolist()
    return [by_owner[start:end] for start, end in itertools.pairwise(bounds)]
