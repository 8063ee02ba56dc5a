"""Words of a study's tables and pages: names and values of metrics, captions and notes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from raysim.common.errors import unknown
from raysim.report.words import ABSENT, METRICS, TARGETS, ShownMetric, metric_named, parted
from raysim.studies.read import Findings, keys_of
from raysim.studies.statistics import LEVEL, ResultRow

FEW = 6
"""With fewer pairs, p cannot be below the significance level."""


@dataclass(frozen=True)
class MetricColumn:
    """Column of a metric in words: the samples of its evaluation, in full and in short, and the metric."""

    column: str
    target: str
    short: str
    metric: ShownMetric

    @classmethod
    def of(cls, column: str) -> MetricColumn:
        """Parse a column's name.

        Raises:
            InputError: it neither begins with the name of samples nor ends in a metric.
        """
        target, own = parted(column)
        if target:
            return cls(column, TARGETS[target].title, TARGETS[target].short, metric_named(own))
        # The longest name first, because `macro_f1` ends in `f1`.
        for name, metric in sorted(METRICS.items(), key=lambda item: -len(item[0])):
            if column.endswith(f"_{name}"):
                words = column.removesuffix(f"_{name}").replace("_", " ")
                return cls(column, words, words, metric)
        raise unknown(f"metric {column!r}", column, [f"{target}_{name}" for target in TARGETS for name in METRICS])

    @property
    def is_smaller_better(self) -> bool:
        return self.metric.best is min

    @property
    def is_score(self) -> bool:
        """Whether values are shown times 100, as in papers; those of a user's own metric are not."""
        return not self.is_smaller_better and self.metric in METRICS.values()

    @property
    def title(self) -> str:
        """Name with its unit."""
        if not self.is_score:
            return self.metric.title
        return f"{self.metric.title} in %" if self.metric.kind == "share" else f"{self.metric.title} × 100"

    @property
    def heading(self) -> str:
        """Title, samples, and the direction of better values."""
        better = "smaller is better" if self.is_smaller_better else "larger is better"
        return f"{self.title} ({self.target.lower()}; {better})"

    def text(self, value: float | None) -> str:
        """Return a value in that unit."""
        if value is None:
            return ABSENT
        return f"{100 * value:.2f}" if self.is_score else f"{value:.4f}"

    def spread(self, mean: float | None, std: float | None) -> str:
        """Return a mean and, if there is one, its standard deviation."""
        return self.text(mean) if std is None else f"{self.text(mean)} ± {self.text(std)}"


def percent(value: float | None) -> str:
    """Return a relative difference with its sign; zero has none."""
    if value is None:
        return ABSENT
    return f"{value:+.2f}" if round(value, 2) else "0.00"


def p_value(p: float | None) -> str:
    """Return a p with two digits."""
    if p is None:
        return ABSENT
    return f"{p:.2g}" if p >= 1e-4 else "< 0.0001"


def point_text(point: str | None) -> str:
    """Return a point's hyper-parameters in the notation of an experiment file."""
    if point is None:
        return ABSENT
    return ", ".join(f"{key} = {value_text(value)}" for key, value in keys_of(point).items()) or ABSENT


def value_text(value: Any) -> str:
    """Return one value of a hyper-parameter as text, the same for no other float."""
    if not isinstance(value, float):
        return value if isinstance(value, str) else json.dumps(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def pairing(study: Findings) -> str:
    """Return what two trials of a pair have in common."""
    drawn = any(each.split.partition is not None for each in study.trials)
    return "partition, seed and test fold" if drawn else "seed and test fold"


def caption_of_means(study: Findings, rows: Sequence[ResultRow]) -> str:
    """Return the caption of the table of means and standard deviations."""
    heading = MetricColumn.of(study.metric).heading
    star = f" *: p < {LEVEL:g} against {study.baseline}, see the table of differences." if _has_baseline(rows) else ""
    return f"{heading}: mean ± standard deviation over each {pairing(study)}. Bold: best of a row.{star}"


def caption_of_contests(study: Findings) -> str:
    """Return the caption of the table of wins, ties and losses."""
    count = len(study.datasets)
    return (
        f"Wins / ties / losses of a row's algorithm against a column's over {count} data set{'s' * (count != 1)}. A "
        f"data set is a tie unless p < {LEVEL:g} in Wilcoxon's two-sided signed-rank test, corrected by Holm for the "
        "pairs of algorithms, and the mean difference points in the direction of the test."
    )


def caption(study: Findings, rows: Sequence[ResultRow]) -> str:
    """Return the caption of the table of differences, which explains its signs and its test."""
    heading, baseline = MetricColumn.of(study.metric).heading, study.baseline
    if not _has_baseline(rows):
        return f"{heading}. {baseline}, the baseline, has no results, so there are no differences to it and no tests."
    pairs = sorted({count for row in rows if row.difference and (count := row.difference.test.differing)})
    many = f"{pairs[0]}" if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}" if pairs else ""
    counted = f" of n = {many} differing pairs" if many else ""
    return (
        f"{heading}. In brackets: mean of {baseline}. Others: "
        f"mean difference to {baseline} in % of its mean, paired by {pairing(study)}. Bold: best of a row. "
        f"*: p < {LEVEL:g} in Wilcoxon's two-sided signed-rank test{counted}, corrected by Holm "
        "for the algorithms of the row, and the mean in the test's direction."
    )


def _has_baseline(rows: Sequence[ResultRow]) -> bool:
    """Return whether the baseline has results on any data set."""
    return any(row.n for row in rows if row.difference is None)


def notes(study: Findings, rows: Sequence[ResultRow]) -> list[str]:
    """Return notes on a choice by the reported clients, lost algorithms, lost trials, and the limits of the tests."""
    compared = [_called(row) for row in rows if row.difference and row.difference.pairs]
    on_trials = _named((text, _called(row)) for row in rows for text in _notes_on_trials(row, study))
    on_tests = _named((text, _called(row)) for row in rows for text in _notes_on_comparison(row))
    return [
        *_notes_on_choice(study),
        *(f"{text}." for text in study.lost.values()),
        *(f"{text}: {', '.join(names)}." for text, names in on_trials.items()),
        *(f"{text}: {_listed(names, compared)}." for text, names in on_tests.items()),
    ]


def _called(row: ResultRow) -> str:
    return f"{row.algorithm} on {row.dataset}"


def _named(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names of each note; the note begins with a capital."""
    found: dict[str, list[str]] = defaultdict(list)
    for text, name in pairs:
        found[f"{text[0].upper()}{text[1:]}"].append(name)
    return found


def _notes_on_choice(study: Findings) -> Iterator[str]:
    searched = [each.split for each in study.trials if not each.is_chosen]
    if study.metric.startswith("validation_") and searched:
        yield (
            "The reported clients have also chosen the hyper-parameters, so the values are too favourable; set "
            "study.metric to a column of test clients."
        )
    tested = {
        (each.split.partition, each.split.fold) for each in study.trials if each.counts and each.split.fold is not None
    }
    both = tested & {(split.partition, split.validation) for split in searched}
    if study.metric.startswith("held_out_") and study.select_by.startswith("validation_") and both:
        fewer = "; name fewer folds in study.tune.folds" if len({split.fold for split in searched}) > 1 else ""
        yield (
            f"The clients of {len(both)} of {len(tested)} test folds have also chosen the hyper-parameters, as "
            f"validation clients of another fold, so the values may be too favourable{fewer}."
        )


def _notes_on_trials(row: ResultRow, study: Findings) -> Iterator[str]:
    every = sum(row.statuses.values())
    if row.point is None and (row.dataset, row.algorithm) not in study.lost:
        yield "no trials that count yet"
    for status in ("diverged", "failed"):
        if count := row.statuses.get(status, 0):
            yield f"{count} of {every} trials {status} and {'is' if count == 1 else 'are'} left out"


def _notes_on_comparison(row: ResultRow) -> Iterator[str]:
    each = row.difference
    if each and each.unpaired:
        yield f"the comparison leaves out trials without a partner ({each.unpaired})"
    if each is None or not each.pairs:
        return
    if each.relative is None:
        yield "no relative difference, because the baseline's mean is 0"
    differing = each.test.differing
    if not differing:
        yield "no p, because no pair differs"
        return
    if each.pairs > differing:
        yield f"the test leaves out pairs without a difference ({each.pairs - differing} of {each.pairs})"
    if differing < FEW:
        pairs = "pairs" if differing > 1 else "pair"
        yield f"p cannot be below {each.test.p_least:.2g} with {differing} differing {pairs}"
    if each.contradictory:
        yield "the mean does not point in the test's direction, so the difference has no star and counts as a tie"
    if each.test.method == "normal approximation":
        yield "p by the normal approximation, with a continuity correction"
    if each.test.method == "exact with ties":
        yield "p over all signs of the differences, because some are equal"


def _listed(names: Sequence[str], compared: Sequence[str]) -> str:
    """Return the names of a note; `compared` has the names of all comparisons."""
    return "in all comparisons" if len(compared) > 1 and list(names) == list(compared) else ", ".join(names)
