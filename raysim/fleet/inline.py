"""The fleet that is this process: blocks run one after the other, in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from algorithms import Bench, Block, Census, Function, Outcome
from raysim.fleet.bench import BenchPlan
from raysim.fleet.machine import fingerprint
from raysim.fleet.traffic import Traffic


class Inline:
    """This process as a place to work: the counterpart of `ClientActors`."""

    def __enter__(self) -> Inline:
        self.fingerprint = fingerprint()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def fleet(self, plan: BenchPlan, done: Callable[[Block], None] = lambda block: None) -> InlineFleet:
        """A fleet on a bench of this process."""
        return InlineFleet(plan.build(), plan.census(), plan.block_size, done)


class InlineFleet:
    """Runs blocks in this process.

    Args:
        bench: what blocks run on.
        census: the training clients.
        block_size: clients a block for a cohort's size.
        done: called after each block.
    """

    def __init__(
        self,
        bench: Bench,
        census: Census,
        block_size: Callable[[int], int],
        done: Callable[[Block], None] = lambda block: None,
    ) -> None:
        self.census = census
        self.placement = bench.resident.placement
        self.block_size = block_size
        self.traffic = Traffic()
        self._bench = bench
        self._done = done

    def put(self, value: Any) -> Any:
        """The value itself."""
        return value

    def map(self, function: Function, blocks: Sequence[Block], references: Sequence[Any] = ()) -> list[Outcome]:
        """Run the function on each block."""
        outcomes = []
        for block in blocks:
            started = time.perf_counter()
            output = function(self._bench, replace(block, references=()), *references, *block.references)
            machine = {"seconds": time.perf_counter() - started, "actor": 0.0}
            outcomes.append(Outcome(output.value, output.objects, machine))
            self._done(block)
        return outcomes

    def close(self) -> None:
        """Release what the bench holds."""
        self._bench.kept.close()
