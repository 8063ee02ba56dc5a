"""A fleet that watches a round: times, machine facts, client updates, and the driver's other work beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.fleet import Block, Fleet, Function, Outcome, Reference, joined
from algorithms.core.layouts import Layouts
from algorithms.core.rows import NO_ROWS, UpdateRows
from algorithms.core.tree import Node
from algorithms.options.gathered import Gathered
from algorithms.options.measures import Compared, Directions
from algorithms.parts.client_update import BlockResult, ClientUpdates


class RoundWatch:
    """A fleet for one round, around another fleet. The round does not know that it is watched.

    Each map has one outcome, of all its blocks. Time between two laps counts for the stage that the lap ends.

    Args:
        fleet: fleet that runs the blocks.
        meanwhile: the driver's other work; done once, when the first client updates are under way.
        wrap: makes the function that runs in place of client updates; None leaves them unchanged.
        compares: whether to sum the directions of the models, for the measure "dl".
    """

    def __init__(
        self,
        fleet: Fleet,
        meanwhile: Callable[[], None],
        wrap: Callable[[Function], Function] | None = None,
        compares: bool = False,
    ) -> None:
        self._fleet, self._meanwhile, self._wrap, self._compares = fleet, meanwhile, wrap, compares
        self._last = time.perf_counter()
        self._blocks: Sequence[Block] = ()
        self._machine: list[dict[str, float]] = []
        self.seconds = dict.fromkeys(("sample", "send", "train", "sum"), 0.0)
        self.rows = NO_ROWS
        self.directions: Directions | None = None

    @property
    def census(self) -> Census:
        return self._fleet.census

    @property
    def layouts(self) -> Layouts:
        return self._fleet.layouts

    def block_size(self, cohort: int) -> int:
        return self._fleet.block_size(cohort)

    def put(self, value: Any) -> Reference:
        return self._fleet.put(value)

    def map(
        self, function: Function, blocks: Sequence[Block], references: Sequence[Reference] = ()
    ) -> Iterator[Outcome]:
        """Run the function on every block; yield one outcome of all blocks, or none if there is no block."""
        self.lap("sample")
        if isinstance(function, ClientUpdates | Gathered):
            function = Compared(function) if self._compares else function
            function = self._wrap(function) if self._wrap else function
        outcomes = self._fleet.map(function, blocks, references)
        self.lap("send")
        return self._joined(function, blocks, outcomes)

    def lap(self, stage: str) -> None:
        """Count the time since the last lap for a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def end(self) -> dict[str, float]:
        """Count the rest of the time for the aggregation; return the seconds of each stage."""
        self.work_meanwhile()
        self.lap("aggregate")
        return self.seconds

    def work_meanwhile(self) -> None:
        """Do the driver's other work, unless it is done."""
        work, self._meanwhile = self._meanwhile, lambda: None
        work()
        self.lap("meanwhile")

    @property
    def blocks(self) -> Sequence[Block]:
        """Blocks of the client updates."""
        return self._blocks

    @property
    def updates(self) -> tuple[UpdateRows, NDArray[np.int64], Mapping[int, Mapping[str, float]]]:
        """Client updates, the number of each one's block, and the facts of the machine by block."""
        numbers = [block.number for block in self._blocks]
        blocks = np.repeat(np.array(numbers, np.int64), [len(block.clients) for block in self._blocks])
        return self.rows, blocks, dict(zip(numbers, self._machine, strict=True))

    def _joined(self, function: Function, blocks: Sequence[Block], outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        self.work_meanwhile()
        if not blocks:
            return
        machine: list[dict[str, float]] = []
        value, objects = joined(function, blocks, self._timed(outcomes, machine))
        self.lap("sum")
        if self._compares and isinstance(value, tuple):
            value, self.directions = value
        if isinstance(value, BlockResult):
            self.rows, self._blocks, self._machine = value.rows, blocks, machine
        yield Outcome(Node(0, len(blocks)), value, tuple(objects), tuple(machine))

    def _timed(self, outcomes: Iterator[Outcome], machine: list[dict[str, float]]) -> Iterator[Outcome]:
        for outcome in outcomes:
            self.lap("train")
            machine.extend(outcome.machine)
            yield outcome
            self.lap("sum")
