"""The state of an algorithm's rounds: the result so far and everything that the remaining rounds need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

from algorithms import Algorithm, State
from raysim.measures.selection import EvaluationHistory
from raysim.measures.twins import TwinState

TOTALS = ("rounds", "model_round", "seconds", "simulated_seconds", "bytes_up", "bytes_down", "exchanges", "epsilon")
"""Fields of a result that loggers receive."""

SUMS = ("seconds", "bytes_up", "bytes_down", "exchanges", "nonfinite")
"""Fields of a result that are sums over the rounds' columns."""


@dataclass(frozen=True)
class ShownResult:
    """Numbers of an algorithm that the terminal shows; fields as in `AlgorithmResult`."""

    name: str
    metrics: Mapping[str, float]
    rounds: int
    seconds: float
    bytes_up: int
    bytes_down: int
    epsilon: float | None = None
    simulated_seconds: float | None = None

    @classmethod
    def of(cls, name: str, summary: Mapping[str, Any]) -> ShownResult:
        """Return the numbers in an algorithm's summary; raise an error like ValueError if it has others."""
        metrics = {str(metric): float(value) for metric, value in dict(summary["metrics"]).items()}
        rounds, up, down = (int(summary[key]) for key in ("rounds", "bytes_up", "bytes_down"))
        given = [summary.get(key) for key in ("epsilon", "simulated_seconds")]
        epsilon, virtual = (None if each is None else float(each) for each in given)
        if virtual is not None and isnan(virtual):
            raise ValueError("it has NaN for a time")
        return cls(name, metrics, rounds, float(summary["seconds"]), up, down, epsilon, virtual)


@dataclass(frozen=True)
class AlgorithmResult:
    """Result of one algorithm.

    Args:
        name: name of its folder in the run.
        algorithm: its parts.
        metrics: evaluation of the written model.
        rounds: number of finished rounds.
        model_round: round that left the written model.
        stopped_early: whether patience ran out, or all targets were reached, before the last round.
        history: summary of all evaluations.
        seconds: duration of the rounds without evaluation.
        bytes_up: protocol bytes from the clients to the server, over all rounds.
        bytes_down: protocol bytes from the server to the clients, over all rounds.
        exchanges: sequential exchanges between the clients and the server.
        nonfinite: number of client updates with NaN or infinity, left out or replaced.
        simulated_seconds: duration of the rounds in virtual time; None without `[devices]`.
        epsilon: epsilon after the last evaluated round; None if it is not accounted.
        sent: bytes from the clients to the server up to the first evaluated round at a target, by column.
        reached_after: virtual seconds up to that round, by column; empty without `[devices]`.
        concordance: verdict after the last round if it is measured; see `raysim.measures.twins.verdict`.
    """

    name: str
    algorithm: Algorithm
    metrics: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    model_round: int = 0
    stopped_early: bool = False
    history: EvaluationHistory = EvaluationHistory()
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    exchanges: int = 0
    nonfinite: int = 0
    simulated_seconds: float | None = None
    epsilon: float | None = None
    sent: dict[str, int] = field(default_factory=dict)
    reached_after: dict[str, float] = field(default_factory=dict)
    concordance: dict[str, Any] | None = None

    @property
    def totals(self) -> dict[str, float]:
        """Totals and final metrics for loggers."""
        return {name: value for name in TOTALS if (value := getattr(self, name)) is not None} | self.metrics

    def after(self, row: Mapping[str, Any]) -> AlgorithmResult:
        """Return the result with one more round."""
        sums = {name: getattr(self, name) + row[name] for name in SUMS}
        if "simulated_seconds" in row:
            sums["simulated_seconds"] = (self.simulated_seconds or 0.0) + row["simulated_seconds"]
        return replace(self, rounds=self.rounds + 1, **sums)

    def evaluated(
        self, row: Mapping[str, Any], metrics: Mapping[str, float], targets: Mapping[str, float]
    ) -> AlgorithmResult:
        """Return the result with the evaluation of its last round.

        Args:
            row: row of the round.
            metrics: value by column.
            targets: values to reach, by column.
        """
        history = self.history.after(row["round"], metrics, targets)
        reached = [column for column, number in history.reached.items() if number == row["round"]]
        after = {} if self.simulated_seconds is None else dict.fromkeys(reached, self.simulated_seconds)
        return replace(
            self,
            history=history,
            sent={**self.sent, **dict.fromkeys(reached, self.bytes_up)},
            reached_after={**self.reached_after, **after},
            epsilon=row.get("epsilon", self.epsilon),
        )


@dataclass(frozen=True)
class RunProgress:
    """Progress of an algorithm up to the last written round.

    Args:
        result: result so far.
        last: number of the last round, as far as it is decided.
        chosen: state whose model would be written.
        latest: newest metrics.
        twins: states of the twins.
    """

    result: AlgorithmResult
    last: int
    chosen: State | None = None
    latest: dict[str, float] = field(default_factory=dict)
    twins: tuple[TwinState, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """A run after an aggregation: everything that determines its remaining rounds."""

    state: State
    progress: RunProgress

    @property
    def rounds(self) -> set[int]:
        """Rounds whose personal entries the snapshot needs."""
        chosen = self.progress.chosen
        return {self.state.round} if chosen is None else {self.state.round, chosen.round}
