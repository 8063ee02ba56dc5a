"""The report of a round: its client updates, the protocol's bytes, measures and times."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.personal import Location
from algorithms.core.returned import Returned

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
        names = dict.fromkeys(chain.from_iterable(part.report for part in parts))
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
        return self.ordered(np.arange(len(self))[part])

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


class Laps:
    """Seconds of a round's stages as the driver sees them; time between two laps counts for the stage that ends."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.seconds = dict.fromkeys(("sample", "send", "meanwhile", "train", "sum", "aggregate"), 0.0)

    def lap(self, stage: str) -> None:
        """Count the time since the last lap for a stage."""
        now = time.perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now


@dataclass(frozen=True)
class DroppedUpdates:
    """Client updates that did not count, in virtual time: none of them was computed here.

    Args:
        clients: ids of the clients, int64 [n].
        outcomes: "late" if an update missed the end of its round, "vanished" if the device became unavailable.
        samples: samples that a real client would have trained on, in proportion to the time that it had, float64 [n].
        seconds: virtual seconds that a real client would have spent, float64 [n].
    """

    clients: NDArray[np.int64]
    outcomes: tuple[str, ...]
    samples: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @classmethod
    def of(
        cls, clients: Sequence[int], outcomes: Sequence[str], samples: Sequence[float], seconds: Sequence[float]
    ) -> DroppedUpdates:
        """Return the updates from lists."""
        return cls(np.array(clients, np.int64), tuple(outcomes), np.array(samples, float), np.array(seconds, float))

    def __len__(self) -> int:
        return len(self.clients)

    def count(self, outcome: str) -> int:
        """Return the number of updates with an outcome."""
        return self.outcomes.count(outcome)


@dataclass(frozen=True)
class RoundReport:
    """Report of a round.

    Args:
        updates: client updates in client-id order; those of an asynchronous algorithm in the order of arrival.
        blocks: number of each client update's block, int64 [n].
        machine: facts of the machine (`seconds`, `actor`) by the number of a block.
        aggregated: whether the round ended in an aggregation.
        bytes_up: bytes that a real federation's clients would have sent to its server.
        bytes_down: bytes that they would have received from it.
        phase: phase of the algorithm, starting at 0.
        exchanges: times that clients and server waited for each other; 1 in most algorithms.
        measures: further numbers by name, of options and of an algorithm's own round.
        seconds: time of each stage as the driver saw it: sample, send, meanwhile, train (rest of the wait), sum,
            aggregate.
        dropped: client updates that did not count; None if all devices are always available and no round ends early.
    """

    updates: UpdateRows
    blocks: NDArray[np.int64]
    machine: Mapping[int, Mapping[str, float]]
    aggregated: bool
    bytes_up: int
    bytes_down: int
    phase: int = 0
    exchanges: int = 1
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    dropped: DroppedUpdates | None = None

    def adding(self, up: int, down: int, exchanges: int = 0, seconds: float = 0.0) -> RoundReport:
        """Return the report with further bytes both ways, exchanges and virtual seconds."""
        measures = {"simulated_seconds": self.measures["simulated_seconds"] + seconds} if seconds else {}
        bytes_up, bytes_down, exchanges = self.bytes_up + up, self.bytes_down + down, self.exchanges + exchanges
        return replace(self, bytes_up=bytes_up, bytes_down=bytes_down, exchanges=exchanges).measuring(measures)

    def measuring(self, measures: Mapping[str, float]) -> RoundReport:
        """Return the report with further measures; raise InputError if one is no number."""
        given = Returned("the measures of a round")
        return replace(self, measures={**self.measures, **{n: given.number(repr(n), v) for n, v in measures.items()}})
