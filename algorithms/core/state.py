"""The state of a run between two rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from algorithms.core.finite import check_initial
from algorithms.core.fleet import Fleet, Reference
from algorithms.core.layout import Packed
from algorithms.core.personal import PersonalLedger
from algorithms.core.report import RoundReport

if TYPE_CHECKING:
    import torch

CLUSTERS = "clusters"
"""Name of the memory of several global models: `models`, `servers` (the memory of each one's rule), and `chosen`."""

EDGES = "edges"
"""Name of the memory of edges; see `algorithms.rounds.edges`."""


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
class State:
    """A run between two rounds.

    Args:
        seed: seed of the run.
        round: rounds done.
        model: shared entries of the global model after the last aggregation; between two aggregations of the cloud the
            mean of the edges' models.
        initial: personal entries of the initial model.
        average: mean of the personal entries of the last aggregated cohort; `initial` before the first aggregation, and
            if an option adds noise to the aggregate.
        rounds: rounds of the run, if known.
        personal: locations of all clients' personal entries.
        phase: phase of the algorithm, starting at 0.
        memory: memory of the server's rule ("server"), of the rule that ends the phase ("until"), of the travelling
            models ("redistribution") and of each option, by name; see `of`.
        report: report of the last round.
    """

    seed: int
    round: int
    model: Packed
    initial: Packed
    average: Packed
    rounds: int | None = None
    personal: PersonalLedger = field(default_factory=PersonalLedger)
    phase: int = 0
    memory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    report: RoundReport | None = None

    @property
    def travelling_models(self) -> tuple[TravellingModel, ...]:
        """Models between two aggregations; empty after an aggregation."""
        return tuple(self.of("redistribution").get("models", ()))

    @property
    def between_aggregations(self) -> bool:
        """Whether there are models that the next aggregation makes one: travelling ones, or those of edges."""
        return bool(self.travelling_models) or "models" in self.of(EDGES)

    @property
    def models(self) -> tuple[Packed, ...]:
        """Shared entries of the global models: of several in clustered rounds, else of one."""
        return tuple(self.of(CLUSTERS).get("models", (self.model,)))

    @property
    def now(self) -> float:
        """Virtual time in seconds, if the clients' devices decide who takes part; else 0."""
        return float(self.of("virtual-time").get("now", 0.0))

    @property
    def dispatches(self) -> int:
        """Last number by which a phase of arrivals has keyed draws; 0 before the first one."""
        arrivals = self.of("arrivals")
        return int(arrivals["before"] + arrivals["timeline"].known) if arrivals else 0

    def of(self, name: str) -> Mapping[str, Any]:
        """Return the memory of an option, or of the "server"; empty before the first round that left one."""
        return self.memory.get(name, {})

    def keeping(self, name: str, memory: Mapping[str, Any]) -> State:
        """Return the state with the new memory of an option, or of the "server"; without it if it is empty."""
        others = {key: value for key, value in self.memory.items() if key != name}
        return replace(self, memory={**others, name: memory} if memory else others)

    def measuring(self, measures: Mapping[str, float]) -> State:
        """Return the state with further measures in its report."""
        return replace(self, report=self.report and self.report.measuring(measures))


def begin(module: torch.nn.Module, fleet: Fleet, seed: int, rounds: int | None = None) -> State:
    """Return the state before the first round.

    Args:
        module: the initial model.
        fleet: fleet that will run the blocks.
        seed: seed of the run.
        rounds: rounds of the run; only settings that are a share of the rounds need it.

    Raises:
        InputError: an initial entry is not finite.
    """
    values = module.state_dict()
    check_initial(values)
    initial = fleet.layouts.personal.pack(values)
    model = fleet.layouts.shared.pack(values)
    return State(seed, 0, model, initial, initial, rounds)
