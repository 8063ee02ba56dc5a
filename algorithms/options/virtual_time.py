"""The option `virtual-time`: absent clients, deadlines, over-selection and late updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.devices import Devices
from algorithms.core.fleet import Fleet
from algorithms.core.layout import Packed
from algorithms.core.report import RoundReport, UpdateRows
from algorithms.core.state import State
from algorithms.core.sums import Sum
from algorithms.options.attendance import Attendance, LateUpdate, attend
from algorithms.parts.cohort import Training, blocks_of, client_updates
from algorithms.parts.option import Draft, Option
from algorithms.parts.received import Received
from algorithms.parts.seconds import update_seconds


@dataclass(frozen=True)
class DeviceSeconds(Option):
    """Virtual seconds of a round: those of its slowest client update. See `Devices.seconds`."""

    name: ClassVar[str] = "devices"

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        return state.measuring({"simulated_seconds": float(update_seconds(draft, received).max(initial=0.0))})


@dataclass(frozen=True)
class Joins(Option):
    """Cohorts of the clients that have joined; `fraction` is a share of these. See `Census.joins`."""

    name: ClassVar[str] = "joins"

    def attend(self, draft: Draft) -> Draft:
        census, participation = draft.fleet.census, draft.algorithm.schedule.participation
        if census.joins is None:
            return draft
        joined = census.joins <= draft.number
        size = draft.size if participation.fraction is None else min(draft.size, participation.share(int(joined.sum())))
        return replace(draft, clients=draft.clients[joined], weights=draft.weights[joined], size=size)


@dataclass(frozen=True)
class VirtualTime(Option):
    """Rounds in virtual time, in which the devices decide who takes part.

        A_t      available clients at the time of the selection; without any the time moves on to the next one
        S_t  <-  those of ceil(over x m) clients, drawn from A_t, that report before the round ends

    Only the cohort S_t trains. Its memory has the time `now`, the `late` updates under way (client, round, time of
    arrival), none of them computed yet, and the `models` that these begin with, by the round of their dispatch.

    Args:
        devices: devices of the clients.

    Raises:
        InputError: in a round in which no client is available at any later time.
    """

    devices: Devices

    name: ClassVar[str] = "virtual-time"

    def attend(self, draft: Draft) -> Draft:
        late = draft.state.of(self.name).get("late", ()) if counts_late(draft) else ()
        attended = attend(draft, self.devices, [LateUpdate(*each) for each in late])
        return replace(draft, cohort=attended.cohort, notes=attended.notes).noting(self.name, attended)

    def reduce(self, draft: Draft, received: Received) -> Received:
        """Add the late updates that arrive; their rows are the report's alone, because no rule reads them."""
        groups, models = list(_train_late(draft, draft.notes[self.name].arrived)), received.models
        draft.laps.lap("train")
        if models is not None and groups:
            models = models.plus(reduce(Sum.plus, (group.models for group in groups if group.models is not None)))
        return replace(received, models=models, beside={**received.beside, self.name: groups})

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        attended, before = draft.notes[self.name], draft.state.of(self.name)
        models = {**before.get("models", {}), draft.number: draft.state.model}
        rounds = {each.round for each in attended.late}
        memory: dict[str, Any] = {"now": attended.ends}
        if attended.late:
            memory["late"] = tuple(tuple(each) for each in attended.late)
            memory["models"] = {number: model for number, model in models.items() if number in rounds}
        report = state.report
        if report is None:
            return state
        if counts_late(draft):
            report = _with_late(report, received.beside[self.name])
        return replace(state, report=_accounted(report, draft, attended)).keeping(self.name, memory)


def counts_late(draft: Draft) -> bool:
    """Return whether late updates count in this phase; those of an earlier phase are lost if not."""
    return draft.algorithm.schedule.participation.reporting.late == "stale"


def _train_late(draft: Draft, arrived: Sequence[LateUpdate]) -> Iterator[Received]:
    """Train the late updates that arrive in this round as they would have been in theirs, round by round.

    An update that is s rounds late has 1 / sqrt(1 + s) of its weight, and its change applies to the present model. If
    another phase has begun since, it trains by that one's parts; see `counts_late`.
    """
    models: Mapping[int, Packed] = draft.state.of(VirtualTime.name).get("models", {})
    for number, group in groupby(arrived, key=lambda each: each.round):
        clients = np.array([each.client for each in group])
        then = replace(draft.state, round=number - 1, model=models[number])
        sent = replace(Draft.of(then, draft.algorithm, draft.fleet), cohort=clients)
        updates = sent.wrapped(client_updates(sent), sent_alone=True)
        received = Training(sent, updates, blocks_of(sent, clients)).received(draft.number)
        stale = draft.number - number
        moved = _moved(received.models, stale, then.model, draft.state.model, draft.fleet)
        yield replace(received, rows=_stale(received.rows, stale), models=moved)


def _moved(models: Sum | None, stale: int, then: Packed, now: Packed, fleet: Fleet) -> Sum | None:
    """Return a sum of models with the weight of stale ones; their change of parameters applies to the present model."""
    if models is None:
        return None
    share, parameters = 1 / sqrt(1 + stale), fleet.layouts.shared.parameters
    moved = np.where(parameters, now.floats.astype(np.float64) - then.floats, 0.0)
    floats = share * (models.floats + models.total * moved)
    return Sum(floats, models.integers, models.floating, share * models.total)


def _stale(rows: UpdateRows, stale: int) -> UpdateRows:
    staleness: NDArray[np.float64] = np.full(len(rows), float(stale))
    return replace(rows, report={**rows.report, "staleness": staleness}, weights=rows.weights / sqrt(1 + stale))


def _with_late(report: RoundReport, groups: Sequence[Received]) -> RoundReport:
    """Return the report with the late updates after those of the round, in blocks of their own."""
    blocks, machine = [report.blocks], dict(report.machine)
    for group in groups:
        first = len(machine)
        blocks.append(group.blocks + first)
        machine |= {first + number: facts for number, facts in group.machine.items()}
    rows = UpdateRows.joined([_stale(report.updates, 0), *(group.rows for group in groups)])
    return replace(report, updates=rows, blocks=np.concatenate(blocks), machine=machine)


def _accounted(report: RoundReport, draft: Draft, attended: Attendance) -> RoundReport:
    """Return the report with the round's virtual seconds, dropped updates, and the bytes of all that were selected."""
    algorithm, layouts = draft.algorithm, draft.fleet.layouts
    model, arrived = algorithm.model_bytes(layouts), len(attended.arrived)
    sent = len(attended.dropped) + sum(each.round == draft.number for each in attended.late)
    report = report.adding(arrived * (model - algorithm.saved_bytes(layouts)), sent * model)
    report = report.measuring({"simulated_seconds": attended.ends - draft.state.now})
    return replace(report, dropped=attended.dropped)
