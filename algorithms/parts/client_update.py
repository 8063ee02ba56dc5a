"""Client updates: one model trains on one client's samples. A block of them is trained, and its models are summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from math import isfinite, nan
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import DivergedError, InputError
from algorithms.core.fleet import Block, Function, Output
from algorithms.core.keys import Purpose, Streams, generator, torch_seed
from algorithms.core.layout import COUNTERS, Layouts, Packed
from algorithms.core.personal import Location
from algorithms.core.report import NO_ROWS, Report, UpdateRows
from algorithms.core.returned import is_own, place_of
from algorithms.core.sums import Sum
from algorithms.parts.weighting import Weighting, weight_of
from algorithms.training.local import Local
from algorithms.training.loss import OwnLoss, labelled
from algorithms.training.reports import REPORTS, UNDRAWN, FinishedUpdate
from algorithms.training.work import Trainer, Work
from algorithms.training.worker import Worker


@dataclass(frozen=True)
class ClientInput:
    """Input of one client update beside its model.

    Args:
        personal: location of the client's personal entries; None if it has none yet.
        weight: weight of the received model; 0 after an aggregation.
        counter: counter of the random draws; None for the round's, unless a client may train twice in a round.
    """

    personal: Location | None
    weight: float
    counter: int | None = None


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

    def __call__(self, trained: Trained) -> None:
        """Change trained models in their lanes."""
        ...


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
        rounds: rounds of the run, if known.
        needs: measurements after each client update, for its report; see `algorithms.training.reports`.
        aggregate: whether the round ends in an aggregation.
        on_the_way: stages that the trained models pass on their way to the server, in their order.
        dispatches: last number by which a phase of arrivals has keyed draws; the counter of the round goes on from it.
    """

    local: Local
    weighting: Weighting
    seed: int
    round_number: int
    rounds: int | None = None
    needs: tuple[str, ...] = ()
    aggregate: bool = True
    on_the_way: tuple[OnTheWay, ...] = ()
    dispatches: int = 0

    def counter(self, given: ClientInput) -> int:
        """Return the counter of a client update's random draws."""
        return self.dispatches + self.round_number if given.counter is None else given.counter

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
        trainer, layouts = worker.trainer_of(model), worker.resident.layouts
        result, rows, objects = self.nothing(layouts), [], []
        for first in range(0, len(block.clients), trainer.lanes):
            part = slice(first, first + trainer.lanes)
            clients, inputs = block.clients[part], block.inputs[part]
            received = travelling[part] if model is None else [model] * len(clients)
            personal = [worker.personal.read(each.personal) if each.personal else newcomer for each in inputs]
            trained = self.train(worker, trainer, clients, inputs, received, personal)
            for stage in self.on_the_way:
                stage(trained)
            found = rows_of(trained)
            if layouts.personal.entries:
                found = kept(trained, found, result.personal)
            for watch in worker.watches:
                watch(trained, found)
            if result.models is not None:
                trainer.add(result.models, trained.lanes, found.weights)
            else:
                objects += [trainer.shared(lane).copy() for lane in trained.lanes]
            rows.append(found)
        return Output(replace(result, rows=UpdateRows.joined(rows)), tuple(objects))

    def train(
        self,
        worker: Worker,
        trainer: Trainer,
        clients: Sequence[int],
        inputs: Sequence[ClientInput],
        received: Sequence[Packed],
        personal: Sequence[Packed],
    ) -> Trained:
        """Train at most as many clients as there are lanes, each from the model that it received."""
        works = self.works(worker, clients, inputs, personal)
        # The trainer takes the longest first. Models are still summed in the order of clients.
        order = sorted(range(len(works)), key=lambda i: -len(works[i].batches))
        lanes = sorted(range(len(works)), key=order.__getitem__)
        trainer.load([received[i] for i in order], [personal[i] for i in order])
        rate, first = self.local.rate(self.round_number, self.rounds), self.counter(inputs[0])
        with worker.keyed_together(Purpose.OWN_UPDATE, first, clients, self.seed):
            losses = self.local.method.train(self.local, trainer, [works[i] for i in order], rate)
        return Trained(self, worker, trainer, clients, inputs, received, personal, lanes, works, losses[lanes])

    def works(
        self, worker: Worker, clients: Sequence[int], inputs: Sequence[ClientInput], personal: Sequence[Packed]
    ) -> list[Work]:
        """Return the clients' samples and batches."""
        of_round = self.counter(NO_INPUT)
        streams = Streams(self.seed, Purpose.BATCHES, of_round, clients)
        works = []
        for place, (client, given, own) in enumerate(zip(clients, inputs, personal, strict=True)):
            x, y = worker.data.samples(client, "train")
            counter = self.counter(given)
            updates = int(worker.resident.layouts.personal.unpack(own)[BATCHES]) if self.local.batches else 0

            def draw(number: int, place: int = place, client: int = client) -> np.random.Generator:
                known = number == of_round
                return streams.at(place) if known else generator(self.seed, Purpose.BATCHES, number, client)

            batches = self.local.plan(y.shape[0], counter, updates, draw, worker.least_batch(self.local))
            work = Work(x.to(worker.resident.floating), y, batches, client=client, round_number=self.round_number)
            for prepare in worker.preparations:
                work = prepare(work, self.local, partial(torch_seed, self.seed, counter=counter, client=client))
            works.append(work)
        return reduce(lambda given, stage: stage.prepared(given), self.on_the_way, works)


def round_of(function: Any) -> int | None:
    """Return the round of client updates, such as those that are also compared; None for any other function."""
    while (inner := getattr(function, "inner", getattr(function, "updates", None))) is not None:
        function = inner
    return function.round_number if isinstance(function, ClientUpdates) else None


@dataclass
class Trained:
    """Trained models in their lanes, before they are summed or left behind.

    Args:
        updates: client updates.
        worker: worker that trained them.
        trainer: trainer with the lanes.
        clients: ids of the clients.
        inputs: input of each client.
        received: model that each client received.
        personal: personal entries that each client began with.
        lanes: lane of each client's model.
        works: samples and batches of each client.
        losses: mean training loss of each client, float64 [n].
    """

    updates: ClientUpdates
    worker: Worker
    trainer: Trainer
    clients: Sequence[int]
    inputs: Sequence[ClientInput]
    received: Sequence[Packed]
    personal: Sequence[Packed]
    lanes: Sequence[int]
    works: Sequence[Work]
    losses: NDArray[np.float64]
    _wrong: list[str | None] | None = field(default=None, repr=False)

    def nonfinite(self) -> list[str | None]:
        """Return the first quantity of each model that was not finite now or at an earlier look; None if all were."""
        by_lane = self.trainer.nonfinite(len(self.works))
        found = [by_lane[lane] for lane in self.lanes]
        self._wrong = [first or then for first, then in zip(self._wrong or found, found, strict=True)]
        return self._wrong

    def finite(self) -> list[int]:
        """Return the places of the clients that took a step and whose models are finite."""
        wrong = self.nonfinite()
        return [i for i, work in enumerate(self.works) if work.batches and wrong[i] is None]

    def counter(self, place: int) -> int:
        """Return the counter of a client update's random draws."""
        return self.updates.counter(self.inputs[place])

    def finished(self, place: int) -> FinishedUpdate:
        """Return a client update with everything that a measurement reads."""
        at = self.works[place], self.lanes[place], self.received[place], self.personal[place]
        return FinishedUpdate(self.worker, self.trainer, self.updates.local, *at)

    def keyed(self, place: int) -> AbstractContextManager[None]:
        """Seed the default generators if a user's own code may draw from them for a client's report or weight."""
        worker, updates = self.worker, self.updates
        if worker.own is None or not (is_own(updates.weighting) or set(updates.needs).difference(UNDRAWN)):
            return nullcontext()
        return worker.keyed(Purpose.OWN_REPORT, self.counter(place), self.clients[place], updates.seed)


BATCHES = COUNTERS["batches"]
"""Personal entry that counts a client's updates, if it continues after its last batch."""


def rows_of(trained: Trained) -> UpdateRows:
    """Return the rows of client updates; a model that is not finite gives way to the received one.

    Raises:
        DivergedError: something is not finite, and `Local.nonfinite` is "stop".
    """
    wrong, reports, weights = list(trained.nonfinite()), list[Report](), list[float]()
    for i, (client, given) in enumerate(zip(trained.clients, trained.inputs, strict=True)):
        with trained.keyed(i):
            report = _report(trained, i, finite=wrong[i] is None)
            # An update without a step has the weight of its received model.
            weight = weight_of(trained.updates.weighting, report, client) if report["steps"] else given.weight
        if report["steps"] and not (isfinite(report["loss"]) and isfinite(weight)):
            wrong[i] = wrong[i] or ("the weight" if isfinite(report["loss"]) else "the training loss")
        reports.append(report)
        weights.append(weight)
    rows = UpdateRows.of(trained.clients, reports, weights, [each.personal for each in trained.inputs], wrong)
    return _settled(trained, rows) if any(wrong) else rows


def _report(trained: Trained, place: int, finite: bool) -> dict[str, float]:
    work = trained.works[place]
    report = {
        "samples": float(work.y.shape[0]),
        "steps": float(len(work.batches)),
        "used": float(sum(map(len, work.batches))),
        "labelled": float(labelled(work.y)),
        "loss": float(trained.losses[place]),
    }
    if work.batches and (trained.updates.needs or trained.updates.local.update):
        return _measured(trained, place, report, finite)
    return report


def _measured(trained: Trained, place: int, report: Report, finite: bool) -> dict[str, float]:
    """Return a report with the numbers of a user's client update, and the measurements that the algorithm needs."""
    finished = trained.finished(place)
    needs, own = trained.updates.needs, {}
    if trained.updates.local.update is not None:
        given = trained.trainer.reported(finished.lane)
        own = {name: value for name, value in given.items() if name != "loss"}
    if taken := [name for name in own if name in (*report, *REPORTS, "staleness")]:
        raise InputError(f"local.update returns {taken[0]!r}, which every report has: must be another name; rename it")
    measured = {name: REPORTS[name](finished) if finite else nan for name in needs if name in REPORTS}
    whole = {**report, **own, **measured}
    if lacking := [name for name in needs if name not in whole]:
        raise InputError(
            f"the algorithm needs {lacking[0]!r} of each client update: must be one of {', '.join(REPORTS)}, "
            "or a number that local.update returns; return it"
        )
    return whole


def _settled(trained: Trained, rows: UpdateRows) -> UpdateRows:
    """Return rows in which updates that are not finite do not count; see `Local.nonfinite`."""
    policy, steps, weights = trained.updates.local.nonfinite, rows.report["steps"].copy(), rows.weights.copy()
    for i, wrong in enumerate(rows.nonfinite):
        if wrong is None:
            continue
        if policy == "stop":
            _check_own_loss(trained, i)
            raise diverged(trained.clients[i], trained.updates.round_number, wrong)
        trained.trainer.reload(trained.lanes[i], trained.received[i], trained.personal[i])
        if policy == "leave-out" or not isfinite(weights[i]):
            # Report it like a client without samples.
            steps[i], weights[i] = 0.0, trained.inputs[i].weight
    return replace(rows, report={**rows.report, "steps": steps}, weights=weights)


def _check_own_loss(trained: Trained, place: int) -> None:
    """Raise DivergedError if a user's own loss was not finite before the client update: no step has caused that."""
    loss, number = trained.updates.local.loss, trained.updates.round_number
    if isinstance(loss, OwnLoss) and not isfinite(value := REPORTS["loss_received"](trained.finished(place))):
        remedy = "correct it" if number == 1 else "correct it, or lower local.lr"
        raise DivergedError(
            f"local.loss = {loss.name!r}: is {value} on the samples of client {trained.clients[place]} under the model "
            f"that it received in round {number}{place_of(loss.function)}; {remedy}"
        )


def diverged(client: int, round_number: int, wrong: str) -> DivergedError:
    """Return the error of a client update whose result is not finite; `wrong` is the first such quantity."""
    return DivergedError(
        f"client {client} in round {round_number}: {wrong} is not finite after the client update; lower local.lr, set "
        'local.clip, or leave such updates out by local.nonfinite = "leave-out"'
    )


def kept(trained: Trained, rows: UpdateRows, personal: Sum) -> UpdateRows:
    """Return rows with the locations of the clients' personal entries, and add these to their sum.

    Args:
        trained: client updates.
        rows: their rows.
        personal: sum of the personal entries of the clients that took a step.
    """
    locations = [_stored(trained, rows, i) for i in range(len(rows))]
    for i, lane in enumerate(trained.lanes):
        personal.add(trained.trainer.personal(lane), float(rows.report["steps"][i] > 0))
    return replace(rows, personal=tuple(locations))


def _stored(trained: Trained, rows: UpdateRows, place: int) -> Location | None:
    """Store a client's personal entries after an update that was trained, or that counts; return their location."""
    counts = bool(trained.updates.local.batches and rows.report["samples"][place])
    stepped = rows.nonfinite[place] is None and rows.report["steps"][place]
    if not (counts or stepped):
        return rows.personal[place]
    if counts:
        # Without its count, an update whose batches are refused would have the same ones again.
        trained.trainer.count(BATCHES, trained.lanes[place])
    return trained.worker.personal.append(trained.trainer.personal(trained.lanes[place]))
