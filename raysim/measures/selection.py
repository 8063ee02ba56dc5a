"""What a run's evaluations come to: best values, rounds to a target, whose model is written, and when to stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from raysim.common.errors import InputError, unknown


@dataclass(frozen=True)
class Best:
    """The best value of a metric, and the first round that had it."""

    value: float
    round: int


@dataclass(frozen=True)
class EvaluationHistory:
    """What the evaluations so far have come to.

    Args:
        evaluations: how many there were.
        best: of every column that had a finite value.
        gained: the number of the evaluation, the first being 1, that had the best.
        reached: the first evaluated round at its target or beyond it, of every column that came so far.
    """

    evaluations: int = 0
    best: Mapping[str, Best] = field(default_factory=dict)
    gained: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)

    def after(self, number: int, metrics: Mapping[str, float], targets: Mapping[str, float]) -> EvaluationHistory:
        """With one more evaluation, of the round `number`; a tie goes to the earlier one."""
        evaluations = self.evaluations + 1
        gains = {
            column: Best(value, number)
            for column, value in metrics.items()
            if isfinite(value) and (column not in self.best or is_better(column, value, self.best[column].value))
        }
        there = {column: number for column, goal in targets.items() if reaches(column, metrics.get(column), goal)}
        return EvaluationHistory(
            evaluations,
            {**self.best, **gains},
            {**self.gained, **dict.fromkeys(gains, evaluations)},
            {**there, **self.reached},
        )

    def waited(self, column: str) -> int:
        """For how many evaluations the column has not become better."""
        return self.evaluations - self.gained.get(column, 0)


@dataclass(frozen=True)
class Selection:
    """What is asked of the evaluations.

    Args:
        best: whether the model of the best evaluated round is written, instead of the last round's.
        by: the column that decides which is the best, and whether patience is lost.
        patience: evaluations without a better one after which the run stops; None for never.
        targets: values of columns that are to be reached.
    """

    best: bool = False
    by: str = "validation_accuracy"
    patience: int | None = None
    targets: Mapping[str, float] = field(default_factory=dict)

    def check(self, columns: Sequence[str]) -> None:
        """Refuse a column that is not measured.

        Raises:
            InputError: naming it, and those that are.
        """
        for column in self.targets:
            if column not in columns:
                raise unknown(f"key 'evaluate.target.{column}'", column, columns or ["nothing is measured"])
        if (self.best or self.patience is not None) and self.by not in columns:
            validates = self.by.startswith("validation_")
            remedy = "set partition.validation_clients, or name another column" if validates else "name one of them"
            measured = ", ".join(columns[:12]) or "none"
            raise InputError(
                f"evaluate.select_by = {self.by!r}: must be a column that is measured ({measured}); {remedy}"
            )

    def takes(self, history: EvaluationHistory, number: int) -> bool:
        """Whether the round that was evaluated last is, so far, the one whose model is written."""
        return not self.best or self.by not in history.best or history.best[self.by].round == number

    def stops(self, history: EvaluationHistory) -> bool:
        """Whether patience is lost."""
        return self.patience is not None and history.waited(self.by) >= self.patience

    def notices(self, history: EvaluationHistory, rounds: int, stopped_early: bool) -> Iterator[str]:
        """What a person should know of a run of so many rounds that stopped early, or could not choose one."""
        best = history.best.get(self.by)
        if stopped_early:
            found = f"; its best is {best.value:.4f}, of round {best.round}" if best else ""
            waited = f"{self.by} became no better in {self.patience} evaluations"
            yield f"stopped after round {rounds}, for {waited}{found}"
        if self.best and best is None:
            yield f"{self.by} was never a finite number, so the model is that of the last evaluation"


def is_better(column: str, value: float, than: float) -> bool:
    """Whether a finite value of a column is better than another: a loss is if it is lower."""
    return value < than if column.endswith("_loss") else value > than


def reaches(column: str, value: float | None, target: float) -> bool:
    """Whether a value is at its target, or beyond it; None, as an undefined one is, never."""
    return value is not None and isfinite(value) and (value == target or is_better(column, value, target))
