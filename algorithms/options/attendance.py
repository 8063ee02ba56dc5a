"""Attendance of a synchronous round in virtual time: who is selected, who reports in time, and when the round ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, nextafter
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algorithms.core.devices import Devices, DrawnDevices
from algorithms.core.errors import InputError
from algorithms.core.fleet import Fleet
from algorithms.core.keys import Purpose, generator
from algorithms.core.report import DroppedUpdates
from algorithms.core.state import State
from algorithms.options.oort import Oort
from algorithms.options.own_selection import OwnSelection
from algorithms.parts.arrivals import nobody
from algorithms.parts.option import Draft, Parts
from algorithms.parts.schedule import Reporting

Cost = tuple[float, float]
"""Cost of a client update: samples that pass through training, repeats included, and virtual seconds."""


def durations(state: State, algorithm: Parts, fleet: Fleet) -> Callable[[int], Cost]:
    """Return the cost of a client's update on its device by its id.

    Batches that batch norm may skip count, the shorter last update of a pass of `local.batches` as a whole one, and the
    average that `newcomer` may send not at all.
    """
    devices, size = fleet.census.devices or DrawnDevices(), algorithm.model_bytes(fleet.layouts)
    local, up = algorithm.local.fitted(fleet.census), size - algorithm.saved_bytes(fleet.layouts)

    @cache
    def passed(samples: int) -> int:
        return sum(len(rows) for rows in local.plan(samples, 1, 0, lambda _: np.random.default_rng(0)))

    def cost(client: int) -> Cost:
        used = passed(int(fleet.census.of(np.array([client]))[0]))
        return used, devices.seconds(state.seed, client, local.method.models * used, size, up)

    return cost


class LateUpdate(NamedTuple):
    """Client update that arrives after the end of its round.

    Args:
        client: id of the client.
        round: round of its dispatch, starting at 1.
        due: virtual time of its arrival.
    """

    client: int
    round: int
    due: float


@dataclass(frozen=True)
class Attendance:
    """A round in virtual time, before any training.

    Args:
        cohort: clients that report in time, in id order.
        begins: time at which the clients are selected.
        ends: time at which the round ends.
        seconds: seconds of each client update of the cohort, float64 [m].
        dropped: client updates that never count.
        arrived: late updates of earlier rounds that arrive in this one, in the order of their rounds and clients.
        late: late updates that are still under way after the round.
        notes: notes of the options, also of the one that selected the clients.
    """

    cohort: NDArray[np.int64]
    begins: float
    ends: float
    seconds: NDArray[np.float64]
    dropped: DroppedUpdates
    arrived: tuple[LateUpdate, ...] = ()
    late: tuple[LateUpdate, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def attend(draft: Draft, devices: Devices, under_way: Sequence[LateUpdate]) -> Attendance:
    """Select clients that are available, and find out which of them report before the round ends.

    The durations follow from sizes and devices, so nobody has to train for it.

    Args:
        draft: the round.
        devices: devices of the clients.
        under_way: late updates of earlier rounds.

    Raises:
        InputError: no client is available at any later time.
    """
    state, participation, size = draft.state, draft.algorithm.schedule.participation, draft.size
    reporting, models = participation.reporting, len(state.travelling_models)
    work = durations(state, draft.algorithm, draft.fleet)
    begins, available = _wait(draft, devices, under_way)
    free = replace(draft, clients=draft.clients[available], weights=draft.weights[available])
    free = _selected(free, lambda client: work(client)[1])
    selected = free.drawn
    as_drawn = participation.by == "poisson" or isinstance(participation.by, OwnSelection)
    size = max(1, len(selected)) if as_drawn else min(size, models or size)
    dues = np.array([begins + work(client)[1] for client in selected.tolist()])
    until = np.array([devices.until(client, begins) for client in selected.tolist()])
    ends = _end(begins, dues, until, size, reporting)
    # Equal devices report at the same time; by their ids, the last ones would never be in time.
    lots = generator(state.seed, Purpose.TIES, draft.number).permutation(len(selected))
    order = np.lexsort((lots, dues))
    reports = order[(dues[order] <= until[order]) & (dues[order] <= ends)][:size]
    in_time = np.zeros(len(selected), bool)
    in_time[reports] = True
    later = ~in_time & (dues <= until) & (reporting.late == "stale")
    dropped = _dropped(selected, begins, ends, np.minimum(until, dues), ~in_time & ~later, dues > until, work)
    pairs = zip(selected[later].tolist(), dues[later].tolist(), strict=True)
    waiting = (*under_way, *(LateUpdate(client, draft.number, due) for client, due in pairs))
    arrived = [each for each in waiting if each.due <= ends and each.round <= state.round]
    return Attendance(
        selected[in_time],
        begins,
        ends,
        dues[in_time] - begins,
        dropped,
        tuple(sorted(arrived, key=attrgetter("round", "client"))),
        tuple(each for each in waiting if each.due > ends or each.round > state.round),
        free.notes,
    )


def _wait(draft: Draft, devices: Devices, under_way: Sequence[LateUpdate]) -> tuple[float, NDArray[np.bool_]]:
    """Return the first time from now on at which a client is available, and which of the draft's clients are, [n].

    If a late update arrives before, it is the time of that arrival, and no client is available.

    Raises:
        InputError: there is no such time.
    """
    clients, now = draft.clients, draft.state.now
    free = ~np.isin(clients, [each.client for each in under_way])
    available = free & devices.available(clients, now)
    while not available.any():
        wait = float(devices.wait(clients[free], now).min(initial=inf))
        arrival = min((each.due for each in under_way), default=inf)
        if min(wait, arrival) == inf:
            raise InputError(nobody(now))
        if arrival <= now + wait:
            return max(now, arrival), available
        now = max(now + wait, nextafter(now, inf))
        available = free & devices.available(clients, now)
    return now, available


def _selected(free: Draft, seconds: Callable[[int], float]) -> Draft:
    """Return the draft of the available clients with those that are selected as its cohort."""
    state, participation = free.state, free.algorithm.schedule.participation
    if isinstance(participation.by, OwnSelection):
        return participation.by.attend(free)
    size = participation.reporting.selected(free.size)
    if isinstance(participation.by, Oort):
        given = state.of(Oort.name), free.fleet.census.clients, free.clients, size
        rng = generator(state.seed, Purpose.COHORT, free.counter)
        return replace(free, cohort=participation.by.draw(*given, seconds, rng, free.number))
    most = min(size, len(state.travelling_models) or len(free.clients))
    drawn = participation.draw(free.clients, state.seed, free.counter, free.weights, most, fixed=False)
    return replace(free, cohort=drawn)


def _end(
    begins: float, dues: NDArray[np.float64], until: NDArray[np.float64], size: int, reporting: Reporting
) -> float:
    """Return the end of a round: the m-th arrival, the deadline, or the last event, whichever is first."""
    arrivals = np.sort(dues[dues <= until])
    enough = float(arrivals[size - 1]) if len(arrivals) >= size else inf
    deadline = inf if reporting.deadline is None else begins + reporting.deadline
    last = float(np.minimum(dues, until).max(initial=begins))
    return min(enough, deadline, last)


def _dropped(
    clients: NDArray[np.int64],
    begins: float,
    ends: float,
    events: NDArray[np.float64],
    dropped: NDArray[np.bool_],
    vanishes: NDArray[np.bool_],
    work: Callable[[int], Cost],
) -> DroppedUpdates:
    """Return the updates that never count; their clients stop when the round ends, or when they vanish before."""
    rows = []
    for client, event, vanished in zip(clients[dropped], events[dropped], vanishes[dropped], strict=True):
        samples, seconds = work(int(client))
        spent = min(float(event), ends) - begins
        outcome = "vanished" if vanished and event <= ends else "late"
        rows.append((int(client), outcome, samples * spent / seconds if seconds else 0.0, spent))
    return DroppedUpdates.of(*zip(*rows, strict=True)) if rows else DroppedUpdates.of((), (), (), ())
