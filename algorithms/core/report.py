"""The report of a round: its client updates, the protocol's bytes, measures and times."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from algorithms.core.rows import UpdateRows


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

    def measuring(self, measures: Mapping[str, float]) -> RoundReport:
        """Return the report with further measures."""
        return replace(self, measures={**self.measures, **measures})
