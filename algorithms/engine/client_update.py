"""The visit: one model trains on one client's samples. Here a block's visits are made, and what is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import torch

from algorithms.engine.errors import DivergedError, InputError
from algorithms.engine.fleet import Block, Output, Worker
from algorithms.engine.keys import Purpose, generator, torch_seed
from algorithms.engine.layout import Packed
from algorithms.engine.personal import Location
from algorithms.engine.sums import Directions, Sum
from algorithms.parts.local import Local
from algorithms.parts.sharing import Layouts
from algorithms.parts.weighting import Report, Weighting
from algorithms.training.after import REPORTS, After
from algorithms.training.augment import Augmented
from algorithms.training.losses import labelled
from algorithms.training.steps import Work


@dataclass(frozen=True)
class RoundInput:
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

    personal: Location | None
    weight: float
    counter: int | None = None


@dataclass(frozen=True)
class UpdateRow:
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
    personal: Location | None
    nonfinite: str | None = None

    @property
    def trained(self) -> bool:
        """Whether the visit took a step, and its result was taken over."""
        return self.report["steps"] > 0 and self.nonfinite is None


@dataclass(frozen=True)
class BlockResult:
    """The value of some blocks: a row a visit, and the partial sums."""

    rows: tuple[UpdateRow, ...]
    models: Sum | None
    personal: Sum
    directions: Directions | None = None


@dataclass(frozen=True)
class ClientUpdates:
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
    weighting: Weighting
    seed: int
    number: int
    aggregate: bool
    rounds: int | None = None
    needs: tuple[str, ...] = ()
    compares: bool = False

    def objects(self, block: Block) -> int:
        return 0 if self.aggregate else len(block.clients)

    def nothing(self, layouts: Layouts) -> BlockResult:
        """The value of no block at all."""
        models = Sum.zero(layouts.shared) if self.aggregate else None
        directions = Directions.zero(layouts.shared) if self.compares else None
        return BlockResult((), models, Sum.zero(layouts.personal), directions)

    def join(self, left: BlockResult, right: BlockResult) -> BlockResult:
        models = left.models.plus(right.models) if left.models and right.models else None
        directions = left.directions.plus(right.directions) if left.directions and right.directions else None
        return BlockResult((*left.rows, *right.rows), models, left.personal.plus(right.personal), directions)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        start, *shared = values
        layouts = worker.resident.layouts
        empty = self.nothing(layouts)
        models, personal, directions = empty.models, empty.personal, empty.directions
        rows, objects = [], []
        for first in range(0, len(block.clients), worker.trainer.lanes):
            part = slice(first, first + worker.trainer.lanes)
            clients, tasks = block.clients[part], block.rows[part]
            received = shared[part] if start.model is None else [start.model] * len(clients)
            updated = self._update(worker, clients, tasks, received, start.newcomer)
            for (lane, row), model in zip(updated, received, strict=True):
                rows.append(row)
                if layouts.personal.entries:
                    personal.add(worker.resident.personal(lane), float(row.report["steps"] > 0))
                if directions is not None and row.report["steps"]:
                    directions.add(worker.resident.shared(lane), model)
                if models is not None:
                    models.add(worker.resident.shared(lane), row.weight)
                else:
                    objects.append(worker.resident.shared(lane).copy())
        return Output(BlockResult(tuple(rows), models, personal, directions), tuple(objects))

    def _update(
        self,
        worker: Worker,
        clients: Sequence[int],
        tasks: Sequence[Task],
        received: Sequence[Packed],
        newcomer: Packed,
    ) -> list[tuple[int, UpdateRow]]:
        """Visit as many clients as there are lanes, or fewer: the lane and the row of each."""
        personal = [worker.personal.read(task.personal) if task.personal else newcomer for task in tasks]
        works = [self.work(worker, *each) for each in zip(clients, personal, tasks, strict=True)]
        # The trainer wants the longest first; models are summed in the clients' order all the same.
        order = sorted(range(len(works)), key=lambda i: -len(works[i].batches))
        for lane, i in enumerate(order):
            worker.resident.load(received[i], personal[i], lane)
        rate = self.local.rate(self.number, self.rounds)
        losses = worker.trainer.train(self.local, [works[i] for i in order], rate)
        sums = worker.resident.sums(len(works))
        lanes = {i: lane for lane, i in enumerate(order)}
        updated = []
        for i, client in enumerate(clients):
            lane, loss = lanes[i], float(losses[lanes[i]])
            # A sum that is not finite may have overflowed.
            wrong = None if isfinite(sums[lane]) else worker.resident.first_nonfinite(lane)
            report = self._report(worker, works[i], loss, lane, received[i], personal[i], wrong is None)
            weight = self._weight(client, report) if report["steps"] else tasks[i].weight
            if works[i].batches and not (isfinite(loss) and isfinite(weight)):
                wrong = wrong or ("the weight" if isfinite(loss) else "the training loss")
            if wrong is None:
                row = self._row(worker, client, tasks[i], report, weight, lane)
            else:
                row = self._refused(client, tasks[i], report, weight, wrong)
                worker.resident.load(received[i], personal[i], lane)
            updated.append((lane, row))
        return updated

    def work(self, worker: Worker, client: int, personal: Packed, task: Task) -> Work:
        """A client's samples and its batches; one of a single sample is left out where batch norm refuses it."""
        x, y = worker.data.samples(client, "train")
        number = self.number if task.counter is None else task.counter
        updates = 0
        if self.local.batches:
            updates = int(worker.resident.layouts.personal.unpack(personal)["batches/updates"])
        batches = self.local.plan(
            len(y), number, updates, lambda counter: generator(self.seed, Purpose.BATCHES, counter, client)
        )
        if worker.resident.refuses_single and self.local.statistics != "frozen":
            batches = [rows for rows in batches if len(rows) > 1]
        masks = None
        if worker.trainer.has_dropout:
            masks = torch.Generator(x.device)
            masks.manual_seed(torch_seed(self.seed, Purpose.DROPOUT, number, client))
        augment = None
        if worker.augment is not None:
            key = torch_seed(self.seed, Purpose.AUGMENT, number, client)
            augment = Augmented.of(worker.augment, batches, key, x.device)
        return Work(x.to(worker.resident.floating), y, batches, masks, augment)

    def _report(
        self, worker: Worker, work: Work, loss: float, lane: int, received: Packed, personal: Packed, finite: bool
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
            after = After(worker, self.local, work, lane, received, personal)
            report |= {name: REPORTS[name](after) for name in self.needs}
        return report

    def _row(self, worker: Worker, client: int, task: Task, report: Report, weight: float, lane: int) -> UpdateRow:
        if self.local.batches and report["samples"]:
            # Also where batch norm refused its only sample: the client's next batches are others.
            worker.resident.counters["batches"][lane] += 1
        elif not report["steps"]:
            # Nothing was trained: the model goes on with the weight it came with, 0 after a merge.
            return UpdateRow(client, report, weight, task.personal)
        keeps = bool(worker.resident.layouts.personal.entries)
        location = worker.personal.append(worker.resident.personal(lane)) if keeps else None
        return UpdateRow(client, report, weight, location)

    def _refused(self, client: int, task: Task, report: Report, weight: float, wrong: str) -> UpdateRow:
        """The row of a visit whose model goes on as it was received; see `Local.nonfinite`."""
        if self.local.nonfinite == "stop":
            raise DivergedError(
                f"client {client} in round {self.number}: {wrong} is not finite after the visit; lower local.lr, set "
                'local.clip, or have such visits left out by local.nonfinite = "leave-out"'
            )
        if self.local.nonfinite == "last" and isfinite(weight):
            return UpdateRow(client, report, weight, task.personal, wrong)
        # As of a client without samples, whichever algorithm asks.
        return UpdateRow(client, {**report, "steps": 0.0}, task.weight, task.personal, wrong)

    def _weight(self, client: int, report: Report) -> float:
        weight = self.weighting(report)
        if weight < 0:
            raise InputError(
                f"weigh = {self.weighting}: must give weights >= 0, and gives client {client} {weight:g}; change the part"
            )
        return weight


@dataclass(frozen=True)
class SumModels:
    """Add up the travelling models of a block, each with the weight it has: what a merge would give now."""

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Sum, right: Sum) -> Sum:
        return left.plus(right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        models = Sum.zero(worker.resident.layouts.shared)
        for task, model in zip(block.rows, values, strict=True):
            models.add(model, task.weight)
        return Output(models)
