"""The words of a study's tables and pages: what a metric is, how its values read, and what has to be said."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from raysim.common.errors import unknown
from raysim.report.tables import ABSENT, METRICS, TARGETS, Metric
from raysim.studies.read import Findings, keys_of
from raysim.studies.statistics import LEVEL, Row

FEW = 6
"""Pairs below which p cannot be below the level."""


@dataclass(frozen=True)
class Measured:
    """A column of metrics in words: on whose samples, and which metric of `raysim.report.tables`."""

    column: str
    target: str
    metric: Metric

    @classmethod
    def of(cls, column: str) -> Measured:
        """What a column's name says.

        Raises:
            InputError: it ends in no metric.
        """
        for name, metric in METRICS.items():
            if column.endswith(f"_{name}"):
                target = column.removesuffix(f"_{name}")
                words = TARGETS[target].title if target in TARGETS else target.replace("_", " ")
                return cls(column, words, metric)
        raise unknown(f"metric {column!r}", column, [f"{target}_{name}" for target in TARGETS for name in METRICS])

    @property
    def is_smaller_better(self) -> bool:
        return self.metric.best is min

    @property
    def title(self) -> str:
        """With its unit: scores are shown times 100, as papers have them."""
        if self.is_smaller_better:
            return self.metric.title
        return f"{self.metric.title} in %" if self.metric.kind == "share" else f"{self.metric.title} × 100"

    def text(self, value: float | None) -> str:
        """A value in that unit."""
        if value is None:
            return ABSENT
        return f"{value:.4f}" if self.is_smaller_better else f"{100 * value:.2f}"

    def spread(self, mean: float | None, std: float | None) -> str:
        """A mean and, where there is one, a standard deviation."""
        return self.text(mean) if std is None else f"{self.text(mean)} ± {self.text(std)}"


def percent(value: float | None) -> str:
    """A relative difference, with its sign; one that rounds to nothing has none."""
    if value is None:
        return ABSENT
    return f"{value:+.2f}" if round(value, 2) else "0.00"


def p_value(p: float | None) -> str:
    """A p with two digits."""
    if p is None:
        return ABSENT
    return f"{p:.2g}" if p >= 1e-4 else "< 0.0001"


def point_text(point: str | None) -> str:
    """A point's hyper-parameters as they stand in an experiment file."""
    if point is None:
        return ABSENT
    return ", ".join(f"{key} = {value_text(value)}" for key, value in keys_of(point).items()) or ABSENT


def value_text(value: Any) -> str:
    """One value of a hyper-parameter."""
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)


def caption(study: Findings, rows: Sequence[Row]) -> str:
    """What the table of differences shows, and which test its stars stand for."""
    measured, baseline = Measured.of(study.metric), study.baseline
    better = "smaller is better" if measured.is_smaller_better else "larger is better"
    pairs = sorted({count for row in rows if row.difference and (count := row.difference.test.pairs)})
    many = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}" if pairs else ""
    counted = f" of n = {many} differing pairs" if many else ""
    return (
        f"{measured.title} ({measured.target.lower()}; {better}). In brackets the mean of {baseline}; for the others, "
        f"the mean difference to {baseline} in % of its mean, paired by seed and test fold. Bold: the best of a row. "
        f"*: p < {LEVEL:g} in Wilcoxon's two-sided signed-rank test{counted}, corrected by Holm "
        "for the algorithms of the row."
    )


def notes(study: Findings, rows: Sequence[Row]) -> list[str]:
    """What a reader of the tables has to know of the trials and the tests behind them."""
    said: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for text in (*_of_trials(row), *_of_test(row)):
            said[text].append(f"{row.algorithm} on {row.dataset}")
    return [f"{text[0].upper()}{text[1:]}: {_listed(where, len(rows))}." for text, where in said.items()]


def _of_trials(row: Row) -> Iterator[str]:
    every = sum(row.statuses.values())
    if not every:
        yield "without trials that count yet"
    for status in ("diverged", "failed"):
        if count := row.statuses.get(status, 0):
            yield f"{count} of {every} trials {status}, and {'is' if count == 1 else 'are'} left out"
    if row.difference and row.difference.unpaired:
        yield f"trials without a partner to compare with, which the comparison leaves out: {row.difference.unpaired}"


def _of_test(row: Row) -> Iterator[str]:
    if row.difference is None or not row.difference.pairs:
        return
    if row.difference.relative is None:
        yield "no relative difference, for the baseline's mean is 0"
    test, zeros = row.difference.test, row.difference.pairs - row.difference.test.pairs
    if not test.pairs:
        yield "no p, for no pair differs"
        return
    if zeros:
        yield f"pairs without a difference, which the test leaves out: {zeros} of {row.difference.pairs}"
    if test.pairs < FEW:
        yield f"p cannot be below {test.least:.2g} with {test.pairs} differing {'pairs' if test.pairs > 1 else 'pair'}"
    if test.method == "normal approximation":
        yield "p by the normal approximation, with a correction for continuity"
    if test.method == "exact with ties":
        yield "p over all signs of the differences, for some are equal"


def _listed(where: Sequence[str], every: int) -> str:
    return "in all comparisons" if len(where) >= every - 1 and every > 2 else ", ".join(where)
