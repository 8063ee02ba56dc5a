"""Client updates: one model trains on one client's samples. A block of them is trained, and its models are summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Protocol

import numpy as np

from algorithms.core.fleet import Block, Function, Output
from algorithms.core.keys import Purpose, Streams, generator, torch_seed
from algorithms.core.layout import Packed
from algorithms.core.layouts import Layouts
from algorithms.core.rows import NO_ROWS, UpdateRows
from algorithms.core.sums import Sum
from algorithms.parts.trained import ClientInput, Trained, UpdateSettings
from algorithms.parts.update_rows import BATCHES, kept, rows_of
from algorithms.training.work import Trainer, Work
from algorithms.training.worker import Worker


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
class ClientUpdates(UpdateSettings, Function):
    """Client updates of a block: sum their models, or leave each model behind as an object of its own.

    The values of a block are a pair, and the travelling models of its clients, if there are any. The pair is the shared
    entries of the global model (None if models travel), and the personal entries of a client that has none yet.

    Args:
        aggregate: whether the round ends in an aggregation.
        on_the_way: stages that the trained models pass on their way to the server, in their order.
    """

    aggregate: bool = True
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
        streams = Streams(self.seed, Purpose.BATCHES, self.round_number, clients)
        works = []
        for place, (client, given, own) in enumerate(zip(clients, inputs, personal, strict=True)):
            x, y = worker.data.samples(client, "train")
            counter = self.counter(given)
            updates = int(worker.resident.layouts.personal.unpack(own)[BATCHES]) if self.local.batches else 0

            def draw(number: int, place: int = place, client: int = client) -> np.random.Generator:
                known = number == self.round_number
                return streams.at(place) if known else generator(self.seed, Purpose.BATCHES, number, client)

            batches = self.local.plan(y.shape[0], counter, updates, draw)
            work = Work(x.to(worker.resident.floating), y, batches, client=client, round_number=self.round_number)
            for prepare in worker.preparations:
                work = prepare(work, self.local, partial(torch_seed, self.seed, counter=counter, client=client))
            works.append(work)
        return reduce(lambda given, stage: stage.prepared(given), self.on_the_way, works)
