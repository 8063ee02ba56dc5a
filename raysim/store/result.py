"""What an algorithm's rounds come to: the result at the end, and on the way all that the rest of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from algorithms import Algorithm, State
from raysim.measures.selection import Standing
from raysim.measures.twins import TwinState


@dataclass(frozen=True)
class Result:
    """What one algorithm came to.

    Args:
        name: its folder in the run.
        algorithm: its five parts.
        metrics: the evaluation of the model that is written.
        rounds: rounds done.
        model_round: the round that left the model that is written.
        stopped_early: whether patience was lost before the last round.
        standing: what all evaluations came to.
        seconds: of the rounds, without evaluation.
        bytes_up: protocol bytes from clients to the server, over all rounds.
        bytes_down: protocol bytes to the clients.
        exchanges: how often in turn the clients and the server waited for each other.
        nonfinite: visits that gave NaN or infinity, and were left out or replaced.
        simulated_seconds: of the rounds in virtual time; None where there are no devices.
        concordance: what the last round says about it, where it is measured; see `raysim.measures.verdict`.
    """

    name: str
    algorithm: Algorithm
    metrics: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    model_round: int = 0
    stopped_early: bool = False
    standing: Standing = Standing()
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    exchanges: int = 0
    nonfinite: int = 0
    simulated_seconds: float | None = None
    concordance: dict[str, Any] | None = None

    def after(self, row: Mapping[str, Any]) -> Result:
        """The result with one more round."""
        virtual = row["simulated_seconds"]
        return replace(
            self,
            rounds=self.rounds + 1,
            seconds=self.seconds + row["seconds"],
            bytes_up=self.bytes_up + row["bytes_up"],
            bytes_down=self.bytes_down + row["bytes_down"],
            exchanges=self.exchanges + row["exchanges"],
            nonfinite=self.nonfinite + row["nonfinite"],
            simulated_seconds=self.simulated_seconds if virtual is None else (self.simulated_seconds or 0.0) + virtual,
        )


@dataclass(frozen=True)
class RunProgress:
    """What is known of the rounds that are written.

    Args:
        result: so far.
        last: the number of the last round, as far as that is decided.
        chosen: the state whose model would be written.
        latest: the metrics that were measured last.
        twins: what the twins remember.
    """

    result: Result
    last: int
    chosen: State | None = None
    latest: dict[str, float] = field(default_factory=dict)
    twins: tuple[TwinState, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """A run after a merge: all that its remaining rounds follow from.

    Args:
        state: as the merge left it.
        known: of the rounds up to there.
    """

    state: State
    known: RunProgress

    @property
    def rounds(self) -> set[int]:
        """The rounds whose kept entries it needs."""
        chosen = self.known.chosen
        return {self.state.round} if chosen is None else {self.state.round, chosen.round}
