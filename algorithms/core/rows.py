"""Reports of client updates to the driver, by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.personal import Location

REPORTED = ("samples", "steps", "used", "labelled", "loss")
"""Entries of every client update's report. An asynchronous arrival's report also has `staleness`."""

Report: TypeAlias = Mapping[str, float]
"""Named numbers of a client update.

Every report has the client's `samples`, the `steps` taken, the samples `used` in them, the number of `labelled` samples
or pixels, and the mean training `loss`.
"""


@dataclass(frozen=True)
class UpdateRows:
    """Reports of n client updates.

    Args:
        clients: ids of the clients, int64 [n].
        report: named numbers, float64 [n] each; NaN for an update that has no such number.
        weights: weights in an aggregation, float64 [n].
        personal: locations of the clients' personal entries.
        nonfinite: first NaN or infinite quantity of each update, which was then left out or its model replaced, as
            `Local.nonfinite` says; None if everything was finite.
    """

    clients: NDArray[np.int64]
    report: Mapping[str, NDArray[np.float64]]
    weights: NDArray[np.float64]
    personal: tuple[Location | None, ...]
    nonfinite: tuple[str | None, ...]

    @classmethod
    def of(
        cls,
        clients: Sequence[int],
        reports: Sequence[Report],
        weights: Sequence[float],
        personal: Sequence[Location | None],
        nonfinite: Sequence[str | None],
    ) -> UpdateRows:
        """Return the rows of client updates from the report of each."""
        names = dict.fromkeys(name for report in reports for name in report)
        columns = {name: np.array([report.get(name, np.nan) for report in reports]) for name in names}
        return cls(np.array(clients, np.int64), columns, np.array(weights, float), tuple(personal), tuple(nonfinite))

    @classmethod
    def joined(cls, parts: Sequence[UpdateRows]) -> UpdateRows:
        """Return the rows of all parts, end to end."""
        parts = [part for part in parts if len(part)] or parts[:1]
        if len(parts) < 2:
            return parts[0] if parts else NO_ROWS
        names = parts[0].report.keys()
        if any(part.report.keys() != names for part in parts):
            names = dict.fromkeys(name for part in parts for name in part.report).keys()
        return cls(
            np.concatenate([part.clients for part in parts]),
            {name: np.concatenate([part.column(name) for part in parts]) for name in names},
            np.concatenate([part.weights for part in parts]),
            tuple(chain.from_iterable(part.personal for part in parts)),
            tuple(chain.from_iterable(part.nonfinite for part in parts)),
        )

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, part: slice) -> UpdateRows:
        columns = {name: values[part] for name, values in self.report.items()}
        return UpdateRows(self.clients[part], columns, self.weights[part], self.personal[part], self.nonfinite[part])

    def ordered(self, order: NDArray[np.int64]) -> UpdateRows:
        """Return the rows at these places, in this order."""
        places, columns = order.tolist(), {name: values[order] for name, values in self.report.items()}
        personal, nonfinite = ([each[place] for place in places] for each in (self.personal, self.nonfinite))
        return UpdateRows(self.clients[order], columns, self.weights[order], tuple(personal), tuple(nonfinite))

    def column(self, name: str) -> NDArray[np.float64]:
        """Return an entry of all reports; NaN where a report lacks it."""
        found = self.report.get(name)
        return np.full(len(self), np.nan) if found is None else found

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Whether everything in each client update was finite, [n]."""
        return np.array([wrong is None for wrong in self.nonfinite], bool)

    @property
    def trained(self) -> NDArray[np.bool_]:
        """Whether each client took a step and its result counts, [n]."""
        return (self.column("steps") > 0) & self.finite

    def reports(self) -> list[Report]:
        """Return the report of each client update."""
        columns = [values.tolist() for values in self.report.values()]
        return [dict(zip(self.report, values, strict=True)) for values in zip(*columns, strict=True)]


NO_ROWS = UpdateRows.of((), (), (), (), ())
"""Reports of no client update."""
