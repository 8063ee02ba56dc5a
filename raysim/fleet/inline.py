"""Fleet in this process: blocks run one after the other, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from algorithms import Block, Census, Function, Outcome, Output, Purpose, Worker
from algorithms.core.tree import Node, run_node
from algorithms.parts.client_update import round_of
from raysim.fleet.machine import fingerprint
from raysim.fleet.out_of_memory import is_out_of_memory, out_of_memory
from raysim.fleet.traffic import Traffic
from raysim.fleet.worker_plan import WorkerPlan

if TYPE_CHECKING:  # It imports the tables of the experiment file, which client actors do not need.
    from raysim.watching.loggers.logger import Logger


class InlineWorkplace:
    """This process as the place where blocks run: the counterpart of `ClientActors`."""

    device = "cpu"
    workers = 1
    loggers: Mapping[str, Logger] = {}
    """Loggers beside those of the experiment."""

    def __enter__(self) -> InlineWorkplace:
        self.fingerprint = fingerprint()
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no process was started."""

    def fit(self, plans: Mapping[str, WorkerPlan], updates: int) -> None:
        """Do nothing: this process is there already."""

    def skip(self, updates: int) -> None:
        """Do nothing: nothing waits for the rest of the run."""

    def current(self) -> str:
        """Return "": nothing starts beside the rounds."""
        return ""

    def ending(self) -> str:
        """Return "": the end waits for nothing."""
        return ""

    def fleet(
        self,
        plan: WorkerPlan,
        done: Callable[[Block], None] = lambda block: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> InlineFleet:
        """Return a fleet on a worker in this process; it has no notices."""
        return InlineFleet(plan.build(), plan.census, plan.block_size, done)


def run_here(
    worker: Worker, function: Function, node: Node, blocks: Sequence[Block], references: Sequence[Any], actor: int = 0
) -> Outcome:
    """Run a node of `blocks`, which have values instead of references, in this process.

    Raises:
        OutOfMemoryError: a block does not fit the memory.
    """
    objects: list[Any] = []
    machine: list[dict[str, float]] = []
    attempt = partial(_attempt, worker, function, references)

    def run(number: int) -> Any:
        started, block = time.perf_counter(), blocks[number]
        output = attempt(block)
        if output is None:
            raise out_of_memory(worker, function, block, attempt)
        objects.extend(output.objects)
        machine.append({"seconds": time.perf_counter() - started, "actor": float(actor)})
        return output.value

    value = run_node(node, run, function.join)
    return Outcome(node, value, tuple(objects), tuple(machine))


def _attempt(worker: Worker, function: Function, references: Sequence[Any], block: Block) -> Output | None:
    """Run a block; return None if memory does not suffice. The failed call's own memory is free again by then."""
    try:
        with worker.keyed(Purpose.OWN_BLOCK, round_of(function) or 0, block.number):
            return function(worker, replace(block, references=()), *references, *block.references)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None


class InlineFleet:
    """Fleet whose blocks run in this process.

    Args:
        worker: worker of this process.
        census: training clients.
        block_size: function from a cohort's size to the clients a block.
        done: called after each block.
    """

    starting = 0.0

    def __init__(
        self,
        worker: Worker,
        census: Census,
        block_size: Callable[[int], int],
        done: Callable[[Block], None] = lambda block: None,
    ) -> None:
        self.census = census
        self.layouts = worker.resident.layouts
        self.block_size = block_size
        self.traffic = Traffic()
        self._worker, self._done = worker, done

    def put(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def map(self, function: Function, blocks: Sequence[Block], references: Sequence[Any] = ()) -> Iterator[Outcome]:
        """Run the function on each block when its outcome is asked for."""
        for number, block in enumerate(blocks):
            yield run_here(self._worker, function, Node(number, number + 1), blocks, references)
            self._done(block)

    def by_node(self) -> dict[str, dict[str, int]]:
        """Return no bytes: nothing leaves this process."""
        return {}

    def close(self) -> None:
        """Release the worker's open files."""
        self._worker.personal.close()
