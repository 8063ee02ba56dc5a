"""Aggregations that need every model of a cohort: models stay where they were made, and are reduced slice by slice.

A block leaves its clients' models behind as one object for each slice of coordinates. A second map takes a slice of all
blocks, so an actor holds cohort x slice, and the driver holds references and one model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.fleet import Around, Block, Function, Output, map_joined
from algorithms.core.layout import ALIGNMENT, Layout, Packed
from algorithms.core.sums import Sum
from algorithms.options.aggregation import Aggregate, ByCoordinate, ByDistance, Mean
from algorithms.parts.client_update import ClientUpdates
from algorithms.parts.option import Draft
from algorithms.parts.received import Received
from algorithms.training.worker import Worker

MOST, LEAST = 2**22, 2**15
"""Values of a slice in all models of the cohort, and least number of values of a slice in those of a block."""


def slices_of(floats: int, cohort: int, block: int) -> tuple[slice, ...]:
    """Cut the coordinates of a model: a function of its size, the cohort's and the block's alone.

    A slice has at least max(2^22 / cohort, 2^15 / block) coordinates, and less than twice as many, in multiples of 16.
    All models' values of a slice are then 16 to 32 MiB in float32, and the objects of a block large enough to stay in
    their node's memory. A smaller model is one slice.

    Args:
        floats: floating values of a model.
        cohort: clients of the round.
        block: clients of a block.
    """
    length = max(MOST // max(1, cohort), LEAST // block, 1)
    length = -(-floats // max(1, floats // length))
    length = max(1, -(-length // ALIGNMENT)) * ALIGNMENT
    return tuple(slice(start, min(start + length, floats)) for start in range(0, max(1, floats), length))


@runtime_checkable
class Colluding(Protocol):
    """Option by which some clients change their updates together, before the rule sees them."""

    def colluders(self, clients: NDArray[np.int64], seed: int) -> NDArray[np.int64]: ...
    def colluded(
        self, received: NDArray[np.float64], trained: NDArray[np.float64], cohort: int
    ) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Gathered(Around):
    """Client updates of a block that leave their models behind, an object [clients, slice] for each slice.

    The sum of models has no floating values: it only has the largest counters and the total weight.

    Args:
        slices: slices of a model's floating values.
    """

    slices: tuple[slice, ...]

    def objects(self, block: Block) -> int:
        return len(self.slices)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        output = self.inner(worker, block, *values)
        result, models = output.value, output.objects
        counters = replace(Sum.zero(worker.resident.layouts.shared), floats=np.zeros(0))
        for model, weight in zip(models, result.rows.weights.tolist(), strict=True):
            counters.add(Packed(model.floats[:0], model.integers), weight)
        kept = tuple(np.stack([model.floats[part] for model in models]) for part in self.slices)
        return Output(replace(result, models=counters), kept)


@dataclass(frozen=True, eq=False)
class OfSlices(Function):
    """Work on a slice of all models of the cohort. Its values are the global model, and each block's object.

    Args:
        slices: slices of a model's floating values.
        counts: whether each client update of the cohort counts, [cohort].
        colludes: whether each update that counts is a colluder's.
        colluding: what the colluders do together; None for nothing.
    """

    slices: tuple[slice, ...]
    counts: NDArray[np.bool_]
    colludes: NDArray[np.bool_]
    colluding: Colluding | None

    def values(self, block: Block, layout: Layout, model: Packed, *parts: Any) -> tuple[Any, Any]:
        """Return the slice of the global model, [n], and that of all updates that count, [m, n], in float64."""
        place = self.slices[block.number]
        received = model.floats[place].astype(np.float64)
        rows = np.concatenate(parts)[self.counts].astype(np.float64)
        if self.colluding is not None and self.colludes.any():
            trains = np.flatnonzero(layout.parameters[place])
            chosen = np.ix_(np.flatnonzero(self.colludes), trains)
            rows[chosen] = self.colluding.colluded(received[trains], rows[chosen], len(rows))
        return received, rows


@dataclass(frozen=True, eq=False)
class Products(OfSlices):
    """Scalar products of all pairs of updates over a slice, [m, m]; neighbours add up."""

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        received, rows = self.values(block, worker.resident.layouts.shared, *values)
        # torch aligns its memory, on which the order of a product's sums may depend.
        updates = torch.empty(rows.shape, dtype=torch.float64)
        np.subtract(rows, received, out=updates.numpy())
        return Output((updates @ updates.T).numpy())


@dataclass(frozen=True, eq=False)
class Reduced(OfSlices):
    """Aggregate of a slice, [n]: a rule by coordinates, or a mean by shares; neighbours are put end to end.

    Args:
        rule: rule by coordinates, or the shares of the updates that count, [m].
    """

    rule: ByCoordinate | NDArray[np.float64]

    def join(self, left: Any, right: Any) -> Any:
        return np.concatenate((left, right))

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        _, rows = self.values(block, worker.resident.layouts.shared, *values)
        if isinstance(self.rule, ByCoordinate):
            return Output(self.rule.reduce(rows))
        total = np.zeros(rows.shape[1])
        for place in np.flatnonzero(self.rule):
            total += self.rule[place] * rows[place]
        return Output(total)


def slices_for(draft: Draft) -> tuple[slice, ...]:
    """Return the slices of a round's models."""
    size = len(draft.drawn)
    return slices_of(draft.fleet.layouts.shared.floats, size, draft.fleet.block_size(size))


def gathered(draft: Draft, updates: ClientUpdates) -> Gathered:
    """Return client updates that leave their models behind for an aggregation that needs every model."""
    return Gathered(replace(updates, aggregate=False), slices_for(draft))


def aggregated(draft: Draft, rule: Aggregate, received: Received) -> Received:
    """Return what the server receives with the aggregate of the models in place of their sum.

    Updates of weight 0 are left out. Robust rules count the others equally, whatever their weights.

    Args:
        draft: the round.
        rule: rule of aggregation.
        received: rows and counters of the round, and the slices of each block, block after block.
    """
    rows, fleet, slices = received.rows, draft.fleet, slices_for(draft)
    counts = rows.weights > 0
    if received.models is None or not counts.any():
        return replace(received, models=Sum.zero(fleet.layouts.shared))
    colluding = next((option for option in draft.algorithm.options if isinstance(option, Colluding)), None)
    colluders = () if colluding is None else colluding.colluders(fleet.census.clients, draft.state.seed)
    given = slices, counts, np.isin(rows.clients[counts], colluders), colluding
    start, each = [fleet.put(draft.state.model)], len(slices)
    blocks = [Block(n, (n,), len(counts), references=tuple(received.objects[n::each])) for n in range(each)]
    if isinstance(rule, ByDistance):
        products: NDArray[np.float64] = map_joined(fleet, Products(*given), blocks, start)[0]
        lengths = np.diag(products)
        reduce = Reduced(*given, rule.shares(np.maximum(lengths[:, None] + lengths - 2 * products, 0)))
    elif isinstance(rule, Mean):
        weights = rows.weights[counts]
        reduce = Reduced(*given, weights / weights.sum())
    else:
        reduce = Reduced(*given, rule)
    floats: NDArray[np.float64] = map_joined(fleet, reduce, blocks, start)[0]
    total = float(rows.weights[counts].sum() if isinstance(rule, Mean) else counts.sum())
    return replace(received, models=replace(received.models, floats=floats * total, total=total))
