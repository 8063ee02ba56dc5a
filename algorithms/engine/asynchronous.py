"""The round of asynchronous algorithms: a number of arrivals, each of which is aggregated at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any

import numpy as np

from algorithms.engine.blocks import block_over
from algorithms.engine.client_update import ClientInput, ClientUpdates
from algorithms.engine.devices import DrawnDevices
from algorithms.engine.errors import InputError
from algorithms.engine.fleet import Block, Fleet, Function, Outcome, Output, Worker, cut
from algorithms.engine.layout import Packed
from algorithms.engine.report import RoundReport
from algorithms.engine.round import client_updates
from algorithms.engine.rows import UpdateRows
from algorithms.engine.state import State
from algorithms.engine.watch import RoundWatch
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals, Dispatcher, Flight, Timeline
from algorithms.parts.server import next_model
from algorithms.parts.weighting import Equal

Computed = tuple[UpdateRows, int, Mapping[str, float], Packed]
"""A client update that has not arrived yet: its row, the number and the machine facts of its block, its model."""


Arrived = tuple[UpdateRows, int, Mapping[str, float]]
"""A client update that has arrived: its row, and the number and the machine facts of its block."""


@dataclass(frozen=True)
class AsyncProgress:
    """Memory of an asynchronous algorithm from round to round: plain values, which a checkpoint can hold.

    Args:
        schedule: schedule of the phase; in a later phase with another schedule no client is under way at first.
        first: rounds done when the phase began.
        round: rounds done so far.
        timeline: virtual clock, and the clients under way.
        versions: models that uncomputed client updates begin with, by version.
        computed: client updates that have not arrived, by the number of their dispatch.
        blocks: blocks run so far.
    """

    schedule: Arrivals
    first: int
    round: int
    timeline: Timeline = Timeline()
    versions: Mapping[int, Packed] = field(default_factory=dict)
    computed: Mapping[int, Computed] = field(default_factory=dict)
    blocks: int = 0


@dataclass(frozen=True)
class ReturnedUpdates(Function):
    """Client updates that each begin with a model of their own: the driver receives a row and a model of each.

    Args:
        updates: settings of the client updates.
    """

    updates: ClientUpdates

    def join(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*left, *right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        output = self.updates(worker, block, *values)
        rows = output.value.rows
        return Output(tuple((rows[i : i + 1], model) for i, model in enumerate(output.objects)))


def arrive(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]) -> State:
    """Run one round: as many arrivals as a cohort has clients; arguments as in `next_round`.

    Each arrival is aggregated at once, and the next client begins with the new model. Client updates that are under way
    when the run ends never arrive, though their models were sent.
    """
    watch = RoundWatch(fleet, meanwhile)
    after = _ArrivalRound(state, algorithm, watch).run()
    return replace(after, report=after.report and replace(after.report, seconds=watch.end()))


class _ArrivalRound:
    """A round in progress; the state that it began with stays unchanged.

    Args:
        state: the run before the round.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks, and takes the time.
    """

    def __init__(self, state: State, algorithm: Algorithm, fleet: RoundWatch) -> None:
        self._state, self._algorithm, self._fleet = state, algorithm, fleet
        self._schedule = _schedule(algorithm)
        self._model, self._memory = state.model, state.memory
        began = _progress(state, self._schedule)
        self._began, self._timeline, self._blocks = began, began.timeline, began.blocks
        self._versions, self._computed = dict(began.versions), dict(began.computed)
        if fleet.census.joins is not None:
            raise InputError(
                "algorithm.joins with an asynchronous algorithm: must be left out, because all clients take part from "
                "the first arrival on; remove it, or use a synchronous algorithm"
            )
        size = self._schedule.size(len(fleet.census.clients))
        self._dispatcher = Dispatcher(state.seed, fleet.census.clients, size, _seconds(state, algorithm, fleet))

    def run(self) -> State:
        """Let the client updates of a round arrive."""
        if not self._timeline.flights:
            self._depart()
        arrived = [self._arrival() for _ in range(self._dispatcher.cohort)]
        round_number = self._state.round + 1
        own = replace(
            self._began,
            round=round_number,
            timeline=self._timeline,
            versions=self._versions,
            computed=self._computed,
            blocks=self._blocks,
        )
        report = self._report(arrived)
        return replace(self._state, round=round_number, model=self._model, memory=self._memory, own=own, report=report)

    def _report(self, arrived: Sequence[Arrived]) -> RoundReport:
        """Report the arrivals; the bytes down are those of the clients that were sent."""
        state, before, after = self._state, self._began.timeline, self._timeline
        model = self._fleet.layouts.shared.nbytes
        measures = {}
        if self._fleet.census.devices is not None and self._schedule.delay.counts_seconds:
            measures["simulated_seconds"] = after.now - before.now
        up = len(arrived) * (model - self._algorithm.saved_bytes(self._fleet.layouts))
        down = (after.sent - before.sent) * model
        rows, blocks, facts = zip(*arrived, strict=True)
        machine = dict(zip(blocks, facts, strict=True))
        updates = UpdateRows.joined(rows)
        return RoundReport(updates, np.array(blocks), machine, True, up, down, state.phase, measures=measures)

    def _arrival(self) -> Arrived:
        """Let the next client update arrive and be aggregated; send the clients that begin with the new model."""
        flight = self._timeline.next
        if flight.number not in self._computed:
            self._compute()
        row, block, machine, model = self._computed.pop(flight.number)
        row = self._weighted(row, self._timeline.version - flight.base)
        weight = float(row.weights[0])
        if weight:
            # A stale counter must not count back.
            counters = np.maximum(self._model.integers, model.integers)
            arrived = Packed(model.floats, counters)
            layout = self._algorithm.local.trained(self._fleet.layouts.shared)
            rule, number = self._algorithm.server, self._state.round + 1
            self._model, self._memory = next_model(
                rule, self._model, arrived, weight, self._memory, layout, number, row
            )
        self._timeline = self._timeline.arrived()
        self._fleet.lap("aggregate")
        self._depart()
        return row, block, machine

    def _weighted(self, row: UpdateRows, staleness: int) -> UpdateRows:
        """Return the row with its staleness and its weight; the weight is 0 without a step."""
        row = replace(row, report={**row.report, "staleness": np.array([float(staleness)])})
        (report,) = row.reports()
        return replace(row, weights=np.array([self._algorithm.weighting(report) if report["steps"] else 0.0]))

    def _depart(self) -> None:
        """Send the clients that begin with the present version."""
        timeline = self._timeline = self._timeline.departed(self._schedule.delay, self._dispatcher)
        if any(flight.base == timeline.version for flight in timeline.flights):
            self._versions[timeline.version] = self._model
        self._fleet.lap("sample")

    def _compute(self) -> None:
        """Compute side by side all client updates that were sent: their versions are known."""
        waiting = [flight for flight in self._timeline.under_way if flight.number not in self._computed]
        start = self._fleet.put((None, self._state.initial))
        models = {version: self._fleet.put(model) for version, model in sorted(self._versions.items())}
        maps = []
        # A client update has the learning rate of the round that sent it. Only updates of one rate can be stacked.
        for round_number, flights in groupby(sorted(waiting, key=self._round_of), self._round_of):
            parts = self._cut(sorted(flights, key=lambda flight: (flight.client, flight.number)))
            blocks = [self._block(number, part, models) for number, part in enumerate(parts)]
            updates = client_updates(self._state, self._algorithm, self._fleet, aggregate=False)
            returned = ReturnedUpdates(replace(updates, weighting=Equal(), round_number=round_number))
            maps.append((parts, self._fleet.map(returned, blocks, [start])))
        for parts, outcomes in maps:
            self._computed |= _computed(parts, outcomes, self._blocks)
            self._blocks += len(parts)
        self._versions = {}

    def _round_of(self, flight: Flight) -> int:
        """Return the round in which a client was sent, starting at 1."""
        return self._began.first + flight.base // self._dispatcher.cohort + 1

    def _cut(self, flights: Sequence[Flight]) -> list[Sequence[Flight]]:
        sites = self._fleet.census.sites_of(np.array([flight.client for flight in flights]))
        return [flights[part] for part in cut(len(flights), self._fleet.block_size(self._dispatcher.cohort), sites)]

    def _block(self, number: int, flights: Sequence[Flight], models: Mapping[int, Any]) -> Block:
        clients = np.array([flight.client for flight in flights])
        inputs = tuple(ClientInput(None, 0.0, flight.number) for flight in flights)
        references = tuple(models[flight.base] for flight in flights)
        return replace(block_over(clients, self._fleet, number), inputs=inputs, references=references)


def _computed(
    parts: Sequence[Sequence[Flight]], outcomes: Iterable[Outcome], first: int
) -> Iterator[tuple[int, Computed]]:
    """Yield each client update of some blocks, with the number of its dispatch; `first` is the first block's number."""
    for outcome in outcomes:
        results = iter(outcome.value)
        for place, machine in zip(outcome.node.blocks, outcome.machine, strict=True):
            for flight, (row, model) in zip(parts[place], results, strict=False):
                yield flight.number, (row, first + place, machine, model)


def _schedule(algorithm: Algorithm) -> Arrivals:
    if not isinstance(algorithm.schedule, Arrivals):
        raise TypeError(f"{algorithm.schedule} is no schedule of arrivals: leave the algorithm's own round out")
    return algorithm.schedule


def _progress(state: State, schedule: Arrivals) -> AsyncProgress:
    """Return the progress so far; none in the first round of a phase."""
    own = state.own
    if isinstance(own, AsyncProgress) and (own.schedule, own.round) == (schedule, state.round):
        return own
    return AsyncProgress(schedule, state.round, state.round)


def _seconds(state: State, algorithm: Algorithm, fleet: Fleet) -> Callable[[int], float]:
    """Return the seconds of a client's update on its device; batches that batch norm may skip count."""
    devices, size = fleet.census.devices or DrawnDevices(), fleet.layouts.shared.nbytes
    local, up = algorithm.local.fitted(fleet.census), size - algorithm.saved_bytes(fleet.layouts)

    @cache
    def seconds(client: int) -> float:
        samples = int(fleet.census.of(np.array([client]))[0])
        used = sum(len(rows) for rows in local.passes(samples, np.random.default_rng(0)))
        return devices.seconds(state.seed, client, used, size, up)

    return seconds
