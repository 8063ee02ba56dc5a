"""The visit: one model trains on one client's samples. Here a block's visits are made, and what is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import torch

from algorithms.errors import DivergedError, InputError
from algorithms.fleet import Bench, Block, Output
from algorithms.kept import Location
from algorithms.keys import Purpose, generator, torch_seed
from algorithms.layout import Packed
from algorithms.local import Local
from algorithms.merge import Directions, Sum
from algorithms.place import Placement
from algorithms.training import Augmented, Work
from algorithms.training.after import REPORTS, After
from algorithms.training.losses import labelled
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
    """What a visit reports to the driver.

    Args:
        client: who was visited.
        report: its named numbers.
        weight: in a merge.
        kept: where the client's kept entries stand.
        nonfinite: what was NaN or infinite first; then the visit was left out or its model replaced, as
            `Local.nonfinite` says. None where all was finite.
    """

    client: int
    report: Report
    weight: float
    kept: Location | None
    nonfinite: str | None = None

    @property
    def trained(self) -> bool:
        """Whether the visit took a step, and its result was taken over."""
        return self.report["steps"] > 0 and self.nonfinite is None


@dataclass(frozen=True)
class BlockOfVisits:
    """The value of some blocks: a row a visit, and the partial sums."""

    rows: tuple[VisitRow, ...]
    models: Sum | None
    kept: Sum
    directions: Directions | None = None


@dataclass(frozen=True)
class Visits:
    """Visit the clients of a block; sum their models, or leave each behind as an object of its own.

    Args:
        local: what a visit does.
        weigh: a visit's share in the merge.
        seed: the run's.
        number: the round, the first being 1.
        merge: whether the round ends in a merge.
        rounds: how many the run has, where that is known.
        needs: what is measured after each visit, for its report; see `algorithms.training.after`.
        compares: whether the models' directions are summed, too.
    """

    local: Local
    weigh: Weigh
    seed: int
    number: int
    merge: bool
    rounds: int | None = None
    needs: tuple[str, ...] = ()
    compares: bool = False

    def objects(self, block: Block) -> int:
        return 0 if self.merge else len(block.clients)

    def nothing(self, placement: Placement) -> BlockOfVisits:
        """The value of no block at all."""
        models = Sum.zero(placement.travelling) if self.merge else None
        directions = Directions.zero(placement.travelling) if self.compares else None
        return BlockOfVisits((), models, Sum.zero(placement.kept), directions)

    def join(self, left: BlockOfVisits, right: BlockOfVisits) -> BlockOfVisits:
        models = left.models.plus(right.models) if left.models and right.models else None
        directions = left.directions.plus(right.directions) if left.directions and right.directions else None
        return BlockOfVisits((*left.rows, *right.rows), models, left.kept.plus(right.kept), directions)

    def __call__(self, bench: Bench, block: Block, *values: Any) -> Output:
        start, *travelling = values
        placement = bench.resident.placement
        empty = self.nothing(placement)
        models, kept, directions = empty.models, empty.kept, empty.directions
        rows, objects = [], []
        for first in range(0, len(block.clients), bench.trainer.lanes):
            part = slice(first, first + bench.trainer.lanes)
            clients, tasks = block.clients[part], block.rows[part]
            received = travelling[part] if start.model is None else [start.model] * len(clients)
            visited = self._visit(bench, clients, tasks, received, start.newcomer)
            for (lane, row), model in zip(visited, received, strict=True):
                rows.append(row)
                if placement.kept.entries:
                    kept.add(bench.resident.kept(lane), float(row.report["steps"] > 0))
                if directions is not None and row.report["steps"]:
                    directions.add(bench.resident.travelling(lane), model)
                if models is not None:
                    models.add(bench.resident.travelling(lane), row.weight)
                else:
                    objects.append(bench.resident.travelling(lane).copy())
        return Output(BlockOfVisits(tuple(rows), models, kept, directions), tuple(objects))

    def _visit(
        self,
        bench: Bench,
        clients: Sequence[int],
        tasks: Sequence[Task],
        received: Sequence[Packed],
        newcomer: Packed,
    ) -> list[tuple[int, VisitRow]]:
        """Visit as many clients as there are lanes, or fewer: the lane and the row of each."""
        kept = [bench.kept.read(task.kept) if task.kept else newcomer for task in tasks]
        works = [self.work(bench, *each) for each in zip(clients, kept, tasks, strict=True)]
        # The trainer wants the longest first; models are summed in the clients' order all the same.
        order = sorted(range(len(works)), key=lambda i: -len(works[i].batches))
        for lane, i in enumerate(order):
            bench.resident.load(received[i], kept[i], lane)
        rate = self.local.rate(self.number, self.rounds)
        losses = bench.trainer.train(self.local, [works[i] for i in order], rate)
        sums = bench.resident.sums(len(works))
        lanes = {i: lane for lane, i in enumerate(order)}
        visited = []
        for i, client in enumerate(clients):
            lane, loss = lanes[i], float(losses[lanes[i]])
            # A sum that is not finite may have overflowed.
            wrong = None if isfinite(sums[lane]) else bench.resident.first_nonfinite(lane)
            report = self._report(bench, works[i], loss, lane, received[i], kept[i], wrong is None)
            weight = self._weight(client, report) if report["steps"] else tasks[i].weight
            if works[i].batches and not (isfinite(loss) and isfinite(weight)):
                wrong = wrong or ("the weight" if isfinite(loss) else "the training loss")
            if wrong is None:
                row = self._row(bench, client, tasks[i], report, weight, lane)
            else:
                row = self._refused(client, tasks[i], report, weight, wrong)
                bench.resident.load(received[i], kept[i], lane)
            visited.append((lane, row))
        return visited

    def work(self, bench: Bench, client: int, kept: Packed, task: Task) -> Work:
        """A client's samples and its batches; one of a single sample is left out where batch norm refuses it."""
        x, y = bench.data.samples(client, "train")
        number = self.number if task.counter is None else task.counter
        visits = 0
        if self.local.batches:
            visits = int(bench.resident.placement.kept.unpack(kept)["batches/visits"])
        batches = self.local.plan(
            len(y), number, visits, lambda counter: generator(self.seed, Purpose.BATCHES, counter, client)
        )
        if bench.resident.refuses_single and self.local.statistics != "frozen":
            batches = [rows for rows in batches if len(rows) > 1]
        masks = None
        if bench.trainer.has_dropout:
            masks = torch.Generator(x.device)
            masks.manual_seed(torch_seed(self.seed, Purpose.DROPOUT, number, client))
        augment = None
        if bench.augment is not None:
            key = torch_seed(self.seed, Purpose.AUGMENT, number, client)
            augment = Augmented.of(bench.augment, batches, key, x.device)
        return Work(x.to(bench.resident.floating), y, batches, masks, augment)

    def _report(
        self, bench: Bench, work: Work, loss: float, lane: int, received: Packed, kept: Packed, finite: bool
    ) -> dict[str, float]:
        used = sum(len(rows) for rows in work.batches)
        report = {
            "samples": float(work.y.shape[0]),
            "steps": float(len(work.batches)),
            "used": float(used),
            "labelled": float(labelled(work.y)),
            "loss": loss,
        }
        if work.batches and not finite:
            report |= dict.fromkeys(self.needs, nan)
        elif work.batches:
            after = After(bench, self.local, work, lane, received, kept)
            report |= {name: REPORTS[name](after) for name in self.needs}
        return report

    def _row(self, bench: Bench, client: int, task: Task, report: Report, weight: float, lane: int) -> VisitRow:
        if self.local.batches and report["samples"]:
            # Also where batch norm refused its only sample: the client's next batches are others.
            bench.resident.counters["batches"][lane] += 1
        elif not report["steps"]:
            # Nothing was trained: the model goes on with the weight it came with, 0 after a merge.
            return VisitRow(client, report, weight, task.kept)
        keeps = bool(bench.resident.placement.kept.entries)
        location = bench.kept.append(bench.resident.kept(lane)) if keeps else None
        return VisitRow(client, report, weight, location)

    def _refused(self, client: int, task: Task, report: Report, weight: float, wrong: str) -> VisitRow:
        """The row of a visit whose model goes on as it was received; see `Local.nonfinite`."""
        if self.local.nonfinite == "stop":
            raise DivergedError(
                f"client {client} in round {self.number}: {wrong} is not finite after the visit; lower local.lr, set "
                'local.clip, or have such visits left out by local.nonfinite = "leave-out"'
            )
        if self.local.nonfinite == "last" and isfinite(weight):
            return VisitRow(client, report, weight, task.kept, wrong)
        # As of a client without samples, whichever algorithm asks.
        return VisitRow(client, {**report, "steps": 0.0}, task.weight, task.kept, wrong)

    def _weight(self, client: int, report: Report) -> float:
        weight = self.weigh(report)
        if weight < 0:
            raise InputError(
                f"weigh = {self.weigh}: must give weights >= 0, and gives client {client} {weight:g}; change the part"
            )
        return weight


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
