"""What trials come to: means over seeds and folds, and differences to the baseline with a test of significance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from raysim.studies.read import Entry, Findings, Unit

LEVEL = 0.05
"""A difference is significant where p, corrected, is below it."""

DIGITS = 12
"""Digits to which differences are rounded, so that those equal but for floating point are ties, or zeros."""

EXACT, EXACT_TIED = 50, 16
"""Pairs up to which p is exact: without ties by Wilcoxon's distribution, with ties over all 2^n signs."""

ByUnit = Mapping[Unit, float]


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test of paired differences, two-sided.

    Zeros are left out, as Wilcoxon did; equal differences share the mean of their ranks.

    Args:
        pairs: that differ: n.
        p: the chance of rank sums at least as uneven where signs are chance; None if no pair differs.
        method: how p was found.

    Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945).
    """

    pairs: int
    p: float | None
    method: Literal["none", "exact", "exact with ties", "normal approximation"]

    @property
    def least(self) -> float | None:
        """The smallest p that so many pairs can give: 2 / 2^n, where all differences have one sign."""
        return 2.0 ** (1 - self.pairs) if self.pairs else None


@dataclass(frozen=True)
class Difference:
    """What an algorithm is ahead of the baseline, over the pairs that both have.

    Args:
        pairs: (seed, fold) of both.
        unpaired: trials of either of the two without one of the other that has ended well.
        mean: of the differences; NaN without pairs.
        baseline: the baseline's mean over the pairs; likewise.
        test: of the differences.
        p_holm: p corrected for the algorithms of the data set; None as in the test.
    """

    pairs: int
    unpaired: int
    mean: float
    baseline: float
    test: SignedRank
    p_holm: float | None = None

    @property
    def relative(self) -> float | None:
        """The mean difference in per cent of the baseline's mean, as in RADFed's Table III."""
        return 100 * self.mean / abs(self.baseline) if self.pairs and self.baseline else None

    @property
    def significant(self) -> bool:
        return self.p_holm is not None and self.p_holm < LEVEL


@dataclass(frozen=True)
class Row:
    """One algorithm on one data set, with the hyper-parameters that were chosen.

    Args:
        point: the hyper-parameters, as JSON; None where nothing is chosen yet.
        values: the metric by (seed, fold), a mean over validation folds.
        statuses: how many of its trials ended how.
        difference: to the baseline; None for the baseline itself.
    """

    dataset: str
    algorithm: str
    point: str | None
    values: ByUnit
    statuses: Mapping[str, int]
    difference: Difference | None

    @property
    def n(self) -> int:
        """(seed, fold) with a value."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def std(self) -> float | None:
        """Over (seed, fold), with n - 1 in the denominator; None below two."""
        return float(np.std(list(self.values.values()), ddof=1)) if self.n > 1 else None


def rows_of(study: Findings) -> list[Row]:
    """A row a data set and algorithm, in the study's order; p corrected over the algorithms of a data set."""
    return [row for dataset in study.datasets for row in _corrected(_rows(study, dataset))]


def signed_rank(differences: Iterable[float]) -> SignedRank:
    """The test of some differences."""
    # Imported late: it takes seconds, which the report of a single run need not wait for.
    from scipy import stats

    rounded = np.round(np.fromiter(differences, dtype=np.float64), DIGITS)
    nonzero = rounded[rounded != 0]
    pairs = len(nonzero)
    is_tied = len(np.unique(np.abs(nonzero))) < pairs
    if not pairs:
        return SignedRank(0, None, "none")
    if not is_tied and pairs <= EXACT:
        return SignedRank(pairs, float(stats.wilcoxon(nonzero, method="exact").pvalue), "exact")
    if is_tied and pairs <= EXACT_TIED:
        every = stats.PermutationMethod(n_resamples=2**pairs)  # as many as there are: none is drawn
        return SignedRank(pairs, float(stats.wilcoxon(nonzero, method=every).pvalue), "exact with ties")
    normal = stats.wilcoxon(nonzero, correction=True, method="asymptotic")  # type: ignore[call-overload]  # stubs lack it
    return SignedRank(pairs, float(normal.pvalue), "normal approximation")


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction: the i-th smallest of m becomes max over j <= i of min(1, (m - j + 1) p_j).

    What is None stays so and does not count.

    Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    order = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[place] = largest
    return corrected


def difference(ours: Sequence[Entry], baseline: Sequence[Entry], metric: str) -> Difference:
    """What some trials are ahead of the baseline's, paired by seed and folds, then averaged over validation folds."""
    left, right = ({each.split: each.value(metric) for each in trials} for trials in (ours, baseline))
    both = {
        split: (value, other)
        for split, value in left.items()
        if value is not None and (other := right.get(split)) is not None
    }
    ahead = by_unit((split[0], value - other) for split, (value, other) in both.items())
    base = by_unit((split[0], other) for split, (_, other) in both.items())
    return Difference(
        pairs=len(ahead),
        unpaired=len(left.keys() | right.keys()) - len(both),
        mean=float(np.mean(list(ahead.values()))) if ahead else float("nan"),
        baseline=float(np.mean(list(base.values()))) if base else float("nan"),
        test=signed_rank(ahead.values()),
    )


def by_unit(values: Iterable[tuple[Unit, float]]) -> dict[Unit, float]:
    """The mean of each unit's values, in the units' order."""
    found: dict[Unit, list[float]] = defaultdict(list)
    for unit, value in values:
        found[unit].append(value)
    order = sorted(found, key=lambda unit: (unit.seed, -1 if unit.fold is None else unit.fold))
    return {unit: float(np.mean(found[unit])) for unit in order}


def _rows(study: Findings, dataset: str) -> list[Row]:
    counting = {name: [each for each in study.of(dataset, name) if each.counts] for name in study.algorithms}
    baseline = counting.get(study.baseline, [])
    return [
        Row(
            dataset=dataset,
            algorithm=name,
            point=trials[0].point if trials else None,
            values=by_unit((each.unit, v) for each in trials if (v := each.value(study.metric)) is not None),
            statuses=Counter(each.status for each in trials),
            difference=None if name == study.baseline else difference(trials, baseline, study.metric),
        )
        for name, trials in counting.items()
    ]


def _corrected(rows: Sequence[Row]) -> list[Row]:
    compared = [row.difference for row in rows]
    corrected = holm([each.test.p if each else None for each in compared])
    return [
        replace(row, difference=replace(each, p_holm=p) if each else None)
        for row, each, p in zip(rows, compared, corrected, strict=True)
    ]


def averages(rows: Sequence[Row]) -> dict[str, float]:
    """For the baseline its mean over data sets; for the others what they are ahead of it, in per cent of that mean.

    Means of data sets are averaged first, so one with high values weighs more, as in RADFed's Table III. An algorithm
    that lacks a data set has none.
    """
    datasets = {row.dataset for row in rows}
    of = {name: [row for row in rows if row.algorithm == name] for name in dict.fromkeys(r.algorithm for r in rows)}
    found: dict[str, float] = {}
    for name, own in of.items():
        differences = [row.difference for row in own if row.difference and row.difference.pairs]
        means = [row.mean for row in own if row.difference is None and row.mean is not None]
        if len(means) == len(datasets):
            found[name] = float(np.mean(means))
        elif len(differences) == len(datasets) and (base := sum(each.baseline for each in differences)):
            found[name] = 100 * sum(each.mean for each in differences) / abs(base)
    return found
