"""Synchronous rounds in virtual time: clients that are absent, deadlines, over-selection and late updates."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Fleet, joined
from algorithms.core.layout import Packed
from algorithms.core.report import RoundReport
from algorithms.core.rows import UpdateRows
from algorithms.core.state import Attending, State
from algorithms.core.sums import Sum
from algorithms.options.attendance import Attendance, Late, LateUpdate, attend
from algorithms.options.oort import Oort
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.option import Draft
from algorithms.rounds.round import blocks_of, client_updates, round_input
from algorithms.rounds.watched import watched_round, with_importance


@dataclass(frozen=True)
class LateGroup:
    """Late updates of one round, trained.

    Args:
        rows: their reports.
        models: sum of their models.
        machine: facts of the machine by block.
        sizes: clients in each block.
    """

    rows: UpdateRows
    models: Sum
    machine: Sequence[dict[str, float]]
    sizes: Sequence[int]


def timed_round(
    state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]
) -> State:
    """Run one synchronous round in virtual time; arguments as in `next_round`.

        A_t      available clients at the time of the selection; without any the clock moves on to the next one
        S_t  <-  those of ceil(over x m) clients, drawn from A_t, that report before the round ends
        then a round as ever: only they train

    Raises:
        InputError: no client is available at any later time.
    """
    devices = fleet.census.devices
    if devices is None:
        raise RuntimeError("a round in virtual time needs devices")
    state, _ = with_importance(state, algorithm, fleet)
    attended, started = attend(state, algorithm, fleet, devices), time.perf_counter()
    groups = _train_late(state, algorithm, fleet, attended.arrived)
    late_seconds = time.perf_counter() - started
    models = Sum.zero(fleet.layouts.shared)
    for group in groups:
        models = models.plus(group.models)
    before = replace(state, attending=Attending(attended.cohort, models))
    after = watched_round(before, algorithm, fleet, last=last, meanwhile=meanwhile)
    fresh, stale = after.report, algorithm.schedule.sample.reporting.late == "stale"
    if fresh is None:
        raise RuntimeError("the round left no report")
    report = _with_late(fresh, groups, late_seconds) if stale else fresh
    after = replace(after, now=attended.ends, attending=None, own=_kept(state, attended))
    by, utility = algorithm.schedule.sample.by, after.utility
    if isinstance(by, Oort):
        utility = by.moved(utility, fleet.census, fresh.updates, attended.seconds, after.round)
    return replace(after, utility=utility, report=_accounted(report, state, attended, algorithm, fleet))


def _train_late(state: State, algorithm: Algorithm, fleet: Fleet, arrived: Sequence[LateUpdate]) -> list[LateGroup]:
    """Train the late updates that arrive in this round as they would have been in theirs, round by round."""
    groups = []
    for round_number, updates in groupby(arrived, key=lambda each: each.round):
        then = replace(state, round=round_number - 1, model=state.own.models[round_number])
        clients = np.array([each.client for each in updates])
        function = client_updates(then, algorithm, fleet, aggregate=True)
        function = Draft(then, algorithm, fleet, clients).wrapped(function)
        blocks = blocks_of(state, fleet, clients, ())
        outcomes = list(fleet.map(function, blocks, [fleet.put(round_input(then, algorithm, fleet))]))
        result, _ = joined(function, blocks, iter(outcomes))
        for client, location in zip(result.rows.clients.tolist(), result.rows.personal, strict=True):
            if location is not None:
                state.personal.add(state.round + 1, client, location)
        stale = state.round + 1 - round_number
        models = _stale(result.models, stale, then.model, state.model, fleet.layouts.shared.parameters)
        rows = _stale_rows(result.rows, stale)
        machine = [facts for outcome in outcomes for facts in outcome.machine]
        groups.append(LateGroup(rows, models, machine, [len(block.clients) for block in blocks]))
    return groups


def _stale(models: Sum, stale: int, then: Packed, now: Packed, parameters: NDArray[np.bool_]) -> Sum:
    """Return a sum of models with the weight of stale ones; their change of parameters applies to the present model."""
    share = 1 / sqrt(1 + stale)
    moved = np.where(parameters, now.floats.astype(np.float64) - then.floats, 0.0)
    floats = share * (models.floats + models.total * moved)
    return Sum(floats, models.integers, models.floating, share * models.total)


def _stale_rows(rows: UpdateRows, stale: int) -> UpdateRows:
    staleness = np.full(len(rows), float(stale))
    return replace(rows, report={**rows.report, "staleness": staleness}, weights=rows.weights / sqrt(1 + stale))


def _kept(state: State, attended: Attendance) -> Late | None:
    """Return the late updates under way, with the models that they begin with; None without any."""
    if not attended.late:
        return None
    models = {**(state.own.models if isinstance(state.own, Late) else {}), state.round + 1: state.model}
    rounds = {each.round for each in attended.late}
    return Late(attended.late, {number: model for number, model in models.items() if number in rounds})


def _with_late(report: RoundReport, groups: Sequence[LateGroup], seconds: float) -> RoundReport:
    """Return the report with the late updates after those of the round, in blocks of their own."""
    fresh = _stale_rows(report.updates, 0)
    blocks, machine = [report.blocks], dict(report.machine)
    number = max(report.machine, default=-1) + 1
    for group in groups:
        blocks.append(np.repeat(np.arange(number, number + len(group.sizes)), group.sizes))
        machine |= dict(enumerate(group.machine, start=number))
        number += len(group.sizes)
    rows = UpdateRows.joined([fresh, *(group.rows for group in groups)])
    taken = {**report.seconds, "train": report.seconds["train"] + seconds}
    return replace(report, updates=rows, blocks=np.concatenate(blocks), machine=machine, seconds=taken)


def _accounted(
    report: RoundReport, state: State, attended: Attendance, algorithm: Algorithm, fleet: Fleet
) -> RoundReport:
    """Return the report with the round's virtual seconds, dropped updates, and the bytes of all that were selected."""
    model, arrived = algorithm.model_bytes(fleet.layouts), len(attended.arrived)
    sent = len(attended.dropped) + sum(each.round == state.round + 1 for each in attended.late)
    measures = {**report.measures, "simulated_seconds": attended.ends - state.now}
    return replace(
        report,
        bytes_down=report.bytes_down + sent * model,
        bytes_up=report.bytes_up + arrived * (model - algorithm.saved_bytes(fleet.layouts)),
        measures=measures,
        dropped=attended.dropped,
    )
