"""Client updates: one model trains on one client's samples. A block of them is trained, and its models are summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import isfinite, nan
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.errors import DivergedError, InputError
from algorithms.core.fleet import Block, Function, Output
from algorithms.core.keys import Purpose, Streams, generator, torch_seed
from algorithms.core.layout import Packed
from algorithms.core.layouts import Layouts
from algorithms.core.personal import Location
from algorithms.core.returned import Returned, is_own, name_of
from algorithms.core.rows import NO_ROWS, Report, UpdateRows
from algorithms.core.sums import Sum
from algorithms.parts.weighting import Weighting
from algorithms.training.augment import Augmented
from algorithms.training.forked import drawn
from algorithms.training.local import Local
from algorithms.training.loss import labelled
from algorithms.training.reports import REPORTS, FinishedUpdate
from algorithms.training.work import Trainer, Work
from algorithms.training.worker import Worker

BATCHES = "batches/updates"
"""Personal entry that counts a client's updates, if it continues after its last batch."""


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


DRAWS_TOGETHER = (
    "your own code draws random numbers in a step that several client updates take together: must have a draw for each "
    'of them; set local.execution = "sequential"'
)
"""Error for draws that the clients of a stack would share."""

NO_INPUT = ClientInput(None, 0.0)
"""Input of a client without personal entries, after an aggregation."""


@dataclass(frozen=True)
class UpdateSums:
    """Rows of the client updates of some blocks, and their partial sums.

    Args:
        rows: reports of the client updates.
        models: sum of the models; None if each model is an object of its own.
        personal: sum of the personal entries.
        beside: further sums of options, by their names.
    """

    rows: UpdateRows
    models: Sum | None
    personal: Sum
    beside: Mapping[str, Any] = field(default_factory=dict)


class OnTheWay(Protocol):
    """Stage on the way of trained models to the server; a picklable value."""

    def prepared(self, works: list[Work]) -> list[Work]:
        """Return the samples and batches of some client updates before they train."""
        ...

    def __call__(self, worker: Worker, trained: Trained) -> None:
        """Change trained models in their lanes."""
        ...


@dataclass
class Trained:
    """Trained models in their lanes, before they are summed or left behind.

    Args:
        updates: settings of the client updates.
        trainer: trainer with the lanes.
        clients: ids of the clients.
        inputs: input of each client.
        received: model that each client received.
        lanes: lane of each client's model.
        works: samples and batches of each client.
    """

    updates: ClientUpdates
    trainer: Trainer
    clients: Sequence[int]
    inputs: Sequence[ClientInput]
    received: Sequence[Packed]
    lanes: Sequence[int]
    works: Sequence[Work]
    _wrong: list[str | None] | None = field(default=None, repr=False)

    def nonfinite(self) -> list[str | None]:
        """Return the first quantity of each lane that was not finite now or at an earlier look; None if all were."""
        found = self.trainer.nonfinite(len(self.works))
        if self._wrong is not None:
            found = [first or then for first, then in zip(self._wrong, found, strict=True)]
        self._wrong = found
        return found

    def finite(self) -> list[int]:
        """Return the places of the clients that took a step and whose models are finite."""
        wrong = self.nonfinite()
        return [i for i, work in enumerate(self.works) if work.batches and wrong[self.lanes[i]] is None]

    def counter(self, place: int) -> int:
        """Return the counter of a client update's random draws."""
        return self.updates.counter(self.inputs[place])


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
        on_the_way: stages that the trained models pass on their way to the server, in their order.
    """

    local: Local
    weighting: Weighting
    seed: int
    round_number: int
    aggregate: bool
    rounds: int | None = None
    needs: tuple[str, ...] = ()
    on_the_way: tuple[OnTheWay, ...] = ()

    def objects(self, block: Block) -> int:
        return 0 if self.aggregate else len(block.clients)

    def nothing(self, layouts: Layouts) -> UpdateSums:
        """Return the result of no block."""
        models = Sum.zero(layouts.shared) if self.aggregate else None
        return UpdateSums(NO_ROWS, models, Sum.zero(layouts.personal))

    def join(self, left: UpdateSums, right: UpdateSums) -> UpdateSums:
        models = left.models.plus(right.models) if left.models and right.models else None
        beside = {name: each.plus(right.beside[name]) for name, each in left.beside.items()}
        rows, personal = UpdateRows.joined([left.rows, right.rows]), left.personal.plus(right.personal)
        return UpdateSums(rows, models, personal, beside)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        (model, newcomer), *travelling = values
        trainer = worker.trainer_of(model)
        result, rows, objects = self.nothing(worker.resident.layouts), [], []
        for first in range(0, len(block.clients), trainer.lanes):
            part = slice(first, first + trainer.lanes)
            clients, inputs = block.clients[part], block.inputs[part]
            received = travelling[part] if model is None else [model] * len(clients)
            personal = [worker.personal.read(each.personal) if each.personal else newcomer for each in inputs]
            lanes, trained = self._train(worker, trainer, clients, inputs, received, personal)
            stepped = trained.report["steps"] > 0
            if worker.resident.layouts.personal.entries:
                for lane, counts in zip(lanes, stepped, strict=True):
                    result.personal.add(trainer.personal(lane), float(counts))
            if worker.watch is not None:
                for i in np.flatnonzero(stepped):
                    worker.watch(trainer.shared(lanes[i]), received[i])
            if result.models is not None:
                trainer.add(result.models, lanes, trained.weights)
            else:
                objects += [trainer.shared(lane).copy() for lane in lanes]
            rows.append(trained)
        return Output(replace(result, rows=UpdateRows.joined(rows)), tuple(objects))

    def _train(
        self,
        worker: Worker,
        trainer: Trainer,
        clients: Sequence[int],
        inputs: Sequence[ClientInput],
        received: Sequence[Packed],
        personal: Sequence[Packed],
    ) -> tuple[list[int], UpdateRows]:
        """Train at most as many clients as there are lanes; return the lane of each, and the rows."""
        lanes, works, losses = self.train(worker, trainer, clients, inputs, received, personal)
        trained = Trained(self, trainer, clients, inputs, received, lanes, works)
        for stage in self.on_the_way:
            stage(worker, trained)
        wrong, rows = trained.nonfinite(), []
        for i, client in enumerate(clients):
            finished = FinishedUpdate(worker, trainer, self.local, works[i], lanes[i], received[i], personal[i])
            with worker.keyed(Purpose.OWN_REPORT, self.counter(inputs[i]), client, self.seed):
                rows.append(self._row(finished, client, inputs[i], float(losses[lanes[i]]), wrong[lanes[i]]))
        return lanes, UpdateRows.of(clients, *zip(*rows, strict=True))

    def counter(self, given: ClientInput) -> int:
        """Return the counter of a client update's random draws."""
        return self.round_number if given.counter is None else given.counter

    def train(
        self,
        worker: Worker,
        trainer: Trainer,
        clients: Sequence[int],
        inputs: Sequence[ClientInput],
        received: Sequence[Packed],
        personal: Sequence[Packed],
    ) -> tuple[list[int], list[Work], NDArray[np.float64]]:
        """Train at most as many clients as there are lanes; return the lane and work of each, and the lanes' losses."""
        works = self.works(worker, clients, inputs, personal)
        # The trainer takes the longest first. Models are still summed in the order of clients.
        order = sorted(range(len(works)), key=lambda i: -len(works[i].batches))
        lanes = sorted(range(len(works)), key=order.__getitem__)
        trainer.load([received[i] for i in order], [personal[i] for i in order])
        rate, first = self.local.rate(self.round_number, self.rounds), self.counter(inputs[0])
        with worker.keyed(Purpose.OWN_UPDATE, first, clients[0], self.seed):
            unused = drawn() if worker.own is not None and len(clients) > 1 else None
            losses = self.local.method.train(self.local, trainer, [works[i] for i in order], rate)
            if unused is not None and unused != drawn():
                raise InputError(DRAWS_TOGETHER)
        return lanes, works, losses

    def works(
        self, worker: Worker, clients: Sequence[int], inputs: Sequence[ClientInput], personal: Sequence[Packed]
    ) -> list[Work]:
        """Return the clients' samples and batches, without batches of one sample that batch norm cannot normalise."""
        streams, floating = Streams(self.seed, Purpose.BATCHES, self.round_number, clients), worker.resident.floating
        skips_single = worker.resident.refuses_single and self.local.statistics != "frozen"
        works = []
        for place, (client, given, own) in enumerate(zip(clients, inputs, personal, strict=True)):
            data = worker.data
            x, y = data.union(given.union, "train") if given.union else data.samples(client, "train")
            counter = self.counter(given)
            updates = int(worker.resident.layouts.personal.unpack(own)[BATCHES]) if self.local.batches else 0

            def draw(number: int, place: int = place, client: int = client) -> np.random.Generator:
                known = number == self.round_number
                return streams.at(place) if known else generator(self.seed, Purpose.BATCHES, number, client)

            batches = self.local.plan(y.shape[0], counter, updates, draw)
            if skips_single:
                batches = [rows for rows in batches if len(rows) > 1]
            masks, augment = self._draws(worker, client, counter, batches, x.device)
            x = x if x.dtype is floating else x.to(floating)
            works.append(Work(x, y, batches, masks, augment, client, self.round_number))
        return reduce(lambda given, stage: stage.prepared(given), self.on_the_way, works)

    def _draws(
        self, worker: Worker, client: int, counter: int, batches: Sequence[NDArray[np.int64]], device: torch.device
    ) -> tuple[torch.Generator | None, Augmented | None]:
        """Return the stream of a client update's dropout masks, and its augmentation; None without them."""
        masks = augment = None
        if worker.trainer.has_dropout:
            masks = torch.Generator(device)
            masks.manual_seed(torch_seed(self.seed, Purpose.DROPOUT, counter, client))
        if worker.augment is not None:
            key = torch_seed(self.seed, Purpose.AUGMENT, counter, client)
            augment = Augmented.of(worker.augment, batches, key, device)
        return masks, augment

    def _row(
        self, finished: FinishedUpdate, client: int, given: ClientInput, loss: float, wrong: str | None
    ) -> tuple[Report, float, Location | None, str | None]:
        """Return the report, the weight, the personal entries' location and the first quantity that is not finite.

        The lane of an update that is not finite gets the received model back; see `Local.nonfinite`.

        Raises:
            DivergedError: something is not finite, and `Local.nonfinite` is "stop".
        """
        report = self._report(finished, loss, wrong is None)
        weight = self._weight(client, report) if report["steps"] else given.weight
        if finished.work.batches and not (isfinite(loss) and isfinite(weight)):
            wrong = wrong or ("the weight" if isfinite(loss) else "the training loss")
        if wrong is None:
            return report, weight, self._store(finished, given, report), None
        if self.local.nonfinite == "stop":
            raise DivergedError(
                f"client {client} in round {self.round_number}: {wrong} is not finite after the client update; lower "
                'local.lr, set local.clip, or leave such updates out by local.nonfinite = "leave-out"'
            )
        finished.trainer.reload(finished.lane, finished.received, finished.personal)
        if self.local.nonfinite == "last" and isfinite(weight):
            return report, weight, given.personal, wrong
        # Report it like a client without samples.
        return {**report, "steps": 0.0}, given.weight, given.personal, wrong

    def _report(self, finished: FinishedUpdate, loss: float, finite: bool) -> dict[str, float]:
        work = finished.work
        report = {
            "samples": float(work.y.shape[0]),
            "steps": float(len(work.batches)),
            "used": float(sum(len(rows) for rows in work.batches)),
            "labelled": float(labelled(work.y)),
            "loss": loss,
        }
        if work.batches:
            if self.local.update is not None:
                report |= self._reported(finished, report)
            measured = [name for name in self.needs if name in REPORTS]
            report |= {name: REPORTS[name](finished) if finite else nan for name in measured}
            if lacking := [name for name in self.needs if name not in report]:
                raise InputError(
                    f"the algorithm needs {lacking[0]!r} of each client update: must be one of {', '.join(REPORTS)}, "
                    "or a number that local.update returns; return it"
                )
        return report

    def _reported(self, finished: FinishedUpdate, report: Report) -> Mapping[str, float]:
        """Return the numbers that a user's client update reports beside those of every report."""
        own = {name: value for name, value in finished.trainer.reported(finished.lane).items() if name != "loss"}
        if taken := [name for name in own if name in report or name in REPORTS]:
            raise InputError(
                f"local.update returns {taken[0]!r}, which every report has: must be another name; rename it"
            )
        return own

    def _store(self, finished: FinishedUpdate, given: ClientInput, report: Report) -> Location | None:
        """Store the client's personal entries after a finite update; return their location."""
        layout = finished.worker.resident.layouts.personal
        counts = bool(self.local.batches and report["samples"])
        if not layout.entries or not (counts or report["steps"]):
            # Nothing was trained, or nothing is personal.
            return given.personal
        if counts:
            # Count the update even if batch norm refused its only sample: the next batches are others.
            finished.trainer.count(BATCHES, finished.lane)
        return finished.worker.personal.append(finished.trainer.personal(finished.lane))

    def _weight(self, client: int, report: Report) -> float:
        weight = self.weighting(report)
        if is_own(self.weighting):
            weight = Returned(f"weighting = {name_of(self.weighting)!r}").number("the weight", weight)
        if weight < 0:
            raise InputError(
                f"weighting = {self.weighting}: must give weights >= 0, and gives client {client} {weight:g}; change "
                "the part"
            )
        return weight
