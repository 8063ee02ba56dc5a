"""The report of a round: its client updates, the protocol's bytes, measures and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from algorithms.engine.client_update import UpdateRow

UpdateRecord: TypeAlias = tuple[int, UpdateRow, dict[str, float]]
"""A client update: the number of its block, its row, and facts of the machine."""


@dataclass(frozen=True)
class RoundReport:
    """Report of a round.

    Args:
        updates: client updates in client-id order; those of an asynchronous algorithm in the order of arrival.
        aggregated: whether the round ended in an aggregation.
        bytes_up: bytes that a real federation's clients would have sent to its server.
        bytes_down: bytes that they would have received from it.
        phase: phase of the algorithm, starting at 0.
        exchanges: times that clients and server waited for each other; 1 in most algorithms.
        measures: further numbers by name: those of `State.measures`, and an algorithm's own.
        seconds: time of each stage as the driver saw it: sample, send, meanwhile, train (rest of the wait), sum,
            aggregate.
    """

    updates: tuple[UpdateRecord, ...]
    aggregated: bool
    bytes_up: int
    bytes_down: int
    phase: int = 0
    exchanges: int = 1
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
