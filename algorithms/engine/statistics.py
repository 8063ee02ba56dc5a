"""Batch-norm statistics from a pass over data: for models whose visits leave none, and for clients of nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from algorithms.engine.batch_norm import live_batch_norms
from algorithms.engine.chunks import chunks
from algorithms.engine.finite import require_finite
from algorithms.engine.fleet import Block, Fleet, Output, Worker, blocks_over
from algorithms.engine.layout import Kind, Layout, Packed
from algorithms.engine.resident import Resident
from algorithms.engine.sums import Sum
from algorithms.engine.tree import Node, join_all
from algorithms.parts.sharing import Layouts


def statistics_of(layout: Layout) -> Layout:
    """The layout of the batch-norm statistics among some entries: running means, variances and counters."""
    return layout.only(lambda entry: entry.kind is Kind.STATISTIC)


def add_statistics(total: Sum, resident: Resident, x: torch.Tensor) -> None:
    """Add the batch statistics of some samples under the resident model of lane 0, chunk after chunk.

        mu <- sum_b n_b mu_b / sum_b n_b;   var likewise, of each batch's variance over n - 1, as batch norm tracks it

    Every layer normalises by its batch, so deeper layers see what they saw in training; dropout is off. A chunk of a
    single sample is passed over where batch norm would have one value a channel. The model's own statistics are lost.

    Args:
        total: a sum of `statistics_of` the model's entries; a chunk's weight is its number of samples.
        resident: has the model.
        x: inputs, [n, *shape].
    """
    layout = statistics_of(resident.layouts.whole)
    with _tracking(resident) as counters:
        for part in chunks(x):
            chunk = x[part].to(resident.floating)
            if len(chunk) > 1 or not resident.refuses_single:
                for counter in counters:
                    counter.zero_()
                resident.module(chunk)
                total.add(layout.pack(resident.module.state_dict()), float(len(chunk)))


def load_statistics(resident: Resident, statistics: Packed) -> None:
    """Give the resident model of lane 0 other batch-norm statistics."""
    values = statistics_of(resident.layouts.whole).unpack(statistics)
    for entry, stack in resident.stacks.items():
        if entry.name in values:
            stack[0].copy_(torch.from_numpy(values[entry.name]))


@contextmanager
def _tracking(resident: Resident) -> Iterator[list[torch.Tensor]]:
    """Within, a forward pass leaves its batch's own statistics in the model; the layers' counters of batches.

    A layer may correct a batch by the ones before it, as batch renormalisation does, but never its first.
    """
    layers = [layer for layer in live_batch_norms(resident.module) if layer.running_mean is not None]
    momenta = [layer.momentum for layer in layers]
    resident.module.eval()
    for layer in layers:
        layer.train()
        layer.track_running_stats, layer.momentum = True, 1.0
    try:
        with torch.no_grad():
            yield [layer.num_batches_tracked for layer in layers if layer.num_batches_tracked is not None]
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        resident.module.eval()


@dataclass(frozen=True)
class Query:
    """Ask the clients of a block for the batch statistics of their training samples under one model."""

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Sum, right: Sum) -> Sum:
        return left.plus(right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, personal = values[0]
        total = Sum.zero(statistics_of(worker.resident.layouts.whole))
        for client in block.clients:
            worker.resident.load(model, personal)
            add_statistics(total, worker.resident, worker.data.samples(client, "train")[0])
        return Output(total)


def with_statistics(model: Packed, personal: Packed, fleet: Fleet, number: int) -> Packed:
    """A model whose batch-norm statistics are those of all training clients' data, weighted by samples.

    Args:
        model: the travelling entries, the statistics among them.
        kept: the other entries.
        fleet: what runs the blocks.
        number: the round: clients that join later are not asked.
    """
    function, blocks = Query(), blocks_over(fleet.census.there(number), fleet)
    outcomes = fleet.map(function, blocks, [fleet.put((model, personal))])
    parts = ((outcome.node, outcome.value) for outcome in outcomes)
    mean = join_all(Node(0, len(blocks)), parts, function.join).mean()
    if mean is None:
        return model
    require_finite(mean, statistics_of(fleet.layouts.whole), number)
    return _replaced(model, mean, fleet.layouts)


def _replaced(model: Packed, statistics: Packed, layouts: Layouts) -> Packed:
    """The model with these statistics."""
    changed, layout = model.copy(), layouts.shared
    entries, values = layout.unpack(changed), statistics_of(layout).unpack(statistics)
    for name, value in values.items():
        entries[name][...] = value
    return changed
