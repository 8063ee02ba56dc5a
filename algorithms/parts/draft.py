"""A round from its draft to what the server receives; the options change both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Block, Fleet, Function, Outcome, Reference, cut, joined
from algorithms.core.layout import Packed
from algorithms.core.report import Laps, RoundReport
from algorithms.core.rows import UpdateRows
from algorithms.core.state import State, TravellingModel
from algorithms.core.sums import Sum
from algorithms.parts.client_update import NO_INPUT, ClientInput, ClientUpdates
from algorithms.parts.option import Parts, Updates


@dataclass(frozen=True)
class Draft:
    """A round before it runs: its options change the clients to draw from, draw the cohort, and leave notes.

    Args:
        state: the run before the round.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        clients: ids of the clients to draw from, ascending, int64 [n].
        weights: unnormalised chances of these clients, [n]; uniform sampling ignores them.
        size: number of clients to draw.
        newcomer: personal entries of a client that has none yet.
        models_travel: whether each client receives a model of its own.
        cohort: ids of the clients that train, ascending, int64 [m]; None until it is drawn.
        notes: what an option knows of this round, by its name.
        laps: seconds of the round's stages.
    """

    state: State
    algorithm: Parts
    fleet: Fleet
    clients: NDArray[np.int64]
    weights: NDArray[Any]
    size: int
    newcomer: Packed
    models_travel: bool = False
    cohort: NDArray[np.int64] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    laps: Laps = field(default_factory=Laps)

    @classmethod
    def of(cls, state: State, algorithm: Parts, fleet: Fleet) -> Draft:
        """Return the draft of the next round, before its options."""
        census = fleet.census
        size = algorithm.schedule.sample.size(len(census.clients))
        return cls(state, algorithm, fleet, census.clients, census.samples, size, state.initial)

    @property
    def number(self) -> int:
        """Number of the round, starting at 1."""
        return self.state.round + 1

    @property
    def drawn(self) -> NDArray[np.int64]:
        """Ids of the clients that train, ascending, int64 [m]; RuntimeError before they are drawn."""
        if self.cohort is None:
            raise RuntimeError("the cohort is not drawn yet")
        return self.cohort

    def noting(self, name: str, note: Any) -> Draft:
        """Return the draft with an option's note."""
        return replace(self, notes={**self.notes, name: note})

    def with_cohort(self) -> Draft:
        """Return the draft with its cohort, drawn by the schedule's sample unless an option has drawn it."""
        if self.cohort is not None:
            return self
        sample = self.algorithm.schedule.sample
        return replace(self, cohort=sample.draw(self.clients, self.state.seed, self.number, self.weights, self.size))

    def attended(self) -> Draft:
        """Return the draft as the options change it, with its cohort."""
        return reduce(lambda draft, option: option.attend(draft), self.algorithm.folded, self).with_cohort()

    def wrapped(self, updates: Updates) -> Updates:
        """Return client updates as the options change them."""
        return reduce(lambda function, option: option.wrap(self, function), self.algorithm.folded, updates)

    def on_the_way(self, updates: Updates) -> Updates:
        """Return client updates whose models only those options change that lie on their way to the server."""
        options = (option for option in self.algorithm.folded if option.on_the_way)
        return reduce(lambda function, option: option.wrap(self, function), options, updates)

    def reduced(self, received: Received) -> Received:
        """Return what the server receives as the options change it."""
        return reduce(lambda so_far, option: option.reduce(self, so_far), self.algorithm.folded, received)

    def published(self, received: Received, state: State) -> State:
        """Return the run after the round as the options change it, with its report."""
        report = received.report(self.state.phase, self.laps.seconds)
        after = replace(state, memory={**state.memory, **received.memory}, report=report)
        after = reduce(lambda state, option: option.publish(self, received, state), self.algorithm.folded, after)
        self.laps.lap("aggregate")
        return after

    @property
    def updates(self) -> ClientUpdates:
        """Client updates of the round, before the options change them."""
        state, algorithm = self.state, self.algorithm
        local = algorithm.local.fitted(self.fleet.census)
        return ClientUpdates(
            local, algorithm.weighting, state.seed, self.number, True, state.rounds, tuple(algorithm.needs)
        )

    @property
    def start(self) -> Reference:
        """Handle of the global model, None if models travel, and of the personal entries of a newcomer."""
        return self.fleet.put((None if self.models_travel else self.state.model, self.newcomer))

    def blocks(self, clients: NDArray[np.int64], models: Sequence[TravellingModel] = ()) -> list[Block]:
        """Cut clients into blocks; each client has its personal entries, and its model if models travel."""
        fleet, state = self.fleet, self.state
        samples, sites = fleet.census.of(clients), fleet.census.sites_of(clients)
        blocks: list[Block] = []
        for part in cut(len(clients), fleet.block_size(len(clients)), sites):
            ids = tuple(clients[part].tolist())
            inputs = (NO_INPUT,) * len(ids)
            if models or state.personal.newest:
                weights = [model.weight for model in models[part]] or [0.0] * len(ids)
                personal = [state.personal.latest(client, state.round) for client in ids]
                inputs = tuple(ClientInput(*each) for each in zip(personal, weights, strict=True))
            references = tuple(model.reference for model in models[part])
            site = None if sites is None else int(sites[part.start])
            blocks.append(Block(len(blocks), ids, int(samples[part].sum()), inputs, references, site))
        return blocks


@dataclass(frozen=True)
class Received:
    """Rows, models and memory of a round as the server receives them.

    Args:
        rows: reports of the client updates.
        models: sum of the models; None if each model is an object of its own.
        personal: sum of the personal entries.
        blocks: number of each client update's block, int64 [m].
        machine: facts of the machine by the number of a block.
        up: bytes that each client sends, int64 [m].
        down: bytes that each client receives, int64 [m].
        objects: references to the objects that the blocks left behind.
        beside: further sums of options, by their names.
        memory: new memory of options, by their names.
    """

    rows: UpdateRows
    models: Sum | None
    personal: Sum
    blocks: NDArray[np.int64]
    machine: Mapping[int, Mapping[str, float]]
    up: NDArray[np.int64]
    down: NDArray[np.int64]
    objects: Sequence[Reference] = ()
    beside: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def keeping(self, name: str, memory: Mapping[str, Any]) -> Received:
        """Return the same with the new memory of an option."""
        return replace(self, memory={**self.memory, name: memory})

    def report(self, phase: int, seconds: Mapping[str, float]) -> RoundReport:
        """Return the report of the round; `seconds` go on until it ends."""
        up, down, aggregated = int(self.up.sum()), int(self.down.sum()), self.models is not None
        return RoundReport(self.rows, self.blocks, self.machine, aggregated, up, down, phase, seconds=seconds)


class Training:
    """Client updates of a round, under way.

    Args:
        draft: the round.
        updates: client updates, as the options changed them.
        blocks: blocks of the cohort.
    """

    def __init__(self, draft: Draft, updates: Function, blocks: Sequence[Block]) -> None:
        self._draft, self._updates, self._blocks = draft, updates, blocks
        draft.laps.lap("sample")
        self._outcomes = draft.fleet.map(updates, blocks, [draft.start]) if blocks else iter(())
        draft.laps.lap("send")

    def received(self, arrival: int | None = None) -> Received:
        """Wait for the client updates; return what the server receives, and keep the clients' personal entries.

        Args:
            arrival: round in which the updates arrive; None for the round of the draft.
        """
        draft, blocks, machine = self._draft, self._blocks, list[Mapping[str, float]]()
        draft.laps.lap("meanwhile")
        value, objects = joined(self._updates, blocks, self._timed(machine)) if blocks else (self._nothing(), [])
        draft.laps.lap("sum")
        layouts, count = draft.fleet.layouts, len(value.rows)
        whole = draft.algorithm.model_bytes(layouts)
        down, up = np.full(count, whole), np.full(count, whole - draft.algorithm.saved_bytes(layouts))
        if layouts.personal.entries:
            draft.state.personal.add_all(arrival or draft.number, value.rows.clients.tolist(), value.rows.personal)
        numbers = np.repeat(np.arange(len(blocks)), [len(block.clients) for block in blocks])
        facts = dict(enumerate(machine))
        return Received(value.rows, value.models, value.personal, numbers, facts, up, down, objects, value.beside)

    def _timed(self, machine: list[Mapping[str, float]]) -> Iterator[Outcome]:
        laps = self._draft.laps
        for outcome in self._outcomes:
            laps.lap("train")
            machine.extend(outcome.machine)
            yield outcome
            laps.lap("sum")

    def _nothing(self) -> Any:
        return self._draft.updates.nothing(self._draft.fleet.layouts)
