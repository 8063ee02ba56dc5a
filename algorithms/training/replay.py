"""Local steps as CUDA graphs: the processor starts one graph in place of a hundred kernels."""

from __future__ import annotations

import gc
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

from algorithms.training.folding import has_hooks, is_known
from algorithms.training.local import Local
from algorithms.training.loss import OwnLoss
from algorithms.training.resident import Resident
from algorithms.training.steps import MomentumDirection, SlotMemory
from algorithms.training.work import Launch, StackedBatch, Step

LEAST_STEPS, LEAST_DECAYING = 4, 16
"""Least number of equal steps for which a graph pays off, and the same if each round has another learning rate, so that
no later round uses the graph."""

MOST_GRAPHS = 32
"""Largest number of graphs that a trainer keeps; the least recently used leave first."""

TRIALS = 2
"""Runs of a step before it is captured, in which libraries set themselves up."""

NO_MEMORY = ("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")
"""Words of errors of CUDA and its libraries that report a lack of memory."""


class Captured:
    """A step as a CUDA graph, with memory of its own for its inputs and its result.

    Args:
        step: the step; it runs a few times, and what it changes is restored.
        inputs: tensors of a batch, for their shapes.
        changed: tensors that it changes.
        side: stream of all captures of a trainer: memory that a stream has cached serves no other one.
        pool: pool of the trainer's other graphs, which share their memory; None for a new one.

    Raises:
        RuntimeError: the step waits for the GPU, or copies from main memory, which no graph can; or memory is short.
    """

    def __init__(
        self, step: Step, inputs: Sequence[torch.Tensor], changed: Sequence[torch.Tensor], side: Any, pool: Any
    ) -> None:
        self._inputs = [each.clone() for each in inputs]
        before = [each.clone() for each in changed]
        self._graph = torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                for _ in range(TRIALS):
                    step(*self._inputs)
                # During a capture torch frees nothing that it has cached.
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                with _capturing(self._graph, pool):
                    self._result = step(*self._inputs)
        finally:
            torch.cuda.current_stream().wait_stream(side)
            torch._foreach_copy_(list(changed), before)

    @property
    def pool(self) -> Any:
        """Pool of its memory, which lasts as long as a graph that uses it."""
        return self._graph.pool()

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Take the step on other values of the inputs."""
        torch._foreach_copy_(self._inputs, list(inputs))
        self._graph.replay()
        return self._result.clone()


@contextmanager
def _capturing(graph: Any, pool: Any) -> Iterator[None]:
    """Capture what happens in the context; garbage may hold graphs, which a capture must not destroy."""
    collects = gc.isenabled()
    gc.disable()
    try:
        graph.capture_begin(pool=pool)
        try:
            yield
        except BaseException:
            with suppress(RuntimeError):  # the first error is the cause
                graph.capture_end()
            raise
        graph.capture_end()
    finally:
        if collects:
            gc.enable()


class Replays(Launch):
    """Steps that are captured once and replayed ever after, on a GPU.

    A step that a stack of client updates takes at least 4 times with the same lanes and sizes is always replayed, the
    first time too, for which kernels run must depend on the work alone, not on what the process did before.

    Args:
        resident: models.
    """

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._plain = all(map(_is_plain, resident.module.modules()))
        self._locals: list[Local] = []
        self._now: tuple[int, int] | None = None
        """Number of the present client updates' kind, and its least number of equal steps; None if none is captured."""
        self._refused: set[int] = set()
        self._graphs: OrderedDict[tuple[object, ...], Captured] = OrderedDict()
        self._slots: SlotMemory = {}
        self._side: Any = torch.cuda.Stream() if resident.device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def begin(self, local: Local) -> SlotMemory | None:
        self._now = None
        if not (self._plain and _is_static(local)):
            return None
        if local not in self._locals:
            self._locals.append(local)
        number = self._locals.index(local)
        if number not in self._refused:
            self._now = number, LEAST_STEPS if local.lr_decay == 1 else LEAST_DECAYING
        return self._slots

    def __call__(self, lr: float, step: Step, inputs: Sequence[torch.Tensor], batch: StackedBatch) -> torch.Tensor:
        if self._now is None or batch.repeats < self._now[1]:
            return step(*inputs)
        key = self._now[0], lr, batch.lanes.start, batch.lanes.stop, tuple(tuple(each.shape) for each in inputs)
        if key not in self._graphs:
            slots = [stack[batch.lanes] for stacks in self._slots.values() for stack in stacks.values()]
            try:
                self._capture(key, step, inputs, [*self._resident.values(batch.lanes), *slots])
            except RuntimeError as error:  # an error of the step itself comes again without a graph
                if any(words in str(error) for words in NO_MEMORY):
                    raise
                warnings.warn(f"steps start kernel by kernel, because no graph takes them: {error}", stacklevel=2)
                self._refused.add(self._now[0])
                self._now = None
                return step(*inputs)
        self._graphs.move_to_end(key)
        return self._graphs[key](inputs)

    def _capture(
        self, key: tuple[object, ...], step: Step, inputs: Sequence[torch.Tensor], changed: Sequence[torch.Tensor]
    ) -> None:
        pool = next(iter(self._graphs.values())).pool if self._graphs else None
        self._graphs[key] = Captured(step, inputs, changed, self._side, pool)
        # A kind of client updates has another rate if it decays, and then none of the past ones comes again.
        for past in [each for each in self._graphs if each[0] == key[0] and each[1] != key[1]]:
            del self._graphs[past]
        if len(self._graphs) > MOST_GRAPHS:
            self._graphs.popitem(last=False)


def launch_of(resident: Resident) -> Launch:
    """Return the start of the kernels of a worker's steps: captured on a GPU."""
    return Replays(resident) if resident.device.type == "cuda" else Launch()


def _is_static(local: Local) -> bool:
    """Return whether each step does the same to its lanes: nothing counts steps, and no code is a user's own."""
    arithmetic = local.arithmetic
    fixed = isinstance(arithmetic.direction, MomentumDirection) and not arithmetic.substeps
    # Several constants are added up anew in each client update, in new memory.
    fixed = fixed and sum(term.v is not None for term in arithmetic.affine) <= 1
    # Weights of classes come from main memory, which a graph cannot read.
    fixed = fixed and local.lr_schedule == "constant" and not getattr(local.loss, "class_weights", ())
    fixed = fixed and not isinstance(local.loss, OwnLoss)
    known = all(map(is_known, (local.loss, local.method, *arithmetic.terms)))
    return fixed and known and not local.method.overrides("loss_term")


def _is_plain(layer: nn.Module) -> bool:
    """Return whether a layer is of PyTorch or raysim, and calls no hook, which may keep a state."""
    return is_known(layer) and not has_hooks(layer)
