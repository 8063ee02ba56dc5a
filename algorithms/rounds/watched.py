"""Synchronous rounds as a run sees them: watched, reported and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Fleet, Function
from algorithms.core.layouts import Layouts
from algorithms.core.report import RoundReport
from algorithms.core.state import State
from algorithms.options.choice import PowerOfChoice
from algorithms.options.downlink import Downlink, bytes_down
from algorithms.options.importance import Importance
from algorithms.options.measures import batch_statistics
from algorithms.parts.algorithm import Algorithm
from algorithms.rounds.round import client_updates, draw_candidates, round_input, run_round
from algorithms.rounds.watch import RoundWatch

SCORE_BYTES = 8
"""Bytes of a client's score on its way to the server."""


def watched_round(
    state: State,
    algorithm: Algorithm,
    fleet: Fleet,
    *,
    last: bool,
    meanwhile: Callable[[], None],
    wrap: Callable[[Function], Function] | None = None,
) -> State:
    """Run `run_round` under watch: report it, and take its measures.

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        last: whether this is the run's last round.
        meanwhile: the driver's other work.
        wrap: makes the function that runs in place of client updates; None leaves them unchanged.
    """
    watch = RoundWatch(fleet, meanwhile, wrap, compares="dl" in state.measures)
    before, scored = with_importance(state, algorithm, fleet)
    after = run_round(before, algorithm, watch, last=last)
    report = _report(before, algorithm, watch, last or algorithm.rounds.aggregates(after.round))
    if len(scored):
        report = _with_scoring(report, before, algorithm, fleet, scored)
    return measured(before, replace(after, report=report), algorithm, watch)


def measured(before: State, after: State, algorithm: Algorithm, watch: RoundWatch) -> State:
    """End the watch of a round: take the measures of its report, and move the clients' importance.

    Args:
        before: the run before the round.
        after: the run after it, with its report.
        algorithm: parts of the current phase.
        watch: watch of the round.
    """
    if after.report is None:
        raise RuntimeError("the round left no report")
    measures, memory = dict(after.report.measures), after.measure_memory
    if watch.directions is not None:
        measures |= watch.directions.divergence
    if "bn" in after.measures:
        layout = watch.layouts.shared
        found, memory = batch_statistics(watch.rows, before.model, after.model, layout, memory)
        measures |= found
    by, importance = algorithm.schedule.sample.by, after.importance
    if isinstance(by, Importance) and importance is not None:
        importance = by.moved(importance, watch.census, watch.rows)
    report = replace(after.report, measures=measures, seconds=watch.end())
    return replace(after, measure_memory=memory, importance=importance, report=report)


def with_importance(state: State, algorithm: Algorithm, fleet: Fleet) -> tuple[State, NDArray[np.int64]]:
    """Return the state with the clients' importance, if they are drawn by it; and the clients scored to draw them."""
    sample, census = algorithm.schedule.sample, fleet.census
    by, nobody = sample.by, census.clients[:0]
    if isinstance(by, PowerOfChoice):
        return state, draw_candidates(state, sample, by, census)
    if not isinstance(by, Importance) or state.importance is not None:
        return state, nobody
    updates = client_updates(state, algorithm, fleet, aggregate=True)
    start = fleet.put(round_input(state, algorithm, fleet))
    scored = census.clients if by.start == "score" else nobody
    return replace(state, importance=by.initial(updates, fleet, start)), scored


def _report(state: State, algorithm: Algorithm, watch: RoundWatch, aggregated: bool) -> RoundReport:
    """Report a synchronous round, and count the protocol's bytes: a model down and a message up a client."""
    average = _average_bytes(algorithm, watch.layouts)
    inputs = [each for block in watch.blocks for each in block.inputs]
    saved = algorithm.saved_bytes(watch.layouts)
    whole = algorithm.model_bytes(watch.layouts)
    up = [whole + average - saved] * len(inputs)
    clients = np.array([client for block in watch.blocks for client in block.clients], np.int64)
    compressed = algorithm.option(Downlink) is not None
    received = bytes_down(state, algorithm, watch, clients).tolist() if compressed else [whole] * len(inputs)
    down = [own + (average if each.personal is None else 0) for own, each in zip(received, inputs, strict=True)]
    if isinstance(algorithm.schedule.sample.by, PowerOfChoice):
        down = [0] * len(inputs)  # they received the model as candidates
    measures = _simulated(state, algorithm, watch, down, up)
    return RoundReport(*watch.updates, aggregated, sum(up), sum(down), state.phase, measures=measures)


def _average_bytes(algorithm: Algorithm, layouts: Layouts) -> int:
    """Return the bytes of the average personal entries, if newcomers start from them."""
    return layouts.personal.nbytes if algorithm.sharing.newcomer == "average" else 0


def _simulated(
    state: State, algorithm: Algorithm, watch: RoundWatch, down: Sequence[int], up: Sequence[int]
) -> dict[str, float]:
    """Return the virtual seconds of a synchronous round, if devices are simulated."""
    rows, devices = watch.rows, watch.census.devices
    if devices is None:
        return {}
    passed = algorithm.local.models * rows.column("used")
    updates = list(zip(rows.clients.tolist(), passed.tolist(), down, up, strict=True))
    return {"simulated_seconds": devices.round(state.seed, updates)}


def _with_scoring(
    report: RoundReport, state: State, algorithm: Algorithm, fleet: Fleet, clients: NDArray[np.int64]
) -> RoundReport:
    """Add the cost of scoring some clients: each received the model, passed its samples, and sent a number."""
    model, average = algorithm.model_bytes(fleet.layouts), _average_bytes(algorithm, fleet.layouts)
    new = [state.personal.latest(client, state.round) is None for client in clients.tolist()]
    down, measures = [model + average * each for each in new], dict(report.measures)
    if (devices := fleet.census.devices) is not None:
        passes = zip(clients.tolist(), fleet.census.of(clients).tolist(), down, repeat(SCORE_BYTES), strict=False)
        measures["simulated_seconds"] += devices.round(state.seed, passes)
    return replace(
        report,
        bytes_up=report.bytes_up + SCORE_BYTES * len(clients),
        bytes_down=report.bytes_down + sum(down),
        exchanges=report.exchanges + 1,
        measures=measures,
    )
