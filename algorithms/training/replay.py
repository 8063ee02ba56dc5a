"""Local steps as CUDA graphs: the processor starts one graph in place of a hundred kernels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from algorithms.training.folding import KNOWN
from algorithms.training.local import Local
from algorithms.training.resident import Resident
from algorithms.training.steps import LocalSteps, MomentumDirection, SlotMemory
from algorithms.training.work import StackedBatch

LEAST_STEPS, LEAST_DECAYING = 4, 16
"""Smallest numbers of equal steps for which a graph pays off: if later rounds use it, and if they have another rate."""

MOST_GRAPHS = 32
"""Largest number of graphs that a trainer keeps; the least recently used leave first."""

TRIALS = 2
"""Runs of a step before it is captured, in which libraries set themselves up."""

Step = Callable[..., torch.Tensor]
"""A step of some lanes: takes tensors of a batch, changes the lanes, and returns a tensor."""


class Captured:
    """A step as a CUDA graph, with memory of its own for its inputs and its result.

    Args:
        step: the step; it runs a few times, and what it changes is restored.
        inputs: tensors of a batch, for their shapes.
        changed: tensors that it changes.
        pool: memory that all graphs of a trainer share.

    Raises:
        RuntimeError: the step waits for the GPU, or copies from main memory, which no graph can.
    """

    def __init__(self, step: Step, inputs: Sequence[torch.Tensor], changed: Sequence[torch.Tensor], pool: Any) -> None:
        self._inputs = [each.clone() for each in inputs]
        before = [each.clone() for each in changed]
        self._graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                for _ in range(TRIALS):
                    step(*self._inputs)
                self._graph.capture_begin(pool=pool)
                try:
                    self._result = step(*self._inputs)
                finally:
                    self._graph.capture_end()
        finally:
            torch.cuda.current_stream().wait_stream(side)
            torch._foreach_copy_(list(changed), before)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Take the step on other values of the inputs."""
        torch._foreach_copy_(self._inputs, list(inputs))
        self._graph.replay()
        return self._result.clone()


class Replays:
    """Steps of a trainer that are captured once and replayed ever after, on a GPU.

    A step that a stack of client updates takes at least 4 times with the same lanes and sizes is always replayed, the
    first time too, for which kernels run must depend on the work alone, not on what the process did before.

    Args:
        resident: models.
    """

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._usable = resident.device.type == "cuda" and all(map(_is_known, resident.module.modules()))
        self._locals: list[Local] = []
        self._graphs: OrderedDict[tuple[object, ...], Captured | None] = OrderedDict()
        self._slots: SlotMemory = {}
        self._pool: Any = torch.cuda.graph_pool_handle() if self._usable else None

    def slots(self, local: Local) -> SlotMemory | None:
        """Return memory for the slots of client updates, which graphs need to stay; None if none may be captured."""
        return self._slots if self._usable and _is_static(local) else None

    def __call__(
        self, steps: LocalSteps, local: Local, step: Step, inputs: Sequence[torch.Tensor], batch: StackedBatch
    ) -> torch.Tensor:
        """Take a step of some lanes, by a graph if there may be one and it pays off.

        Args:
            steps: local steps that it belongs to; their slots lie in the memory of `slots`.
            local: content of the client updates.
            step: the step.
            inputs: what it takes of the batch.
            batch: the batch.
        """
        if steps.reused is None or batch.repeats < (LEAST_STEPS if local.lr_decay == 1 else LEAST_DECAYING):
            return step(*inputs)
        if local not in self._locals:
            self._locals.append(local)
        shapes = tuple(tuple(each.shape) for each in inputs)
        key = self._locals.index(local), steps.lr, batch.lanes.start, batch.lanes.stop, shapes
        if key not in self._graphs:
            self._graphs[key] = self._captured(step, inputs, batch.lanes)
            if len(self._graphs) > MOST_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        graph = self._graphs[key]
        return step(*inputs) if graph is None else graph(inputs)

    def _captured(self, step: Step, inputs: Sequence[torch.Tensor], lanes: slice) -> Captured | None:
        """Capture a step; return None if no graph can take it."""
        slots = [stack[lanes] for stacks in self._slots.values() for stack in stacks.values()]
        try:
            return Captured(step, inputs, [*self._resident.values(lanes), *slots], self._pool)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # an error of the step itself comes again without a graph
            return None


def _is_static(local: Local) -> bool:
    """Return whether each step does the same to its lanes: nothing counts steps, and no code is a user's own."""
    arithmetic = local.arithmetic
    fixed = isinstance(arithmetic.direction, MomentumDirection) and not arithmetic.substeps
    # Several constants are added up anew in each client update, in new memory.
    fixed = fixed and sum(term.v is not None for term in arithmetic.affine) <= 1
    # Weights of classes come from main memory, which a graph cannot read.
    known = all(map(_is_known, (local.loss, *arithmetic.terms))) and not getattr(local.loss, "class_weights", ())
    return fixed and known and local.lr_schedule == "constant" and not local.method.overrides("loss_term")


def _is_known(part: object) -> bool:
    """Return whether a layer, a loss or a term is of PyTorch or raysim."""
    return type(part).__module__.partition(".")[0] in KNOWN
