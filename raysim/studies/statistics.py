"""Statistics of trials: means over seeds and folds, and differences to the baseline with a test of significance."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from math import isfinite
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from raysim.common.statistics import mean_and_std
from raysim.measures.selection import is_better
from raysim.studies.read import Findings, TrialRow
from raysim.studies.split import Unit

LEVEL = 0.05
"""Significance level: a difference is significant if its corrected p is below it."""

DIGITS = 12
"""Digits that differences are rounded to, so that floating-point noise breaks no ties and hides no zeros."""

EXACT, EXACT_TIED = 50, 16
"""Most pairs with an exact p: without ties by Wilcoxon's distribution, with ties over all 2^n signs."""

Method = Literal["none", "exact", "exact with ties", "normal approximation"]
Key = TypeVar("Key", bound=Hashable)


class SignedRank(NamedTuple):
    """Outcome of Wilcoxon's signed-rank test.

    Args:
        differing: pairs with a difference, which the test ranks.
        p: two-sided p; None if no pair differs.
        method: computation of p.
        direction: 1 if the positive differences have the larger sum of ranks, -1 if the negative ones, else 0.
    """

    differing: int
    p: float | None
    method: Method
    direction: int

    @property
    def p_least(self) -> float | None:
        """Smallest p that so few pairs allow: 2 / 2^n, if all differences have one sign."""
        return 2.0 ** (1 - self.differing) if self.differing else None


@dataclass(frozen=True)
class Difference:
    """Difference of an algorithm to the baseline, over their common pairs.

    Args:
        test: Wilcoxon's signed-rank test of the pairs.
        pairs: number of (seed, fold, partition) that both have.
        unpaired: trials of either one without a partner that has ended well.
        mean: mean difference; NaN without pairs.
        baseline: the baseline's mean over the pairs; NaN without pairs.
        p_holm: p corrected for the algorithms of the data set; None if p is.
    """

    test: SignedRank
    pairs: int
    unpaired: int
    mean: float
    baseline: float
    p_holm: float | None = None

    @property
    def relative(self) -> float | None:
        """Mean difference in per cent of the baseline's mean (RADFed, Table III)."""
        return 100 * self.mean / abs(self.baseline) if self.pairs and self.baseline else None

    @property
    def significant(self) -> bool:
        """Whether the corrected p is below the level, and the mean points in the direction of the test."""
        return self._is_below and self._agrees

    @property
    def contradictory(self) -> bool:
        """Whether the corrected p is below the level, but the mean does not point in the direction of the test."""
        return self._is_below and not self._agrees

    @property
    def _is_below(self) -> bool:
        return self.p_holm is not None and self.p_holm < LEVEL

    @property
    def _agrees(self) -> bool:
        return self.test.direction * round(self.mean, DIGITS) > 0


@dataclass(frozen=True)
class ResultRow:
    """Results of one algorithm on one data set, with the chosen hyper-parameters.

    Args:
        dataset: name of the data set.
        algorithm: name of the algorithm.
        point: hyper-parameters, as JSON; None before the choice.
        values: metric by (seed, fold, partition), averaged over validation folds.
        statuses: number of trials by status; without a chosen point those of the search.
        difference: difference to the baseline; None for the baseline itself.
    """

    dataset: str
    algorithm: str
    point: str | None
    values: Mapping[Unit, float]
    statuses: Mapping[str, int]
    difference: Difference | None

    @property
    def n(self) -> int:
        """Number of (seed, fold, partition) with a value."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        return mean_and_std(self.values.values())[0] if self.values else None

    @property
    def std(self) -> float | None:
        """Standard deviation over (seed, fold, partition), with n - 1 in the denominator; None below two."""
        return mean_and_std(self.values.values())[1]

    @property
    def significant(self) -> bool:
        """Whether the algorithm differs significantly from the baseline."""
        return self.difference is not None and self.difference.significant


def rows_of(study: Findings) -> list[ResultRow]:
    """Return a row for each data set and algorithm; p is corrected over the algorithms of a data set."""
    return [row for dataset in study.datasets for row in _corrected(_rows(study, dataset))]


@dataclass(frozen=True)
class Contest:
    """Data sets on which one algorithm is significantly better than another, neither, and significantly worse."""

    wins: int = 0
    ties: int = 0
    losses: int = 0

    def __add__(self, other: "Contest") -> "Contest":
        return Contest(self.wins + other.wins, self.ties + other.ties, self.losses + other.losses)

    def __str__(self) -> str:
        return f"{self.wins} / {self.ties} / {self.losses}"


def tallies_of(study: Findings) -> dict[tuple[str, str], Contest]:
    """Return the tally of each algorithm against each other one, over all data sets.

    A data set is a tie unless Wilcoxon's signed-rank test, corrected by Holm for the pairs of algorithms on it, finds a
    difference, and the mean points in the same direction. Data sets without a common pair of trials do not count.
    """
    pairs = list(combinations(study.algorithms, 2))
    found = dict.fromkeys(permutations(study.algorithms, 2), Contest())
    for dataset in study.datasets:
        counting = _counting(study, dataset)
        compared = [_difference(counting[one], counting[other], study.metric) for one, other in pairs]
        for (one, other), each, p in zip(pairs, compared, holm([each.test.p for each in compared]), strict=True):
            if each.pairs:
                decided = Contest(wins=1) if is_better(study.metric, each.mean, 0.0) else Contest(losses=1)
                outcome = decided if replace(each, p_holm=p).significant else Contest(ties=1)
                found[one, other] += outcome
                found[other, one] += Contest(outcome.losses, outcome.ties, outcome.wins)
    return found


def complete(values: Iterable[float | None]) -> list[float]:
    """Return the values of a point's trials; nothing if any trial has no finite value."""
    every = list(values)
    known = [value for value in every if value is not None and isfinite(value)]
    return known if len(known) == len(every) else []


def complete_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of a point's trials; None if any trial has no finite value, or there is none."""
    known = complete(values)
    return mean_and_std(known)[0] if known else None


def best_point(values: Mapping[Key, Iterable[float | None]], column: str) -> tuple[Key, float] | None:
    """Return the point with the best mean of a column, the first of equal ones; None if no point has a mean.

    Args:
        values: values of each point's trials; see `complete_mean`.
        column: name of the column.
    """
    best: tuple[Key, float] | None = None
    for point, every in values.items():
        mean = complete_mean(every)
        if mean is not None and (best is None or is_better(column, mean, best[1])):
            best = point, mean
    return best


def signed_rank(differences: Iterable[float]) -> SignedRank:
    """Test paired differences with Wilcoxon's two-sided signed-rank test.

    Zeros are left out, as in Wilcoxon's paper. Equal differences share the mean of their ranks.

    Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945).
    """
    # Imported here: it takes seconds, which the report of a single run should not.
    from scipy import stats

    rounded = np.round(np.fromiter(differences, dtype=np.float64), DIGITS)
    nonzero = rounded[rounded != 0]
    pairs = len(nonzero)
    is_tied = len(np.unique(np.abs(nonzero))) < pairs
    if not pairs:
        return SignedRank(0, None, "none", 0)
    ranks = np.rint(2 * stats.rankdata(np.abs(nonzero))).astype(np.int64)  # doubled, because ties share halves
    above, below = int(ranks[nonzero > 0].sum()), int(ranks[nonzero < 0].sum())
    direction = (above > below) - (above < below)
    if not is_tied and pairs <= EXACT:
        return SignedRank(pairs, float(stats.wilcoxon(nonzero, method="exact").pvalue), "exact", direction)
    if is_tied and pairs <= EXACT_TIED:
        return SignedRank(pairs, _exact_p(ranks, above), "exact with ties", direction)
    normal = stats.wilcoxon(nonzero, correction=True, method="asymptotic")  # type: ignore[call-overload]  # stubs lack it
    return SignedRank(pairs, float(normal.pvalue), "normal approximation", direction)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Correct p values by Holm's step-down method; None stays None and does not count.

        p_(i) <- max over j <= i of min(1, (m - j + 1) p_(j)), for the i-th smallest of m

    Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    order = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[place] = largest
    return corrected


def averages(rows: Sequence[ResultRow]) -> dict[str, float]:
    """Average over data sets: the baseline's mean, and the others' differences in per cent of it.

    The means of the data sets are averaged first, so a data set with high values weighs more (RADFed, Table III). An
    algorithm without results on one of the data sets is left out.
    """
    datasets = {row.dataset for row in rows}
    found: dict[str, float] = {}
    for name in dict.fromkeys(row.algorithm for row in rows):
        own = [row for row in rows if row.algorithm == name]
        differences = [row.difference for row in own if row.difference and row.difference.pairs]
        means = [row.mean for row in own if row.difference is None and row.mean is not None]
        if len(means) == len(datasets):
            found[name] = mean_and_std(means)[0]
        elif len(differences) == len(datasets) and (base := sum(each.baseline for each in differences)):
            found[name] = 100 * sum(each.mean for each in differences) / abs(base)
    return found


def _exact_p(ranks: NDArray[np.int64], above: int) -> float:
    """Return the two-sided p of a sum of positive ranks, over all 2^n signs of n ranks.

    Args:
        ranks: whole numbers above 0.
        above: sum of the ranks of the positive differences.
    """
    ways = np.zeros(int(ranks.sum()) + 1, dtype=np.int64)  # number of signs by the sum of their positive ranks
    ways[0] = 1
    for rank in ranks:
        ways[rank:] = ways[rank:] + ways[:-rank]
    tail = min(int(ways[: above + 1].sum()), int(ways[above:].sum()))
    return float(min(1.0, 2 * tail / 2 ** len(ranks)))


def _counting(study: Findings, dataset: str) -> dict[str, list[TrialRow]]:
    """Return each algorithm's trials that count for the table, those that have not ended well included."""
    return {name: [each for each in study.of(dataset, name) if each.counts] for name in study.algorithms}


def _rows(study: Findings, dataset: str) -> list[ResultRow]:
    counting = _counting(study, dataset)
    baseline = counting.get(study.baseline, [])
    return [
        ResultRow(
            dataset=dataset,
            algorithm=name,
            point=trials[0].point if trials else None,
            values=_by_unit((each.split.unit, v) for each in trials if (v := each.value(study.metric)) is not None),
            statuses=Counter(each.status for each in trials or study.of(dataset, name)),
            difference=None if name == study.baseline else _difference(trials, baseline, study.metric),
        )
        for name, trials in counting.items()
    ]


def _difference(ours: Sequence[TrialRow], baseline: Sequence[TrialRow], metric: str) -> Difference:
    """Pair trials with the baseline's by seed and folds, then average over validation folds."""
    left, right = ({each.split: each.value(metric) for each in trials} for trials in (ours, baseline))
    both = {
        split: (value, other)
        for split, value in left.items()
        if value is not None and (other := right.get(split)) is not None
    }
    ahead = _by_unit((split.unit, value - other) for split, (value, other) in both.items())
    base = _by_unit((split.unit, other) for split, (_, other) in both.items())
    return Difference(
        test=signed_rank(ahead.values()),
        pairs=len(ahead),
        unpaired=len(left.keys() | right.keys()) - len(both),
        mean=mean_and_std(ahead.values())[0],
        baseline=mean_and_std(base.values())[0],
    )


def _by_unit(values: Iterable[tuple[Unit, float]]) -> dict[Unit, float]:
    """Return the mean of each unit's values, in the units' order."""
    found: dict[Unit, list[float]] = defaultdict(list)
    for unit, value in values:
        found[unit].append(value)
    order = sorted(found, key=lambda unit: tuple(-1 if each is None else each for each in unit))
    return {unit: mean_and_std(found[unit])[0] for unit in order}


def _corrected(rows: Sequence[ResultRow]) -> list[ResultRow]:
    compared = [row.difference for row in rows]
    corrected = holm([each.test.p if each else None for each in compared])
    return [
        replace(row, difference=replace(each, p_holm=p) if each else None)
        for row, each, p in zip(rows, compared, corrected, strict=True)
    ]
