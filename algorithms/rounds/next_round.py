"""The next round of a run, phase after phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from algorithms.core.clients import Census
from algorithms.core.errors import InputError
from algorithms.core.fleet import Fleet
from algorithms.core.layout import Memory, Packed
from algorithms.core.report import NO_ROWS, RoundReport, UpdateRows
from algorithms.core.returned import Returned, name_of
from algorithms.core.state import State
from algorithms.options.virtual_time import DeviceSeconds, Joins, VirtualTime
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals
from algorithms.parts.option import Option
from algorithms.parts.rules import Rule
from algorithms.rounds.redistribution import start_redistributing, sum_models
from algorithms.rounds.round import PendingRound, aggregate, start_synchronous
from algorithms.rounds.timed import in_virtual_time
from algorithms.training.statistics import with_statistics

FIRED = "fired, waits for an aggregation"
"""Name in place of the memory of a rule that has fired; it is not asked again."""


def start_round(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
    """Start the next round of the current phase; its client updates are under way until it is finished.

    Args:
        state: the run so far.
        algorithm: all phases of the algorithm.
        fleet: fleet that runs the blocks.
        last: whether this is the run's last round, which always aggregates.
    """
    phase, census = algorithm.phase(state.phase), fleet.census
    if census.devices is not None or census.joins is not None:
        phase = _in_federation(phase, census)
    start = phase.own_round or (start_redistributing if phase.every > 1 else start_synchronous)
    pending = start(state, phase, fleet, last=last)
    if not isinstance(pending, PendingRound):
        raise _wrong_round(start, "a PendingRound", pending)

    def finish() -> State:
        after = pending.finish()
        if not isinstance(after, State) or after.report is None or after.round != state.round + 1:
            must = f"a PendingRound that finishes with a State after round {state.round + 1} and its report"
            raise _wrong_round(start, must, after)
        return after if phase.until is None else _switched(after, _of_the_round(after.report, phase), phase.until)

    return PendingRound(finish)


def next_round(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> State:
    """Run the next round of the current phase; see `start_round`.

    Returns:
        The state after the round, with its report.
    """
    return start_round(state, algorithm, fleet, last=last).finish()


def _wrong_round(start: object, must: str, value: object) -> InputError:
    """Return the error of an `own_round` that returns another thing than it must."""
    what = f"a {type(value).__name__}"
    if isinstance(value, State):
        what += " without a report" if value.report is None else f" after round {value.round}"
    return InputError(
        f"own_round = {name_of(start)}: must return {must}, and returns {what}; return PendingRound(f), whose f "
        "returns replace(state, round=state.round + 1, report=...)"
    )


def _in_federation(algorithm: Algorithm, census: Census) -> Algorithm:
    """Return a phase with the options that its clients bring: virtual time, and joining later."""
    if isinstance(algorithm.schedule, Arrivals) or not algorithm.schedule.sends:
        return algorithm  # arrivals have a virtual time of their own, and united data need none
    options: list[Option] = [] if census.joins is None else [Joins()]
    if census.devices is not None:
        options.append(VirtualTime(census.devices) if in_virtual_time(algorithm, census.devices) else DeviceSeconds())
    return algorithm.folding(*options)


def _of_the_round(report: RoundReport, phase: Algorithm) -> UpdateRows:
    """Return the rows without those of late updates, which began with an older model."""
    rows = report.updates
    if isinstance(phase.schedule, Arrivals):
        return rows
    return rows.ordered(np.flatnonzero(~(rows.column("staleness") > 0)))


def _switched(state: State, rows: UpdateRows, until: Rule) -> State:
    """Begin the next phase, with the server's memory, if its rule has fired and no models wait for an aggregation."""
    fired, memory = (True, {}) if FIRED in state.of("until") else _fires(state, rows, until)
    waiting = state.between_aggregations or state.of("arrivals").get("buffer") is not None
    if fired and not waiting:
        return replace(state, phase=state.phase + 1).keeping("until", {})
    return state.keeping("until", {FIRED: np.ones(1)} if fired else memory)


def _fires(state: State, rows: UpdateRows, until: Rule) -> tuple[bool, Memory]:
    """Return whether a rule fires after the round, and its new memory."""
    pairs = zip(rows.clients.tolist(), rows.reports(), rows.trained, strict=True)
    reports = {client: report for client, report, trained in pairs if trained}
    found: Any = until(state.round, state.rounds, reports, state.of("until"))
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
        fault = f"return whether it fires, and its memory by name, and returns {found!r:.80}"
        raise Returned(f"until = {name_of(until)!r}", until).fault(fault)
    return bool(found[0]), found[1]


def current_model(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """Return the shared entries of the global model as it would be evaluated, and written, now.

    They are those of `aggregated_model`. If client updates track no batch-norm statistics, these come from a pass over
    the training clients' data (see `algorithms.staticbn`), except for the initial model.
    """
    model = aggregated_model(state, algorithm, fleet)
    if algorithm.phase(state.phase).local.statistics != "untracked" or not state.round:
        return model
    return with_statistics(model, state.average, fleet, state.round)


def aggregated_model(state: State, algorithm: Algorithm, fleet: Fleet) -> Packed:
    """Return the shared entries that an aggregation would give now; the workers sum travelling models."""
    if not state.travelling_models:
        return state.model
    updates = NO_ROWS if state.report is None else state.report.updates
    return aggregate(state, algorithm.phase(state.phase), fleet, sum_models(state.travelling_models, fleet), updates)[0]
