"""Consequences of evaluations: best values, rounds to a target, the model to write, and early stopping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from raysim.common.errors import InputError, check_known

LOWER = ("loss", "error", "perplexity", "mse", "mae", "brier", "ece")
"""Ends of the columns whose lower value is better."""

ROUNDS_AFTER = 2
"""Rounds after an evaluation that ends the run: the next one is under way already, and the last one aggregates."""


@dataclass(frozen=True)
class EvaluationHistory:
    """Summary of all evaluations so far.

    Args:
        evaluations: number of evaluations.
        best: best finite value by column.
        best_round: first round with the best value, by column.
        gained: number of the evaluation with the best value, starting at 1, by column.
        reached: first evaluated round at or beyond the target, by column.
    """

    evaluations: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    best_round: Mapping[str, int] = field(default_factory=dict)
    gained: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)

    def after(self, round_number: int, metrics: Mapping[str, float], targets: Mapping[str, float]) -> EvaluationHistory:
        """Return the history with one more evaluation; an equal value does not replace the best."""
        evaluations = self.evaluations + 1
        gains = {
            column: value
            for column, value in metrics.items()
            if isfinite(value) and (column not in self.best or is_better(column, value, self.best[column]))
        }
        there = [column for column, goal in targets.items() if reaches(column, metrics.get(column), goal)]
        return EvaluationHistory(
            evaluations,
            {**self.best, **gains},
            {**self.best_round, **dict.fromkeys(gains, round_number)},
            {**self.gained, **dict.fromkeys(gains, evaluations)},
            {**dict.fromkeys(there, round_number), **self.reached},
        )

    def waited(self, column: str) -> int:
        """Return the number of evaluations since the column's best one."""
        return self.evaluations - self.gained.get(column, 0)


@dataclass(frozen=True)
class Selection:
    """Rules that act on evaluations.

    Args:
        best: whether to write the model of the best evaluated round instead of the last one.
        by: column that ranks the rounds.
        patience: evaluations without a better one before the run stops; None never stops it.
        targets: values to reach, by column.
        until_target: whether the run stops when all of them are reached.
    """

    best: bool = False
    by: str = "validation_accuracy"
    patience: int | None = None
    targets: Mapping[str, float] = field(default_factory=dict)
    until_target: bool = False

    @property
    def decides(self) -> dict[str, tuple[str, ...]]:
        """Columns by rule that chooses a round by them: the one that is written, or the last."""
        rules = {
            'evaluate.select = "best"': (self.by,) if self.best else (),
            f"evaluate.patience = {self.patience}": () if self.patience is None else (self.by,),
            "evaluate.until_target = true": tuple(self.targets) if self.until_target else (),
        }
        return {rule: columns for rule, columns in rules.items() if columns}

    def check(self, columns: Sequence[str]) -> None:
        """Check that the columns of the rules are measured.

        Raises:
            InputError: a column is not measured; it is named beside the measured ones.
        """
        for column, value in self.targets.items():
            if not columns:
                raise InputError(
                    f"evaluate.target.{column} = {value}: must be a measured column, and nothing is measured; remove "
                    "it, or give test data by data.test or partition.test_clients"
                )
            check_known(f"key 'evaluate.target.{column}'", column, columns)
        if (self.best or self.patience is not None) and self.by not in columns:
            validates = self.by.startswith("validation_")
            remedy = "set partition.validation_clients, or name another column" if validates else "name one of them"
            measured = ", ".join(columns[:12]) or "none"
            raise InputError(f"evaluate.select_by = {self.by!r}: must be a measured column ({measured}); {remedy}")

    def takes(self, history: EvaluationHistory, round_number: int) -> bool:
        """Return whether the model of this round, evaluated last, would be written now."""
        return not self.best or self.by not in history.best or history.best_round[self.by] == round_number

    def stops(self, history: EvaluationHistory) -> bool:
        """Return whether patience has run out, or all targets are reached."""
        lost = self.patience is not None and history.waited(self.by) >= self.patience
        return lost or (self.until_target and self._reached(history) is not None)

    def _reached(self, history: EvaluationHistory) -> int | None:
        """Return the round in which the last target was reached; None if one is not."""
        rounds = [history.reached[column] for column in self.targets if column in history.reached]
        return max(rounds, default=None) if len(rounds) == len(self.targets) else None

    def notices(self, history: EvaluationHistory, rounds: int, stopped_early: bool) -> Iterator[str]:
        """Yield notices on an early stop, or on a model that could not be chosen."""
        has_best = self.by in history.best
        decided = rounds - ROUNDS_AFTER
        # Both may have changed since: the rounds after the decision are evaluated, too.
        if stopped_early and self.until_target and self._reached(history) == decided:
            reached = ", ".join(f"{column} in round {history.reached[column]}" for column in self.targets)
            yield f"stopped after round {rounds}: the targets were reached, {reached}"
        elif stopped_early:
            text = f"{self.by} did not improve in {self.patience} evaluations up to round {decided}"
            if has_best:
                text += f"; the best is {history.best[self.by]:.4f} in round {history.best_round[self.by]}"
            yield f"stopped after round {rounds}: {text}"
        if self.best and not has_best:
            yield f"{self.by} was never finite, so the model of the last evaluation is written"


def is_better(column: str, value: float, than: float) -> bool:
    """Return whether a value of a column is better than another: lower for a loss or an error, higher otherwise."""
    return value < than if column.lower().endswith(LOWER) else value > than


def reaches(column: str, value: float | None, target: float) -> bool:
    """Return whether a value is at or beyond its target; None never is."""
    return value is not None and isfinite(value) and (value == target or is_better(column, value, target))
