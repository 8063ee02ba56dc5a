"""Rows, sums and memory of a round on their way through its options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Reference
from algorithms.core.report import RoundReport, UpdateRows
from algorithms.core.sums import Sum


@dataclass(frozen=True)
class Received:
    """Rows, models and memory of a round as the server receives them.

    Args:
        rows: reports of the client updates.
        models: sum of the models; None if each model is an object of its own.
        personal: sum of the personal entries.
        blocks: number of each client update's block, int64 [m].
        machine: facts of the machine by the number of a block.
        up: bytes that each client sends, int64 [m].
        down: bytes that each client receives, int64 [m].
        objects: references to the objects that the blocks left behind.
        beside: further sums of options, by their names.
        memory: new memory of options, by their names.
    """

    rows: UpdateRows
    models: Sum | None
    personal: Sum
    blocks: NDArray[np.int64]
    machine: Mapping[int, Mapping[str, float]]
    up: NDArray[np.int64]
    down: NDArray[np.int64]
    objects: Sequence[Reference] = ()
    beside: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def keeping(self, name: str, memory: Mapping[str, Any]) -> Self:
        """Return the same with the new memory of an option."""
        return replace(self, memory={**self.memory, name: memory})

    def report(self, phase: int, seconds: Mapping[str, float]) -> RoundReport:
        """Return the report of the round; `seconds` go on until it ends."""
        up, down, aggregated = int(self.up.sum()), int(self.down.sum()), self.models is not None
        return RoundReport(self.rows, self.blocks, self.machine, aggregated, up, down, phase, seconds=seconds)
