"""Batch-norm statistics from a pass over data: for models that track none in training, and for held-out clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from algorithms.core.batch_norm import live_batch_norms
from algorithms.core.chunks import BATCH_NUMBERS, chunks
from algorithms.core.entries import Kind
from algorithms.core.finite import require_finite
from algorithms.core.fleet import Block, Fleet, Function, Output, blocks_over, map_joined
from algorithms.core.layout import Layout, Packed
from algorithms.core.sums import Sum
from algorithms.training.resident import Resident
from algorithms.training.worker import Worker


def statistics_of(layout: Layout) -> Layout:
    """Return the layout of the batch-norm statistics among some entries: running means, variances and counters."""
    return layout.only(lambda entry: entry.kind is Kind.STATISTIC)


def add_statistics(total: Sum, resident: Resident, x: torch.Tensor) -> None:
    """Add the batch statistics of some samples under the resident model of lane 0, chunk after chunk.

        mu <- sum_b n_b mu_b / sum_b n_b;   var likewise, of each batch's variance over n - 1, as batch norm tracks it

    Every layer normalises by its batch, as in training; dropout is off. A chunk of one sample is skipped if batch norm
    would have one value a channel. The model's own statistics are lost.

    Args:
        total: sum of `statistics_of` the model's entries; a chunk's weight is its number of samples.
        resident: the models.
        x: inputs, [n, *shape].
    """
    layout = statistics_of(resident.layouts.whole)
    with _tracking(resident) as counters:
        for part in chunks(x, most=BATCH_NUMBERS):
            chunk = x[part].to(resident.floating)
            if len(chunk) > 1 or not resident.refuses_single:
                for counter in counters:
                    counter.zero_()
                resident.module(chunk)
                total.add(layout.pack(resident.module.state_dict()), float(len(chunk)))


def load_statistics(resident: Resident, statistics: Packed) -> None:
    """Replace the batch-norm statistics of the resident model of lane 0."""
    values = statistics_of(resident.layouts.whole).unpack(statistics)
    for entry, stack in resident.stacks.items():
        if entry.name in values:
            stack[0].copy_(torch.from_numpy(values[entry.name]))


@contextmanager
def _tracking(resident: Resident) -> Iterator[list[torch.Tensor]]:
    """Have each forward pass leave its batch's own statistics in the model; yield the layers' counters of batches.

    Batch renormalisation corrects a batch by earlier ones, but never its first. The caller resets the counters.
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
class StatisticsPass(Function):
    """Batch statistics of the training samples of a block's clients, under one model."""

    def join(self, left: Sum, right: Sum) -> Sum:
        return left.plus(right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, personal = values[0]
        total = Sum.zero(statistics_of(worker.resident.layouts.whole))
        for client in block.clients:
            worker.resident.load(model, personal)
            add_statistics(total, worker.resident, worker.data.samples(client, "train")[0])
        return Output(total)


def with_statistics(model: Packed, personal: Packed, fleet: Fleet, round_number: int) -> Packed:
    """Return a model whose batch-norm statistics are those of all training clients' data, weighted by samples.

    Args:
        model: shared entries, with the statistics.
        personal: personal entries.
        fleet: fleet that runs the blocks.
        round_number: round; clients that join later take no part.
    """
    if not statistics_of(fleet.layouts.whole).entries:
        return model
    blocks = blocks_over(fleet.census.joined(round_number), fleet)
    mean = map_joined(fleet, StatisticsPass(), blocks, [fleet.put((model, personal))])[0].mean()
    if mean is None:
        return model
    require_finite(mean, statistics_of(fleet.layouts.whole), round_number)
    changed, layout = model.copy(), fleet.layouts.shared
    entries = layout.unpack(changed)
    for name, value in statistics_of(layout).unpack(mean).items():
        entries[name][...] = value
    return changed
