"""The step of asynchronous algorithms: a round is so many arrivals, each of which merges at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np

from algorithms.engine.client_update import ClientUpdates, RoundInput, Task, UpdateRow
from algorithms.engine.devices import Devices
from algorithms.engine.errors import InputError
from algorithms.engine.fleet import Block, Fleet, Outcome, Output, Worker, block_over, cut
from algorithms.engine.layout import Packed
from algorithms.engine.round import client_updates
from algorithms.engine.state import RoundReport, State, UpdateRecord
from algorithms.engine.stopwatch import Stopwatch
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals, Dispatcher, Flight, Timeline
from algorithms.parts.local import Local
from algorithms.parts.server import next_model
from algorithms.parts.weighting import Equal


@dataclass(frozen=True)
class Trained:
    """A visit that was computed and has not arrived yet."""

    block: int
    row: UpdateRow
    machine: dict[str, float]
    model: Packed


@dataclass(frozen=True)
class UnderWay:
    """What is remembered from round to round: plain values, which a checkpoint can hold.

    Args:
        schedule: whose it is: where a later phase has another, nobody is under way any more.
        first: the rounds that were done when it began.
        round: the rounds that were done when it was left.
        timeline: the virtual clock, and who is under way.
        versions: the models that visits begin with which were not computed yet, by version.
        trained: those that were, by the number of their dispatch.
        blocks: how many were run.
    """

    schedule: Arrivals
    first: int
    round: int
    timeline: Timeline = Timeline()
    versions: Mapping[int, Packed] = field(default_factory=dict)
    trained: Mapping[int, Trained] = field(default_factory=dict)
    blocks: int = 0


@dataclass(frozen=True)
class Sent:
    """Visits that begin each with a model of its own, and send it to the driver: a row and a model each.

    Args:
        visits: how they are made.
    """

    updates: ClientUpdates

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*left, *right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        output = self.updates(worker, block, *values)
        return Output(tuple(zip(output.value.rows, output.objects, strict=True)))


def arrive(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]) -> State:
    """One round: as many arrivals as a cohort has.

    Each merges at once, and whoever is sent next begins with what it made. What is under way when the run ends never
    arrives, though its model was sent.
    """
    return _Round(state, algorithm, fleet, meanwhile).run()


class _Round:
    """A round as it goes on; the state that it began with stays as it is."""

    def __init__(self, state: State, algorithm: Algorithm, fleet: Fleet, meanwhile: Callable[[], None]) -> None:
        self._state, self._algorithm, self._fleet, self._meanwhile = state, algorithm, fleet, meanwhile
        self._schedule, self._watch = _schedule(algorithm), Stopwatch()
        self._model, self._memory = state.model, state.memory
        began = _under_way(state, self._schedule)
        self._began, self._timeline, self._blocks = began, began.timeline, began.blocks
        self._versions, self._trained = dict(began.versions), dict(began.trained)
        if fleet.census.joins is not None:
            raise InputError(
                "algorithm.joins where arrivals merge one by one: must be left out, for all clients are there from the "
                "first; remove it, or use an algorithm that goes in rounds"
            )
        size = self._schedule.size(len(fleet.census.clients))
        self._dispatcher = Dispatcher(state.seed, fleet.census.clients, size, _seconds(state, algorithm.local, fleet))

    def run(self) -> State:
        """Let a round's visits arrive."""
        if not self._timeline.flights:
            self._depart()
        updates = tuple(self._arrival() for _ in range(self._dispatcher.cohort))
        self._work_meanwhile()
        number = self._state.round + 1
        own = replace(
            self._began,
            round=number,
            timeline=self._timeline,
            versions=self._versions,
            trained=self._trained,
            blocks=self._blocks,
        )
        report = self._report(updates)
        return replace(self._state, round=number, model=self._model, memory=self._memory, own=own, report=report)

    def _report(self, updates: tuple[UpdateRecord, ...]) -> RoundReport:
        """Report the visits that arrived; the bytes down are of those that were sent."""
        state, before, after = self._state, self._began.timeline, self._timeline
        each = self._fleet.layouts.shared.nbytes
        measures = {}
        if state.devices is not None and self._schedule.delay.counts_seconds:
            measures["simulated_seconds"] = after.now - before.now
        seconds = dict.fromkeys(("sample", "send", "train", "sum"), 0.0) | self._watch.seconds
        up, down = len(updates) * each, (after.sent - before.sent) * each
        return RoundReport(updates, True, up, down, state.phase, measures=measures, seconds=seconds)

    def _arrival(self) -> UpdateRecord:
        """The next one arrives: it merges, and others begin with what it made."""
        flight = self._timeline.next
        if flight.number not in self._trained:
            self._train()
        trained = self._trained.pop(flight.number)
        row = self._weighted(trained.row, self._timeline.version - flight.base)
        if row.weight:
            # A stale counter is no reason to count back.
            counters = np.maximum(self._model.integers, trained.model.integers)
            arrived, layout = Packed(trained.model.floats, counters), self._fleet.layouts.shared
            self._model, self._memory = next_model(
                self._algorithm.server, self._model, arrived, row.weight, self._memory, layout, self._state.round + 1
            )
        self._timeline = self._timeline.arrived()
        self._watch.lap("aggregate")
        self._depart()
        return trained.block, row, trained.machine

    def _weighted(self, row: UpdateRow, staleness: int) -> UpdateRow:
        """The row with its staleness, and the weight that follows; of a visit without a step it stays 0."""
        report = {**row.report, "staleness": float(staleness)}
        return replace(row, report=report, weight=self._algorithm.weighting(report) if report["steps"] else 0.0)

    def _depart(self) -> None:
        """Send those that begin with the present version."""
        timeline = self._timeline = self._timeline.departed(self._schedule.delay, self._dispatcher)
        if any(flight.base == timeline.version for flight in timeline.flights):
            self._versions[timeline.version] = self._model
        self._watch.lap("sample")

    def _train(self) -> None:
        """Compute, side by side, all visits that were sent and not computed: none waits for a version any more."""
        waiting = [flight for flight in self._timeline.under_way if flight.number not in self._trained]
        start = self._fleet.put(RoundInput(None, self._state.initial))
        models = {version: self._fleet.put(model) for version, model in sorted(self._versions.items())}
        maps = []
        # A visit has the learning rate of the round in which it was sent, and only visits of one rate can be stacked.
        for number, flights in groupby(sorted(waiting, key=self._round_of), self._round_of):
            cut = self._cut(sorted(flights, key=lambda flight: (flight.client, flight.number)))
            blocks = [self._block(place, part, models) for place, part in enumerate(cut)]
            updates = client_updates(self._state, self._algorithm, self._fleet, aggregate=False)
            sent = Sent(replace(updates, weighting=Equal(), number=number))
            maps.append((cut, self._fleet.map(sent, blocks, [start])))
        self._watch.lap("send")
        self._work_meanwhile()
        for cut, outcomes in maps:
            self._trained |= _each(cut, outcomes, self._blocks)
            self._blocks += len(cut)
        self._versions = {}
        self._watch.lap("train")

    def _round_of(self, flight: Flight) -> int:
        """The round in which a visit was sent, the run's first being 1."""
        return self._began.first + flight.base // self._dispatcher.cohort + 1

    def _cut(self, flights: Sequence[Flight]) -> list[Sequence[Flight]]:
        sites = self._fleet.census.sites_of(np.array([flight.client for flight in flights]))
        return [flights[part] for part in cut(len(flights), self._fleet.block_size(self._dispatcher.cohort), sites)]

    def _block(self, place: int, flights: Sequence[Flight], models: Mapping[int, Any]) -> Block:
        clients = tuple(flight.client for flight in flights)
        tasks = tuple(Task(None, 0.0, flight.number) for flight in flights)
        block = block_over(np.array(clients), self._fleet, place)
        return replace(block, rows=tasks, references=tuple(models[flight.base] for flight in flights))

    def _work_meanwhile(self) -> None:
        """Do the driver's other work, once a round."""
        work, self._meanwhile = self._meanwhile, lambda: None
        work()
        self._watch.lap("meanwhile")


def _each(cut: Sequence[Sequence[Flight]], outcomes: Iterable[Outcome], first: int) -> Iterator[tuple[int, Trained]]:
    """What each visit came to, by the number of its dispatch."""
    for outcome in outcomes:
        results = iter(outcome.value)
        for place, machine in zip(outcome.node.blocks, outcome.machine, strict=True):
            for flight, (row, model) in zip(cut[place], results, strict=False):
                yield flight.number, Trained(first + place, row, machine, model)


def _schedule(algorithm: Algorithm) -> Arrivals:
    if not isinstance(algorithm.schedule, Arrivals):
        raise TypeError(f"{algorithm.schedule} is no schedule of arrivals: leave the algorithm's own step out")
    return algorithm.schedule


def _under_way(state: State, schedule: Arrivals) -> UnderWay:
    """What was under way, or nothing where this is the first round, or that of another phase."""
    own = state.own
    if isinstance(own, UnderWay) and (own.schedule, own.round) == (schedule, state.round):
        return own
    return UnderWay(schedule, state.round, state.round)


def _seconds(state: State, local: Local, fleet: Fleet) -> Callable[[int], float]:
    """What a client's visit lasts on its device; a batch of one counts, though batch norm may pass it over."""
    devices, size = state.devices or Devices(), fleet.layouts.shared.nbytes
    local = local.fitted(fleet.census)

    @cache
    def seconds(client: int) -> float:
        samples = int(fleet.census.of(np.array([client]))[0])
        used = sum(len(rows) for rows in local.passes(samples, np.random.default_rng(0)))
        return devices.seconds(state.seed, client, used, size, size)

    return seconds
