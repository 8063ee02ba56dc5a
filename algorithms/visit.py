"""The visit: one model trains on one client's samples, one batch after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from algorithms.fleet import Bench, Block, Output
from algorithms.kept import Location
from algorithms.keys import Purpose, generator
from algorithms.layout import Packed
from algorithms.local import Local, Update
from algorithms.merge import Sum
from algorithms.resident import Resident
from algorithms.weigh import Report, Weigh


def visit(
    resident: Resident, local: Local, x: torch.Tensor, y: torch.Tensor, number: int, rng: np.random.Generator
) -> Report:
    """Train the resident model, as it is loaded, on one client's samples.

    A batch of one sample is passed over where a batch-norm layer would normalise a single value a channel.

    Args:
        resident: the model, changed in place.
        local: what to do.
        x: inputs, [n, *shape].
        y: class indices, [n].
        number: the round, the first being 1.
        rng: the visit's own stream.

    Returns:
        `samples` (n), `steps` taken, and `loss`: the mean training loss over the samples as they were passed
        (not a number where no step was taken).
    """
    module, parameters = resident.module.train(), resident.parameters
    update = Update(local, parameters, local.rate(number))
    losses: list[torch.Tensor] = []
    sizes: list[int] = []
    for rows in local.batches(len(y), rng):
        if len(rows) == 1 and resident.refuses_single:
            continue
        batch = torch.from_numpy(rows).to(x.device)
        loss = cross_entropy(module(x[batch]), y[batch])
        update(torch.autograd.grad(loss, parameters))
        losses.append(loss.detach())
        sizes.append(len(rows))
    mean = np.average(torch.stack(losses).double().cpu().numpy(), weights=sizes) if sizes else np.nan
    return {"samples": float(len(y)), "steps": float(len(sizes)), "loss": float(mean)}


@dataclass(frozen=True)
class Start:
    """What the visits of a round begin with.

    Args:
        model: the global model's travelling entries; None where models travel on.
        newcomer: the kept entries of a client that has none yet.
    """

    model: Packed | None
    newcomer: Packed


@dataclass(frozen=True)
class Task:
    """One visit of a block: where the client's kept entries stand, and the weight its model comes with."""

    kept: Location | None
    weight: float


@dataclass(frozen=True)
class VisitRow:
    """What a visit reports to the driver: its report, its weight in a merge, and where its kept entries stand."""

    client: int
    report: Report
    weight: float
    kept: Location | None


@dataclass(frozen=True)
class BlockOfVisits:
    """A block's value: a row a visit, and the partial sums."""

    rows: tuple[VisitRow, ...]
    models: Sum | None
    kept: Sum


@dataclass(frozen=True)
class Visits:
    """Visit the clients of a block; sum their models, or leave each behind as an object of its own.

    Args:
        local: what a visit does.
        weigh: a visit's share in the merge.
        seed: the run's.
        number: the round, the first being 1.
        merge: whether the round ends in a merge.
    """

    local: Local
    weigh: Weigh
    seed: int
    number: int
    merge: bool

    def objects(self, block: Block) -> int:
        return 0 if self.merge else len(block.clients)

    def __call__(self, bench: Bench, block: Block, *values: Any) -> Output:
        start, *travelling = values
        placement = bench.resident.placement
        models = Sum.zero(placement.travelling) if self.merge else None
        kept = Sum.zero(placement.kept)
        rows, objects = [], []
        for i, (client, task) in enumerate(zip(block.clients, block.rows, strict=True)):
            model = start.model if start.model is not None else travelling[i]
            row = self._visit(bench, client, task, model, start.newcomer)
            rows.append(row)
            if placement.kept.entries:
                kept.add(bench.resident.kept(), float(row.report["steps"] > 0))
            if models is not None:
                models.add(bench.resident.travelling(), row.weight)
            else:
                objects.append(bench.resident.travelling())
        return Output(BlockOfVisits(tuple(rows), models, kept), tuple(objects))

    def _visit(self, bench: Bench, client: int, task: Task, model: Packed, newcomer: Packed) -> VisitRow:
        bench.resident.load(model, bench.kept.read(task.kept) if task.kept else newcomer)
        x, y = bench.data.samples(client, "train")
        rng = generator(self.seed, Purpose.BATCHES, self.number, client)
        report = visit(bench.resident, self.local, x, y, self.number, rng)
        if not report["steps"]:
            # Nothing was trained: the model goes on with the weight it came with, 0 after a merge.
            return VisitRow(client, report, task.weight, task.kept)
        keeps = bool(bench.resident.placement.kept.entries)
        location = bench.kept.append(bench.resident.kept()) if keeps else None
        return VisitRow(client, report, self.weigh(report), location)


@dataclass(frozen=True)
class SumOfTravelling:
    """Add up the travelling models of a block, each with the weight it has: what a merge would give now."""

    def objects(self, block: Block) -> int:
        return 0

    def __call__(self, bench: Bench, block: Block, *values: Any) -> Output:
        models = Sum.zero(bench.resident.placement.travelling)
        for task, model in zip(block.rows, values, strict=True):
            models.add(model, task.weight)
        return Output(models)
