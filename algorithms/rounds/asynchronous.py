"""The round of asynchronous algorithms: a number of arrivals, each of which is aggregated at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import isfinite
from typing import Any

import numpy as np

from algorithms.core.errors import InputError
from algorithms.core.fleet import Block, Fleet, Function, Outcome, Output, block_over, cut
from algorithms.core.layout import Packed
from algorithms.core.report import NO_ROWS, DroppedUpdates, RoundReport, UpdateRows
from algorithms.core.state import State
from algorithms.core.sums import Sum
from algorithms.options.attendance import durations
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals, Dispatcher, EventQueue, Flight, Timeline
from algorithms.parts.client_update import ClientInput, diverged
from algorithms.parts.cohort import client_updates
from algorithms.parts.option import Draft
from algorithms.parts.server import fitted_rule, next_model
from algorithms.parts.weighting import Equal, weight_of
from algorithms.rounds.round import PendingRound
from algorithms.training.worker import Worker

Computed = tuple[UpdateRows, int, Mapping[str, float], Packed]
"""A client update that has not arrived yet: its row, the number and the machine facts of its block, its model."""


Arrived = tuple[UpdateRows, int, Mapping[str, float]]
"""A client update that has arrived: its row, and the number and the machine facts of its block."""

VANISHED = 10_000
"""Clients that may vanish in a row before a run is refused, and at least ten times all clients."""


@dataclass
class AsyncProgress:
    """An asynchronous algorithm from round to round: its memory "arrivals" has these values by name.

    Args:
        schedule: description of the phase's schedule; in a later phase with another one no client is under way at
            first.
        first: rounds done when the phase began.
        round: rounds done so far.
        timeline: virtual events, and the clients under way.
        versions: models that client updates begin with, by number of aggregations. They are kept until all such updates
            are computed, or have arrived if changes count.
        computed: client updates that have not arrived, by the number of their dispatch.
        blocks: blocks run so far.
        buffer: sum of the arrivals since the last aggregation; None for none.
        before: rounds or dispatches of earlier phases, whose numbers have keyed their draws.
    """

    schedule: str
    first: int
    round: int
    timeline: Timeline = Timeline()
    versions: dict[int, Packed] = field(default_factory=dict)
    computed: dict[int, Computed] = field(default_factory=dict)
    blocks: int = 0
    buffer: Sum | None = None
    before: int = 0


@dataclass(frozen=True)
class ReturnedUpdates(Function):
    """Client updates that each begin with a model of their own: the driver receives a row and a model of each.

    Args:
        updates: settings of the client updates.
    """

    updates: Function

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        output = self.updates(worker, block, *values)
        rows = output.value.rows
        return Output(tuple((rows[i : i + 1], model) for i, model in enumerate(output.objects)))


def start_arrivals(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
    """Start one round: as many arrivals as a cohort has clients; see `start_round`.

    An aggregation follows every B-th arrival, and the next client begins with the new model. The last round aggregates
    the rest of a buffer. Client updates that are under way when the run ends never arrive, though models were sent; nor
    do those of a phase that another schedule follows.
    """
    arrivals = _ArrivalRound(state, algorithm, fleet)
    return PendingRound(lambda: arrivals.finish(last))


class _ArrivalRound:
    """A round in progress; the state that it began with stays unchanged.

    Args:
        state: the run before the round.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
    """

    def __init__(self, state: State, algorithm: Algorithm, fleet: Fleet) -> None:
        self._state, self._algorithm, self._fleet = state, algorithm, fleet
        self._schedule, census = _schedule(algorithm), fleet.census
        self._draft = replace(Draft.of(state, algorithm, fleet), models_travel=True, cohort=census.clients)
        self._laps = self._draft.laps
        self._layout = algorithm.local.trained(fleet.layouts.shared)
        self._rule = fitted_rule(algorithm.server, census)
        self._parameters = fleet.layouts.shared.parameters
        self._model, self._memory = state.model, state.of("server")
        began = self._began = _progress(state, self._schedule)
        buffer, versions, computed = began.buffer and began.buffer.copy(), dict(began.versions), dict(began.computed)
        self._progress = replace(began, buffer=buffer, versions=versions, computed=computed)
        if census.joins is not None:
            raise InputError(
                "algorithm.joins with an asynchronous algorithm: must be left out, because all clients take part from "
                "the first arrival on; remove it, or use a synchronous algorithm"
            )
        self._cohort = self._schedule.size(len(census.clients))
        self._size = self._schedule.buffer or self._cohort
        self._work = durations(state, algorithm, fleet)
        devices = census.devices if census.devices is not None and census.devices.absent else None
        work = self._work
        dispatcher = Dispatcher(
            state.seed, census.clients, self._cohort, lambda client: work(client)[1], devices, began.before
        )
        self._events = EventQueue(began.timeline, self._schedule.delay, dispatcher)
        self._lost: list[Flight] = []
        self._aggregated = False
        self._under_way: list[tuple[Sequence[Sequence[Flight]], Iterator[Outcome]]] = []
        if not len(self._events):
            self._depart()
        if self._must_compute(self._events.coming):
            self._send()

    def finish(self, last: bool) -> State:
        """Let the client updates of a round arrive; `last` aggregates the rest of the buffer."""
        self._laps.lap("meanwhile")
        arrived = [self._arrival() for _ in range(self._cohort)]
        if last:
            self._aggregate()
        timeline = self._progress.timeline = self._events.timeline
        number = self._progress.round = self._state.round + 1
        state = replace(self._state, round=number, model=self._model, report=self._report(arrived, timeline))
        if self._schedule.delay.counts_seconds:
            state = state.keeping("virtual-time", {"now": timeline.now})
        return state.keeping("server", self._memory).keeping("arrivals", vars(self._progress))

    def _report(self, arrived: Sequence[Arrived], after: Timeline) -> RoundReport:
        """Report the arrivals; the bytes down are those of the clients that were sent."""
        before, devices = self._began.timeline, self._fleet.census.devices
        model = self._algorithm.model_bytes(self._fleet.layouts)
        measures, dropped = {}, None
        if devices is not None and self._schedule.delay.counts_seconds:
            measures["simulated_seconds"] = after.now - before.now
            if devices.absent:
                dropped = self._dropped()
        up = len(arrived) * (model - self._algorithm.saved_bytes(self._fleet.layouts))
        down = (after.sent - before.sent) * model
        rows, blocks, facts = zip(*arrived, strict=True)
        machine = dict(zip(blocks, facts, strict=True))
        updates, phase = UpdateRows.joined(rows), self._state.phase
        aggregated, numbers, seconds = self._aggregated, np.array(blocks), self._laps.seconds
        return RoundReport(
            *(updates, numbers, machine, aggregated, up, down, phase),
            measures=measures,
            seconds=seconds,
            dropped=dropped,
        )

    def _dropped(self) -> DroppedUpdates:
        shares = [(flight.due - flight.sent) / flight.seconds for flight in self._lost]
        samples = [share * self._work(each.client)[0] for share, each in zip(shares, self._lost, strict=True)]
        clients, seconds = [each.client for each in self._lost], [each.due - each.sent for each in self._lost]
        return DroppedUpdates.of(clients, ["vanished"] * len(clients), samples, seconds)

    def _arrival(self) -> Arrived:
        """Let the next client update arrive and be counted; send the clients that begin with the new model."""
        flight = self._next()
        row, block, machine, model = self._progress.computed.pop(flight.number)
        size = self._size
        # The arrival itself does not count as a version that it has missed.
        row = self._weighted(row, (self._events.version - 1) // size - flight.base // size)
        if self._progress.buffer is None:
            self._progress.buffer = Sum.zero(self._fleet.layouts.shared)
        self._progress.buffer.add(self._counted(model, flight.base // size), float(row.weights[0]))
        if self._events.version % size == 0:
            self._aggregate(row)
        self._laps.lap("aggregate")
        self._depart()
        return row, block, machine

    def _next(self) -> Flight:
        """Return the next client update that arrives; clients that vanish before make room for others.

        Raises:
            InputError: too many clients vanish in a row.
        """
        most = max(VANISHED, 10 * len(self._fleet.census.clients))
        for _ in range(most):
            coming = self._events.coming
            if self._must_compute(coming):
                self._send()
                self._collect()
            flight = self._events.next()
            if not flight.lost:
                return flight
            self._lost.append(flight)
            self._depart()
        longest = max(each.seconds for each in self._lost[-most:])
        raise InputError(
            f"[devices]: no update has arrived, of {most} that were sent by {self._events.now:g} virtual seconds: "
            f"must have devices that are available for as long as an update lasts, here up to {longest:g} seconds; "
            "raise devices.compute, or make the updates shorter"
        )

    def _counted(self, model: Packed, version: int) -> Packed:
        """Return the model that an update counts as: its own, or the present one with its change."""
        if self._schedule.counts == "model":
            return model
        floats, base = model.floats.astype(np.float64), self._progress.versions[version]
        floats += np.where(self._parameters, self._model.floats.astype(np.float64) - base.floats, 0.0)
        return Packed(floats, model.integers)

    def _aggregate(self, row: UpdateRows = NO_ROWS) -> None:
        """Take the server's step with the buffer; its weight is the mean of its updates' weights."""
        total, self._progress.buffer = self._progress.buffer, None
        mean = None if total is None else total.mean()
        if total is None or mean is None:
            return
        # A stale counter must not count back.
        mean = Packed(mean.floats, np.maximum(self._model.integers, mean.integers))
        given = self._model, mean, total.total / self._size, self._memory, self._layout
        self._model, self._memory = next_model(self._rule, given, self._state.round + 1, row)
        self._aggregated = True

    def _weighted(self, row: UpdateRows, staleness: int) -> UpdateRows:
        """Return the row with its staleness and its weight; the weight is 0 without a step, or if it is not finite."""
        row = replace(row, report={**row.report, "staleness": np.array([float(staleness)])})
        (report,), (client,) = row.reports(), row.clients.tolist()
        weight = weight_of(self._algorithm.weighting, report, client) if report["steps"] else 0.0
        if not isfinite(weight):
            if self._algorithm.local.nonfinite == "stop":
                raise diverged(client, self._state.round + 1, "the weight")
            row = replace(row, report={**row.report, "steps": np.zeros(1)}, nonfinite=("the weight",))
            weight = 0.0
        return replace(row, weights=np.array([weight]))

    def _depart(self) -> None:
        """Send the clients that begin with the present version."""
        self._events.depart()
        size, version = self._size, self._events.version // self._size
        if self._events.version in self._events.bases:
            self._progress.versions.setdefault(version, self._model)
        if self._schedule.counts == "change" and self._events.version % size == 0:
            wanted = {base // size for base in self._events.bases}
            self._progress.versions = {
                number: model for number, model in self._progress.versions.items() if number in wanted
            }
        self._laps.lap("sample")

    def _must_compute(self, coming: Flight) -> bool:
        return coming.number not in self._progress.computed and not coming.lost

    def _send(self) -> None:
        """Compute side by side all client updates that were sent and will arrive: their versions are known."""
        if self._under_way:
            return
        waiting = [flight for flight in self._events.under_way if flight.number not in self._progress.computed]
        start = self._draft.start
        wanted = sorted({flight.base // self._size for flight in waiting})
        models = {version: self._fleet.put(self._progress.versions[version]) for version in wanted}
        # A client update has the learning rate of the round that sent it. Only updates of one rate can be stacked.
        for round_number, flights in groupby(sorted(waiting, key=self._round_of), self._round_of):
            parts = self._cut(sorted(flights, key=lambda flight: (flight.client, flight.number)))
            blocks = [self._block(number, part, models) for number, part in enumerate(parts)]
            updates = replace(
                client_updates(self._draft), aggregate=False, weighting=Equal(), round_number=round_number
            )
            returned = ReturnedUpdates(self._draft.wrapped(updates, sent_alone=True))
            self._under_way.append((parts, self._fleet.map(returned, blocks, [start])))
        self._laps.lap("send")

    def _collect(self) -> None:
        """Wait for the client updates that are being computed."""
        for parts, outcomes in self._under_way:
            self._progress.computed |= _computed(parts, outcomes, self._progress.blocks)
            self._progress.blocks += len(parts)
        self._under_way = []
        if self._schedule.counts == "model":
            self._progress.versions = {}
        self._laps.lap("train")

    def _round_of(self, flight: Flight) -> int:
        """Return the round in which a client was sent, starting at 1."""
        return self._began.first + flight.base // self._cohort + 1

    def _cut(self, flights: Sequence[Flight]) -> list[Sequence[Flight]]:
        sites = self._fleet.census.sites_of(np.array([flight.client for flight in flights]))
        return [flights[part] for part in cut(len(flights), self._fleet.block_size(self._cohort), sites)]

    def _block(self, number: int, flights: Sequence[Flight], models: Mapping[int, Any]) -> Block:
        clients = np.array([flight.client for flight in flights])
        inputs = tuple(ClientInput(None, 0.0, self._began.before + flight.number) for flight in flights)
        references = tuple(models[flight.base // self._size] for flight in flights)
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
    """Return the progress so far; none in the first round of a phase, which begins at the present time."""
    memory, before = state.of("arrivals"), state.round
    if memory:
        last = AsyncProgress(**memory)
        if (last.schedule, last.round) == (repr(schedule), state.round):
            return last
        before = state.dispatches + (state.round if last.round < state.round else 0)
    return AsyncProgress(repr(schedule), state.round, state.round, Timeline(now=state.now), before=before)
