"""The state of a run between two rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.finite import check_initial
from algorithms.core.fleet import Fleet, Reference
from algorithms.core.layout import Memory, Packed
from algorithms.core.personal import PersonalLedger
from algorithms.core.report import RoundReport
from algorithms.core.sums import Sum


@dataclass(frozen=True)
class TravellingModel:
    """Model between two aggregations.

    Args:
        reference: handle of its shared entries.
        weight: weight in an aggregation.
        updates: client updates since the last aggregation.
    """

    reference: Reference
    weight: float
    updates: int = 1


@dataclass(frozen=True)
class Attending:
    """Clients of a round in virtual time, as they are known before it.

    Args:
        cohort: clients that train, in id order, int64 [m].
        late: sum of the models of earlier rounds that arrive in this one.
    """

    cohort: NDArray[np.int64]
    late: Sum


@dataclass(frozen=True)
class State:
    """A run between two rounds.

    Args:
        seed: seed of the run.
        round: rounds done.
        model: shared entries of the global model after the last aggregation.
        initial: personal entries of the initial model.
        average: mean of the personal entries of the last aggregated cohort; `initial` before the first aggregation, and
            under privacy.
        travelling_models: models between two aggregations; empty after an aggregation.
        memory: memory of the server's rule ("server") and of each option, by name; see `of`.
        phase: phase of the algorithm, starting at 0.
        rule_memory: memory of the rule that ends the phase.
        personal: locations of all clients' personal entries.
        rounds: rounds of the run, if known.
        measures: names of the measures to take of each round.
        importance: chance of each training client to be drawn, [K], under importance sampling.
        measure_memory: memory of the measures.
        utility: memory of a selection by utility.
        attending: clients of the next round, where the clock sets them; None if the round draws its cohort itself.
        now: virtual time in seconds, where the clients' devices set the clock.
        own: memory of an algorithm's own round, or of late client updates.
        report: report of the last round.
    """

    seed: int
    round: int
    model: Packed
    initial: Packed
    average: Packed
    travelling_models: tuple[TravellingModel, ...] = ()
    memory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    phase: int = 0
    rule_memory: Memory = field(default_factory=dict)
    personal: PersonalLedger = field(default_factory=PersonalLedger)
    rounds: int | None = None
    measures: tuple[str, ...] = ()
    importance: NDArray[np.float64] | None = None
    measure_memory: Memory = field(default_factory=dict)
    utility: Memory = field(default_factory=dict)
    attending: Attending | None = None
    now: float = 0.0
    own: Any = None
    report: RoundReport | None = None

    def of(self, name: str) -> Mapping[str, Any]:
        """Return the memory of an option, or of the "server"; empty before the first round that left one."""
        return self.memory.get(name, {})

    def keeping(self, name: str, memory: Mapping[str, Any]) -> State:
        """Return the state with the new memory of an option, or of the "server"."""
        return replace(self, memory={**self.memory, name: memory})


def begin(
    module: torch.nn.Module,
    fleet: Fleet,
    seed: int,
    rounds: int | None = None,
    measures: Sequence[str] = (),
) -> State:
    """Return the state before the first round.

    Args:
        module: the initial model.
        fleet: fleet that will run the blocks.
        seed: seed of the run.
        rounds: rounds of the run; only settings that are a share of the rounds need it.
        measures: names of the measures to take of each round.

    Raises:
        InputError: an initial entry is not finite.
    """
    values = module.state_dict()
    check_initial(values)
    initial = fleet.layouts.personal.pack(values)
    model = fleet.layouts.shared.pack(values)
    return State(seed, 0, model, initial, initial, rounds=rounds, measures=tuple(measures))
