"""Rounds of models of many sizes: each level of clients trains a slice, and each entry is averaged alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.fleet import Around, Block, Fleet, Function, Outcome, Output, Reference, map_joined
from algorithms.core.layout import Layout, Layouts, Packed
from algorithms.core.state import State
from algorithms.core.sums import Sum
from algorithms.parts.option import Draft
from algorithms.parts.received import Received
from algorithms.rounds.round import PendingRound, served
from algorithms.rounds.several import joined, start_groups
from algorithms.training.choose import trainer
from algorithms.training.local import Local
from algorithms.training.resident import Resident
from algorithms.training.slicing import Slice
from algorithms.training.worker import Worker

Shapes = Mapping[str, tuple[int, ...]]
"""Shape of each entry of a slice, by name."""


@dataclass(frozen=True)
class AtSize(Around):
    """Function that runs with the models of a slice; the worker makes them once.

    Args:
        part: slice of the model.
        local: content of a client update, which says how models are trained.
    """

    part: Slice
    local: Local

    @property
    def driver_may_hold(self) -> bool:  # type: ignore[override]  # it is the function's
        """Whether the driver may run blocks that leave objects behind."""
        return self.inner.driver_may_hold

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        if not self.part.is_whole:
            if self.part not in worker.variants:
                worker.variants[self.part] = _smaller(worker, self.part, self.local)
            worker = worker.variants[self.part]
        return self.inner(worker, block, *values)


def _smaller(worker: Worker, part: Slice, local: Local) -> Worker:
    """Return a worker with models of a slice. A changed training needs autograd, in place of gradients by hand."""
    resident, compute = worker.resident, replace(local.compute, execution=worker.trainer.execution)
    module, _ = part.of(resident.module, resident.sample)
    layouts = sliced_layouts(resident.layouts, {name: tuple(t.shape) for name, t in module.state_dict().items()})
    made = Resident(module, layouts, resident.sample.cpu(), resident.device.type, resident.lanes)
    if part.changes_training and compute.execution == "fused":
        compute = replace(compute, execution="vectorised")
    return replace(worker, resident=made, trainer=trainer(made, compute, local.update), low_rank=None)


def sliced_layouts(layouts: Layouts, shapes: Shapes) -> Layouts:
    """Return the layouts of a model whose entries have other shapes."""

    def sliced(layout: Layout) -> Layout:
        return Layout(tuple(replace(e, shape=shapes[e.name]) for e in layout.entries), layout.floating)

    return Layouts(sliced(layouts.shared), sliced(layouts.personal), sliced(layouts.frozen))


@dataclass(frozen=True)
class Measured(Function):
    """Function of a fleet: the shapes of the entries of each slice, and its FLOPs for a sample.

    Args:
        parts: slices.
    """

    parts: tuple[Slice, ...]

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        made = [part.of(worker.resident.module, worker.resident.sample) for part in self.parts]
        shapes = tuple({name: tuple(t.shape) for name, t in module.state_dict().items()} for module, _ in made)
        return Output((shapes, tuple(flops for _, flops in made)))


def measured(parts: Sequence[Slice], fleet: Fleet) -> tuple[tuple[Shapes, ...], tuple[float, ...]]:
    """Return the shapes of the entries of each slice, and its FLOPs for a sample; see `Slice.of`."""
    (shapes, flops), _ = map_joined(fleet, Measured(tuple(parts)), [Block(0, (), 0)])
    return shapes, flops


class SlicedFleet:
    """View of a fleet on which all models are slices; everything that a fleet runs it runs on these.

    Args:
        fleet: fleet with the whole model.
        part: slice of the model.
        shapes: shapes of its entries.
        local: content of a client update.
    """

    def __init__(self, fleet: Fleet, part: Slice, shapes: Shapes, local: Local) -> None:
        self._fleet, self._part, self._local, self._whole = fleet, part, local, fleet.layouts.shared
        self.layouts = sliced_layouts(fleet.layouts, shapes)

    @property
    def census(self) -> Census:
        """Training clients."""
        return self._fleet.census

    def block_size(self, cohort: int) -> int:
        """Return the number of clients in a block, as the fleet does."""
        return self._fleet.block_size(cohort)

    def put(self, value: Any) -> Reference:
        """Hold a value for the blocks of a `map`."""
        return self._fleet.put(value)

    def map(
        self, function: Function, blocks: Sequence[Block], references: Sequence[Reference] = ()
    ) -> Iterator[Outcome]:
        """Run the function on every block with models of the slice; see `Fleet.map`."""
        return self._fleet.map(AtSize(function, self._part, self._local), blocks, references)

    def cut(self, model: Packed) -> Packed:
        """Return the slice of a model's shared entries."""
        shared = self.layouts.shared
        found = Packed(np.zeros(shared.floats, shared.floating), np.zeros(shared.integers, np.int64))
        whole = self._whole.unpack(model)
        for name, own in shared.unpack(found).items():
            own[...] = whole[name][tuple(map(slice, own.shape))]
        return found

    def add(self, total: SizedSum, models: Sum) -> None:
        """Add a sum of the slice's models to one of whole models."""
        if not models.total:
            return
        total.integers[:] = np.maximum(total.integers, models.integers) if total.total else models.integers
        total.total += models.total
        for (entry, place), (small, own) in zip(self._whole.places(), self.layouts.shared.places(), strict=True):
            if not entry.integer:
                part, value = tuple(map(slice, small.shape)), models.floats[own].reshape(small.shape)
                floats, weights = (each[place].reshape(entry.shape)[part] for each in (total.floats, total.weights))
                # Assign the first one: 0.0 + -0.0 would lose the sign of a single model's zero.
                floats[...] = np.where(weights == 0, value, floats + value)
                weights += models.total


@dataclass
class SizedSum(Sum):
    """A sum of models of many sizes, with the total weight of each floating entry; an entry without one stays."""

    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    model: Packed | None = None

    @classmethod
    def of(cls, model: Packed, layout: Layout) -> SizedSum:
        """Return the empty sum; `model` holds the values of entries that nobody trains."""
        empty = Sum.zero(layout)
        return cls(empty.floats, empty.integers, empty.floating, weights=np.zeros(layout.floats), model=model)

    def mean(self) -> Packed | None:
        """Return the mean of each entry over the clients that trained it; None if the total weight is 0."""
        if self.total == 0 or self.model is None:
            return None
        trained = self.weights > 0
        means = self.floats / np.where(trained, self.weights, 1.0)
        return Packed(np.where(trained, means.astype(self.floating), self.model.floats), self.integers.copy())


def start_sized(draft: Draft, views: Sequence[SlicedFleet], levels: NDArray[np.int64]) -> PendingRound:
    """Start a round of models of many sizes; see `algorithms.heterofl.Sizes`.

    Args:
        draft: the round, with its cohort.
        views: view of the fleet of each level.
        levels: level of each client of the cohort, int64 [m].
    """
    state = draft.state
    parts = [
        replace(draft, fleet=view, state=replace(state, model=view.cut(state.model)), cohort=draft.drawn[levels == n])
        for n, view in enumerate(views)
    ]
    wait = start_groups(parts)

    def finish() -> State:
        received = wait()
        total = SizedSum.of(state.model, draft.fleet.layouts.shared)
        for view, each in zip(views, received, strict=True):
            view.add(total, each.models or Sum.zero(view.layouts.shared))
        whole: Received = replace(joined(received), models=total)
        return draft.published(whole, served(draft, whole))

    return PendingRound(finish)
