"""Claims of a paper: a number, its counterpart in a study, and a condition.

Reductions of a column over the rounds of a run to one number, for claims and figures:

| take | number |
|---|---|
| `final` | value of the selected model |
| `last`, `best`, `least`, `mean` | last, largest, smallest and mean value over the rounds |
| `jitter` | standard deviation of the changes from one value to the next |
| `growth` | last minus first value of each whole `period`, averaged over the periods |
| `reached` | first round at `level`; infinity if there is none |
| `population` | a column of RADFed's table I about the clients: min, max, mean, std, c_score |
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from raysim.common.errors import InputError, check_known
from raysim.config.check import ConfigTable
from raysim.measures.selection import reaches

Take = Literal["final", "last", "best", "least", "mean", "jitter", "growth", "reached", "population"]

TAKEN: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    # NumPy propagates NaN; Python's max and min depend on its position.
    "best": lambda values: float(np.max(values)),
    "least": lambda values: float(np.min(values)),
    "mean": lambda values: float(np.mean(values)),
    "jitter": lambda values: float(np.std(np.diff(values))) if len(values) > 2 else np.nan,
}
"""Reductions that need the values alone."""

OF_ROUNDS = (*TAKEN, "growth", "reached")
"""Reductions over rounds."""

Reach = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
"""A round, or a fraction of all rounds."""

WORDS = ("ratio", "untested", "hours", "cause")
"""Keys of a claim for its readers, which decide neither its number nor its verdict."""


class Claim(ConfigTable):
    """`[[claim]]`: a number of the paper, its counterpart in the study, and the condition under which it holds.

    Args:
        says: the claim in words.
        dataset: data set of the study.
        algorithm: folder name of the algorithm.
        column: column of `trials.parquet`, or of `metrics.parquet`; with `client`, of `clients.parquet`.
        client: name of a client, if the number is that client's own after the last round.
        take: reduction of the column to a number; see the table of this module.
        level: value to reach, with take = "reached".
        period: number of values in a period, with take = "growth".
        since: first round that counts, as a number or a fraction of all rounds.
        until: last round that counts, likewise.
        tuned_with: further algorithms, one per setting such as a learning rate; the earliest round of all counts, with
            take = "reached".
        minus: algorithm to subtract.
        minus_dataset: data set of the subtracted number, if it differs from `dataset`.
        relative: divide the difference by the subtracted number.
        ratio: show readers the ratio of the two numbers, which is the relative difference plus 1.
        than_dataset: data set for a second difference of the two algorithms, which is subtracted from the first.
        paper: the paper's number.
        above: the claim holds if the number is greater than this.
        below: the claim holds if the number is less than this.
        within: the claim holds if the number is at most this far from the paper's.
        by_mean: judge the mean over seeds and folds alone, because the paper's number is such a mean.
        full: only the paper's setting can test the claim.
        untested: reason why no run here has tested the claim: "data" that no command gets, "hours" that were not spent,
            or a "picture" in place of the paper's number.
        hours: estimated hours of two cores for the claim's trials, with untested = "hours".
        cause: why the number is off, in a few words; found by runs.
    """

    says: str
    dataset: str
    algorithm: str
    column: str
    client: str | None = None
    take: Take = "final"
    level: float | None = None
    period: Annotated[int, Field(ge=2)] | None = None
    since: Reach | None = None
    until: Reach | None = None
    tuned_with: tuple[str, ...] | None = None
    minus: str | None = None
    minus_dataset: str | None = None
    relative: bool = False
    ratio: Literal[True] | None = None
    than_dataset: str | None = None
    paper: float | None = None
    above: float | None = None
    below: float | None = None
    within: Annotated[float, Field(ge=0)] | None = None
    by_mean: Literal[True] | None = None
    full: bool = False
    untested: Literal["data", "hours", "picture"] | None = None
    hours: Annotated[float, Field(gt=0)] | None = None
    cause: str | None = None

    def check(self) -> None:
        """Raise InputError if the keys contradict each other."""
        for holds, what in self._rules():
            if not holds:
                raise InputError(f"claim {self.says!r}: {what}; mend it")

    def _rules(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each rule holds, and the message if it does not."""
        given = [key for key in ("above", "below", "within") if getattr(self, key) is not None]
        yield len(given) == 1, f"has {' and '.join(given) or 'no condition'}: must have one of above, below and within"
        yield self.within is None or self.paper is not None, "has `within` and no paper's number: set paper"
        yield (
            self.than_dataset is None or (self.minus is not None and self.minus_dataset is None),
            "has than_dataset: must stand with `minus` and without `minus_dataset`",
        )
        yield (
            not self.relative or self.minus is not None or self.minus_dataset is not None,
            "has `relative` and nothing to subtract: must stand with `minus` or `minus_dataset`",
        )
        yield (
            not self.ratio or (self.relative and self.than_dataset is None),
            "has `ratio`: must stand with `relative` and without `than_dataset`",
        )
        for key, take in (("level", "reached"), ("period", "growth")):
            there = getattr(self, key) is not None
            yield there == (self.take == take), f'{key} must stand with take = "{take}", and only with it'
        yield (
            self.take in OF_ROUNDS or (self.since, self.until) == (None, None),
            f"has since or until, and take = {self.take!r}: must be one of {', '.join(OF_ROUNDS)}",
        )
        yield (
            self.tuned_with is None or (self.take == "reached" and self.minus is None),
            'has tuned_with: must stand with take = "reached", and without `minus`',
        )
        is_timed = self.untested == "hours"
        yield (self.hours is not None) == is_timed, 'hours must stand with untested = "hours", and only with it'
        yield (
            self.client is None or self.take == "final",
            f'has client = {self.client!r}, and take = {self.take!r}: must be "final", because clients are scored at '
            "the end alone",
        )
        if self.since is not None and self.until is not None and type(self.since) is type(self.until):
            # A round and a fraction can be compared only in a run.
            what = f"has since = {self.since} and until = {self.until}: must not begin after its end"
            yield self.since <= self.until, what

    def check_names(self, datasets: Collection[str], algorithms: Collection[str]) -> None:
        """Raise InputError if the study lacks the claim's algorithms or data sets.

        Args:
            datasets: names of the study's data sets; empty if the study has a single unnamed one.
            algorithms: folder names of the study's algorithms.
        """
        for name in filter(None, (self.algorithm, *(self.tuned_with or ()), self.minus)):
            check_known(f"claim {self.says!r}: algorithm {name!r}", name, algorithms)
        for name in filter(None, (self.dataset, self.minus_dataset, self.than_dataset) if datasets else ()):
            check_known(f"claim {self.says!r}: data set {name!r}", name, datasets)

    def met_by(self, number: float) -> bool:
        """Return whether a number meets the condition."""
        if self.above is not None:
            return number > self.above
        if self.below is not None:
            return number < self.below
        return abs(number - (self.paper or 0.0)) <= (self.within or 0.0)

    @property
    def condition(self) -> str:
        """Condition in words."""
        mean = "mean " if self.by_mean else ""
        if self.above is not None:
            return f"{mean}above {self.shown(self.above):g}"
        if self.below is not None:
            return f"{mean}below {self.shown(self.below):g}"
        return f"{mean}within {self.within:g} of the paper"

    def shown(self, number: float) -> float:
        """Return a number of the claim as readers see it."""
        return number + 1 if self.ratio else number


def growth(values: Sequence[float], period: int) -> float:
    """Return last minus first value of a period, averaged over all whole periods.

    Raises:
        InputError: there are fewer values than a period.
    """
    whole = len(values) // period * period
    if not whole:
        raise InputError(
            f"period = {period}: must be at most {len(values)}, the number of values; set more rounds, or a shorter one"
        )
    periods = np.reshape(values[:whole], (-1, period))
    return float(np.mean(periods[:, -1] - periods[:, 0]))


def reached(column: str, rounds: Sequence[int], values: Sequence[float], level: float) -> float:
    """Return the first round in which a column reaches `level`; infinity if it never does."""
    reaching = (
        round_number for round_number, value in zip(rounds, values, strict=True) if reaches(column, value, level)
    )
    return float(next(reaching, np.inf))


def round_of(reach: int | float | None, total: int, default: int) -> float:
    """Return a round from a number, a fraction of `total`, or the default."""
    if reach is None:
        return default
    return reach if isinstance(reach, int) else reach * total
