"""Client updates: one model trains on one client's samples. A block of them is trained, and its models are summed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import torch

from algorithms.engine.errors import DivergedError, InputError
from algorithms.engine.fleet import Block, Function, Output, Worker
from algorithms.engine.keys import Purpose, generator, torch_seed
from algorithms.engine.layout import Packed
from algorithms.engine.layouts import Layouts
from algorithms.engine.personal import Location
from algorithms.engine.sums import Sum
from algorithms.parts.local import Local
from algorithms.parts.weighting import Report, Weighting
from algorithms.training.augment import Augmented
from algorithms.training.losses import labelled
from algorithms.training.reports import REPORTS, FinishedUpdate
from algorithms.training.work import Work


@dataclass(frozen=True)
class ClientInput:
    """Input of one client update beside its model.

    Args:
        personal: location of the client's personal entries; None if it has none yet.
        weight: weight of the received model; 0 after an aggregation.
        counter: counter of the random draws; None for the round number, unless a client may train twice in a round.
        union: clients that provide the samples together; empty for the client's own samples.
    """

    personal: Location | None
    weight: float
    counter: int | None = None
    union: tuple[int, ...] = ()


@dataclass(frozen=True)
class UpdateRow:
    """Report of a client update to the driver.

    Args:
        client: id of the client.
        report: named numbers.
        weight: weight in an aggregation.
        personal: location of the client's personal entries.
        nonfinite: first NaN or infinite quantity; the update was then left out or its model replaced, as
            `Local.nonfinite` says. None if everything was finite.
    """

    client: int
    report: Report
    weight: float
    personal: Location | None
    nonfinite: str | None = None

    @property
    def trained(self) -> bool:
        """Whether the client took a step and its result counts."""
        return self.report["steps"] > 0 and self.nonfinite is None


@dataclass(frozen=True)
class BlockResult:
    """Rows of the client updates of some blocks, and their partial sums.

    Args:
        rows: one for each client update.
        models: sum of the models; None if each model is an object of its own.
        personal: sum of the personal entries.
    """

    rows: tuple[UpdateRow, ...]
    models: Sum | None
    personal: Sum


@dataclass(frozen=True)
class ClientUpdates(Function):
    """Client updates of a block: sum their models, or leave each model behind as an object of its own.

    The values of a block are a pair, and the travelling models of its clients, if there are any. The pair is the shared
    entries of the global model (None if models travel), and the personal entries of a client that has none yet.

    Args:
        local: one client's training.
        weighting: weight of a client update in the aggregation.
        seed: seed of the run.
        round_number: round, starting at 1.
        aggregate: whether the round ends in an aggregation.
        rounds: rounds of the run, if known.
        needs: measurements after each client update, for its report; see `algorithms.training.reports`.
    """

    local: Local
    weighting: Weighting
    seed: int
    round_number: int
    aggregate: bool
    rounds: int | None = None
    needs: tuple[str, ...] = ()

    def objects(self, block: Block) -> int:
        return 0 if self.aggregate else len(block.clients)

    def nothing(self, layouts: Layouts) -> BlockResult:
        """Return the result of no block."""
        return BlockResult((), Sum.zero(layouts.shared) if self.aggregate else None, Sum.zero(layouts.personal))

    def join(self, left: BlockResult, right: BlockResult) -> BlockResult:
        models = left.models.plus(right.models) if left.models and right.models else None
        return BlockResult((*left.rows, *right.rows), models, left.personal.plus(right.personal))

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        (model, newcomer), *travelling = values
        resident, result = worker.resident, self.nothing(worker.resident.layouts)
        rows, objects = [], []
        for first in range(0, len(block.clients), worker.trainer.lanes):
            part = slice(first, first + worker.trainer.lanes)
            clients, inputs = block.clients[part], block.inputs[part]
            received = travelling[part] if model is None else [model] * len(clients)
            trained = self._train(worker, clients, inputs, received, newcomer)
            for (lane, row), before in zip(trained, received, strict=True):
                rows.append(row)
                if resident.layouts.personal.entries:
                    result.personal.add(resident.personal(lane), float(row.report["steps"] > 0))
                if row.report["steps"]:
                    worker.watch(resident.shared(lane), before)
                if result.models is not None:
                    result.models.add(resident.shared(lane), row.weight)
                else:
                    objects.append(resident.shared(lane).copy())
        return Output(BlockResult(tuple(rows), result.models, result.personal), tuple(objects))

    def _train(
        self,
        worker: Worker,
        clients: Sequence[int],
        inputs: Sequence[ClientInput],
        received: Sequence[Packed],
        newcomer: Packed,
    ) -> list[tuple[int, UpdateRow]]:
        """Train at most as many clients as there are lanes; return the lane and the row of each."""
        personal = [worker.personal.read(each.personal) if each.personal else newcomer for each in inputs]
        works = [self.work(worker, *each) for each in zip(clients, personal, inputs, strict=True)]
        # The trainer takes the longest first. Models are still summed in the order of clients.
        order = sorted(range(len(works)), key=lambda i: -len(works[i].batches))
        for lane, i in enumerate(order):
            worker.resident.load(received[i], personal[i], lane)
        rate = self.local.rate(self.round_number, self.rounds)
        losses = worker.trainer.train(self.local, [works[i] for i in order], rate)
        sums = worker.resident.sums(len(works))
        lanes = {i: lane for lane, i in enumerate(order)}
        trained = []
        for i, client in enumerate(clients):
            lane, loss = lanes[i], float(losses[lanes[i]])
            # A sum may also overflow while all entries are finite, so look at the entries.
            wrong = None if isfinite(sums[lane]) else worker.resident.first_nonfinite(lane)
            report = self._report(worker, works[i], loss, lane, received[i], personal[i], wrong is None)
            weight = self._weight(client, report) if report["steps"] else inputs[i].weight
            if works[i].batches and not (isfinite(loss) and isfinite(weight)):
                wrong = wrong or ("the weight" if isfinite(loss) else "the training loss")
            if wrong is None:
                row = self._row(worker, client, inputs[i], report, weight, lane)
            else:
                row = self._refused(client, inputs[i], report, weight, wrong)
                worker.resident.load(received[i], personal[i], lane)
            trained.append((lane, row))
        return trained

    def work(self, worker: Worker, client: int, personal: Packed, client_input: ClientInput) -> Work:
        """Return a client's samples and batches, without batches of one sample that batch norm cannot normalise."""
        union, data = client_input.union, worker.data
        x, y = data.union(union, "train") if union else data.samples(client, "train")
        counter = self.round_number if client_input.counter is None else client_input.counter
        updates = 0
        if self.local.batches:
            updates = int(worker.resident.layouts.personal.unpack(personal)["batches/updates"])
        batches = self.local.plan(
            len(y), counter, updates, lambda number: generator(self.seed, Purpose.BATCHES, number, client)
        )
        if worker.resident.refuses_single and self.local.statistics != "frozen":
            batches = [rows for rows in batches if len(rows) > 1]
        masks = None
        if worker.trainer.has_dropout:
            masks = torch.Generator(x.device)
            masks.manual_seed(torch_seed(self.seed, Purpose.DROPOUT, counter, client))
        augment = None
        if worker.augment is not None:
            key = torch_seed(self.seed, Purpose.AUGMENT, counter, client)
            augment = Augmented.of(worker.augment, batches, key, x.device)
        return Work(x.to(worker.resident.floating), y, batches, masks, augment)

    def _report(
        self, worker: Worker, work: Work, loss: float, lane: int, received: Packed, personal: Packed, finite: bool
    ) -> dict[str, float]:
        report = {
            "samples": float(work.y.shape[0]),
            "steps": float(len(work.batches)),
            "used": float(sum(len(rows) for rows in work.batches)),
            "labelled": float(labelled(work.y)),
            "loss": loss,
        }
        if work.batches and not finite:
            report |= dict.fromkeys(self.needs, nan)
        elif work.batches:
            after = FinishedUpdate(worker, self.local, work, lane, received, personal)
            report |= {name: REPORTS[name](after) for name in self.needs}
        return report

    def _row(
        self, worker: Worker, client: int, client_input: ClientInput, report: Report, weight: float, lane: int
    ) -> UpdateRow:
        """Return the row of a valid client update; store the client's personal entries."""
        if self.local.batches and report["samples"]:
            # Count the update even if batch norm refused its only sample: the next batches are others.
            worker.resident.counters["batches"][lane] += 1
        elif not report["steps"]:
            # Nothing was trained: the model keeps the weight that it came with, 0 after an aggregation.
            return UpdateRow(client, report, weight, client_input.personal)
        has_personal = bool(worker.resident.layouts.personal.entries)
        location = worker.personal.append(worker.resident.personal(lane)) if has_personal else None
        return UpdateRow(client, report, weight, location)

    def _refused(self, client: int, client_input: ClientInput, report: Report, weight: float, wrong: str) -> UpdateRow:
        """Return the row of a client update that is not finite; see `Local.nonfinite`.

        Raises:
            DivergedError: `Local.nonfinite` is "stop".
        """
        if self.local.nonfinite == "stop":
            raise DivergedError(
                f"client {client} in round {self.round_number}: {wrong} is not finite after the client update; lower "
                'local.lr, set local.clip, or leave such updates out by local.nonfinite = "leave-out"'
            )
        if self.local.nonfinite == "last" and isfinite(weight):
            return UpdateRow(client, report, weight, client_input.personal, wrong)
        # Report it like a client without samples.
        return UpdateRow(client, {**report, "steps": 0.0}, client_input.weight, client_input.personal, wrong)

    def _weight(self, client: int, report: Report) -> float:
        weight = self.weighting(report)
        if weight < 0:
            raise InputError(
                f"weighting = {self.weighting}: must give weights >= 0, and gives client {client} {weight:g}; change "
                "the part"
            )
        return weight
