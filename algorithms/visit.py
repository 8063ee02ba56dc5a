"""The visit: one model trains on one client's samples. Here a block's visits are made, and what is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from algorithms.fleet import Bench, Block, Output
from algorithms.kept import Location
from algorithms.keys import Purpose, generator, torch_seed
from algorithms.layout import Packed
from algorithms.local import Local
from algorithms.merge import Sum
from algorithms.training import Work
from algorithms.weigh import Report, Weigh


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
    """One visit of a block: where the client's kept entries stand, and the weight its model comes with.

    Its draws have the round's number, or a counter of their own, where a client may be visited twice in a round.
    """

    kept: Location | None
    weight: float
    counter: int | None = None


@dataclass(frozen=True)
class VisitRow:
    """What a visit reports to the driver: its report, its weight in a merge, and where its kept entries stand."""

    client: int
    report: Report
    weight: float
    kept: Location | None


@dataclass(frozen=True)
class BlockOfVisits:
    """The value of some blocks: a row a visit, and the partial sums."""

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

    def join(self, left: BlockOfVisits, right: BlockOfVisits) -> BlockOfVisits:
        models = left.models.plus(right.models) if left.models and right.models else None
        return BlockOfVisits((*left.rows, *right.rows), models, left.kept.plus(right.kept))

    def __call__(self, bench: Bench, block: Block, *values: Any) -> Output:
        start, *travelling = values
        placement = bench.resident.placement
        models = Sum.zero(placement.travelling) if self.merge else None
        kept = Sum.zero(placement.kept)
        rows, objects = [], []
        for first in range(0, len(block.clients), bench.trainer.lanes):
            part = slice(first, first + bench.trainer.lanes)
            clients, tasks = block.clients[part], block.rows[part]
            received = travelling[part] if start.model is None else [start.model] * len(clients)
            for lane, row in self._visit(bench, clients, tasks, received, start.newcomer):
                rows.append(row)
                if placement.kept.entries:
                    kept.add(bench.resident.kept(lane), float(row.report["steps"] > 0))
                if models is not None:
                    models.add(bench.resident.travelling(lane), row.weight)
                else:
                    objects.append(bench.resident.travelling(lane).copy())
        return Output(BlockOfVisits(tuple(rows), models, kept), tuple(objects))

    def _visit(
        self, bench: Bench, clients: Sequence[int], tasks: Sequence[Task], received: Sequence[Packed], newcomer: Packed
    ) -> list[tuple[int, VisitRow]]:
        """Visit as many clients as there are lanes, or fewer: the lane and the row of each."""
        works = [self._work(bench, client, task) for client, task in zip(clients, tasks, strict=True)]
        # The trainer wants the longest first; models are summed in the clients' order all the same.
        order = sorted(range(len(works)), key=lambda i: -len(works[i].batches))
        for lane, i in enumerate(order):
            where = tasks[i].kept
            bench.resident.load(received[i], bench.kept.read(where) if where else newcomer, lane)
        losses = bench.trainer.train(self.local, [works[i] for i in order], self.local.rate(self.number))
        lanes = {i: lane for lane, i in enumerate(order)}
        return [
            (lanes[i], self._row(bench, client, tasks[i], works[i], losses[lanes[i]], lanes[i]))
            for i, client in enumerate(clients)
        ]

    def _work(self, bench: Bench, client: int, task: Task) -> Work:
        """A client's samples and its batches; one of a single sample is left out where batch norm refuses it."""
        x, y = bench.data.samples(client, "train")
        counter = self.number if task.counter is None else task.counter
        rng = generator(self.seed, Purpose.BATCHES, counter, client)
        batches = list(self.local.passes(len(y), rng))
        if bench.resident.refuses_single and self.local.statistics != "frozen":
            batches = [rows for rows in batches if len(rows) > 1]
        masks = None
        if bench.trainer.has_dropout:
            masks = torch.Generator(x.device)
            masks.manual_seed(torch_seed(self.seed, Purpose.DROPOUT, counter, client))
        return Work(x.to(bench.resident.floating), y, batches, masks)

    def _row(self, bench: Bench, client: int, task: Task, work: Work, loss: float, lane: int) -> VisitRow:
        samples, taken = float(len(work.y)), float(len(work.batches))
        used = float(sum(len(rows) for rows in work.batches))
        report = {"samples": samples, "steps": taken, "used": used, "loss": float(loss)}
        if not work.batches:
            # Nothing was trained: the model goes on with the weight it came with, 0 after a merge.
            return VisitRow(client, report, task.weight, task.kept)
        keeps = bool(bench.resident.placement.kept.entries)
        location = bench.kept.append(bench.resident.kept(lane)) if keeps else None
        return VisitRow(client, report, self.weigh(report), location)


@dataclass(frozen=True)
class SumOfTravelling:
    """Add up the travelling models of a block, each with the weight it has: what a merge would give now."""

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Sum, right: Sum) -> Sum:
        return left.plus(right)

    def __call__(self, bench: Bench, block: Block, *values: Any) -> Output:
        models = Sum.zero(bench.resident.placement.travelling)
        for task, model in zip(block.rows, values, strict=True):
            models.add(model, task.weight)
        return Output(models)
