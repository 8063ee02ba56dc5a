"""Client actor: one Ray process that plays many clients."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from algorithms import Block, Function, Worker
from algorithms.core.tree import Node
from raysim.fleet.gpu_sharing import measured
from raysim.fleet.inline import run_here
from raysim.fleet.machine import fingerprint, keep_memory, settle
from raysim.fleet.remote_files import StoreHandle, located, reachable
from raysim.fleet.resources import this_node
from raysim.fleet.traffic import array_bytes
from raysim.fleet.worker_plan import WorkerPlan


class ClientActor:
    """Process with resident models, pinned threads and memory-mapped shards.

    Args:
        number: its number among the actors.
        threads: threads that it may use.
        device: "cpu" or "cuda".
        share: its part of the device, in (0, 1].
    """

    def __init__(self, number: int, threads: int, device: str, share: float = 1.0) -> None:
        keep_memory()
        settle(threads)
        self._number, self._device, self._share = number, device, share
        self._worker: Worker | None = None

    def fingerprint(self) -> dict[str, str]:
        """Return the properties of this process that its results depend on."""
        return fingerprint(self._device)

    def measure(self, plan: WorkerPlan, copy: Path | None = None) -> tuple[tuple[int, int] | None, str]:
        """Measure the GPU memory of a plan; `copy` is as for `prepare`.

        Returns:
            Most bytes that the plan takes and bytes of the GPU (None if the population is missing), and the node's id.
        """
        here = located(plan, copy)
        return None if here is None else measured(here), this_node()

    def prepare(
        self, plan: WorkerPlan, store: StoreHandle | None = None, copy: Path | None = None
    ) -> tuple[dict[str, str] | None, str]:
        """Set up the worker for the following blocks; return what `fingerprint` and `this_node` say.

        The fingerprint is None if the population is missing. `store` is for nodes that do not see the folder of
        personal state; `copy` is the folder of the population's copy on this node.
        """
        if self._worker is not None:
            self._worker.personal.close()
            # A GPU may not hold two sets of models. Cycles keep some of the old ones alive.
            self._worker = None
            if self._device != "cpu":
                gc.collect()
                torch.cuda.empty_cache()  # else the room for data leaves out what torch has cached
        here = located(plan, copy)
        if here is None:
            return None, this_node()
        worker = here.build(self._share)
        self._worker = worker if store is None else replace(worker, personal=reachable(worker.personal, store))
        return self.fingerprint(), this_node()

    def run(self, function: Function, blocks: Sequence[tuple[Block, int]], common: int, *values: Any) -> Any:
        """Run neighbouring blocks.

        Args:
            function: function of each block.
            blocks: blocks, each with the number of its own values.
            common: number of values that all blocks take.
            values: the common values, then the blocks' own.

        Returns:
            Facts: a record for each block, size of the joined value, sizes of the objects, bytes of the values. Then
            the joined value, then each object.
        """
        if self._worker is None:
            raise RuntimeError("a block came before the worker was set up")
        rest = iter(values[common:])
        whole = [replace(block, references=tuple(islice(rest, count))) for block, count in blocks]
        done = run_here(self._worker, function, Node(0, len(whole)), whole, values[:common], self._number)
        sizes = [array_bytes(thing) for thing in done.objects]
        return (done.machine, array_bytes(done.value), sizes, array_bytes(values)), done.value, *done.objects
