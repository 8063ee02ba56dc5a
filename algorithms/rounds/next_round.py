"""The next round of a run, phase after phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from algorithms.core.fleet import Fleet
from algorithms.core.state import State
from algorithms.parts.algorithm import Algorithm
from algorithms.rounds.clock import on_clock
from algorithms.rounds.timed import timed_round
from algorithms.rounds.watched import watched_round


def next_round(
    state: State,
    algorithm: Algorithm,
    fleet: Fleet,
    *,
    last: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> State:
    """Run the next round of the current phase, and begin the next phase if the rule of this one has fired.

    Args:
        state: the run so far.
        algorithm: all phases of the algorithm.
        fleet: fleet that runs the blocks.
        last: whether this is the run's last round, which always aggregates.
        meanwhile: the driver's other work, done while the client updates run.

    Returns:
        The state after the round, with its report.
    """
    phase = algorithm.phase(state.phase)
    usual = timed_round if on_clock(phase, fleet.census.devices) else watched_round
    state = (phase.own_round or usual)(state, phase, fleet, last=last, meanwhile=meanwhile)
    return _switched(state, phase)


def _switched(state: State, algorithm: Algorithm) -> State:
    """Begin the next phase, with the server's memory, if its rule has fired and the round ended in an aggregation."""
    if algorithm.until is None or state.report is None:
        return state
    rows = state.report.updates
    pairs = zip(rows.clients.tolist(), rows.reports(), rows.trained, strict=True)
    reports = {client: report for client, report, trained in pairs if trained}
    ended, memory = algorithm.until(state.round, state.rounds, reports, state.rule_memory)
    if ended and not state.travelling_models:
        return replace(state, phase=state.phase + 1, rule_memory={})
    return replace(state, rule_memory=memory)
