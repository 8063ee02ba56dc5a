"""What a run is between two rounds, and what a round reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.engine.client_update import UpdateRow
from algorithms.engine.devices import Devices
from algorithms.engine.finite import check_initial
from algorithms.engine.fleet import Fleet, Reference
from algorithms.engine.layout import Packed
from algorithms.engine.personal import PersonalLedger
from algorithms.parts.server import Memory


@dataclass(frozen=True)
class TravellingModel:
    """A model between two merges: where it is, its weight if it were merged now, and the visits that it has made."""

    reference: Reference
    weight: float
    updates: int = 1


UpdateRecord = tuple[int, UpdateRow, dict[str, float]]
"""A visit: its block, its row, and facts of the machine."""


@dataclass(frozen=True)
class RoundReport:
    """What the last round did.

    Args:
        visits: every visit, in client-id order; an asynchronous algorithm's in order of arrival.
        merged: whether it ended in a merge.
        bytes_up: what a real federation's clients would have sent to its server.
        bytes_down: what they would have received from it.
        phase: which of the algorithm's phases was on, the first being 0.
        exchanges: how often in turn the clients and the server waited for each other: once, in most algorithms.
        measures: further numbers, by their names; those of `State.wanted`, and an algorithm's own.
        seconds: of its stages, as the driver saw them: sample, send, meanwhile, train (what was left of it to wait
            for), sum, merge.
    """

    updates: tuple[UpdateRecord, ...]
    aggregated: bool
    bytes_up: int
    bytes_down: int
    phase: int = 0
    exchanges: int = 1
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """A run between two rounds.

    Args:
        seed: the run's seed.
        round: rounds done.
        model: the travelling entries of the global model, as the last merge left them.
        initial: the kept entries that the model was made with.
        average: the mean of the kept entries of the last merged cohort; `initial` before the first.
        travellers: the models on their way between two merges; empty after a merge.
        memory: what the server's rule remembers from merge to merge.
        phase: which of the algorithm's phases is on, the first being 0.
        watched: what the rule that ends the phase remembers.
        kept: where every client's kept entries stand.
        rounds: how many the run has, where that is known.
        wanted: the measures to take of each round.
        importance: each training client's chance to be drawn, where that is by importance.
        measured: what measures of rounds remember.
        devices: how fast clients are in virtual time; None where that is not simulated.
        own: what an algorithm's own step remembers.
        report: what the last round did.
    """

    seed: int
    round: int
    model: Packed
    initial: Packed
    average: Packed
    travelling_models: tuple[TravellingModel, ...] = ()
    memory: Memory = field(default_factory=dict)
    phase: int = 0
    watched: Memory = field(default_factory=dict)
    personal: PersonalLedger = field(default_factory=PersonalLedger)
    rounds: int | None = None
    wanted: tuple[str, ...] = ()
    importance: NDArray[np.float64] | None = None
    measured: Memory = field(default_factory=dict)
    devices: Devices | None = None
    own: Any = None
    report: RoundReport | None = None


def begin(
    module: torch.nn.Module,
    fleet: Fleet,
    seed: int,
    rounds: int | None = None,
    wanted: Sequence[str] = (),
    devices: Devices | None = None,
) -> State:
    """The state before the first round.

    Args:
        module: has the initial entries.
        fleet: what will run the blocks.
        seed: the run's.
        rounds: how many there will be, which only what is a share of them needs to know.
        wanted: the measures to take of each round.
        devices: how fast clients are in virtual time; None where that is not to be simulated.

    Raises:
        InputError: an initial entry is not finite.
    """
    values = module.state_dict()
    check_initial(values)
    initial = fleet.layouts.personal.pack(values)
    model = fleet.layouts.shared.pack(values)
    return State(seed, 0, model, initial, initial, rounds=rounds, wanted=tuple(wanted), devices=devices)
