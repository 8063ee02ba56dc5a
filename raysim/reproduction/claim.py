"""A claim: a number of the paper, where its counterpart is, and what would bear it out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from raysim.common.errors import InputError, unknown
from raysim.config.check import Table
from raysim.reproduction.taking import OF_ROUNDS, Take

Reach = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
"""A round, or a share of them all."""


class Claim(Table):
    """`[[claim]]`: a number of the paper, where its counterpart is, and what would bear it out.

    Args:
        says: the claim, in words.
        dataset: of the study.
        algorithm: its folder.
        column: of the results, or of `metrics.parquet`.
        take: what of the column, see `raysim.reproduction.taking`.
        level: that must be reached, with take = "reached".
        period: in values of the column, with take = "growth".
        since: the first of the rounds that count, as a number or as a share of all.
        until: likewise the last one.
        minus: the algorithm that is subtracted; with `minus_dataset` also, or only, on another data set.
        minus_dataset: see `minus`.
        relative: whether the difference is in parts of what is subtracted.
        than_dataset: a data set whose difference between the two algorithms is subtracted from that of `dataset`.
        paper: the paper's number.
        above: it holds if the number is above this one;
        below: if it is below;
        within: if it is no further from the paper's.
        full: whether only the paper's setting can tell.
    """

    says: str
    dataset: str
    algorithm: str
    column: str
    take: Take = "final"
    level: float | None = None
    period: Annotated[int, Field(ge=2)] | None = None
    since: Reach | None = None
    until: Reach | None = None
    minus: str | None = None
    minus_dataset: str | None = None
    relative: bool = False
    than_dataset: str | None = None
    paper: float | None = None
    above: float | None = None
    below: float | None = None
    within: Annotated[float, Field(ge=0)] | None = None
    full: bool = False

    def check(self) -> None:
        """InputError where the keys do not go together."""
        conditions = [key for key in ("above", "below", "within") if getattr(self, key) is not None]
        self._require(
            len(conditions) == 1,
            f"has {' and '.join(conditions) or 'no condition'}: must have one of above, below and within",
        )
        self._require(
            self.within is None or self.paper is not None, "has `within` and no number of the paper: set paper"
        )
        self._require(
            self.than_dataset is None or (self.minus is not None and self.minus_dataset is None),
            "has than_dataset: must stand with `minus` and without `minus_dataset`",
        )
        self._require(
            not self.relative or self.minus is not None or self.minus_dataset is not None,
            "has `relative` and nothing that is subtracted: must stand with `minus` or `minus_dataset`",
        )
        for key, take in (("level", "reached"), ("period", "growth")):
            there = getattr(self, key) is not None
            self._require(there == (self.take == take), f'{key} must stand with take = "{take}", and only there')
        self._require(
            self.take in OF_ROUNDS or (self.since, self.until) == (None, None),
            f"has since or until, and take = {self.take!r}: must be of {', '.join(OF_ROUNDS)}",
        )
        if self.since is not None and self.until is not None and type(self.since) is type(self.until):
            # Else one is a round and the other a share, which compare only in a run.
            what = f"has since = {self.since} and until = {self.until}: must not begin after its end"
            self._require(self.since <= self.until, what)

    def check_names(self, datasets: Collection[str], algorithms: Collection[str]) -> None:
        """InputError where the study has no such algorithm or data set: such a claim would never be tested.

        Args:
            datasets: of the study; none where it has one that is called by its data.
            algorithms: of the study.
        """
        for name in filter(None, (self.algorithm, self.minus)):
            self._known("algorithm", name, algorithms)
        for name in filter(None, (self.dataset, self.minus_dataset, self.than_dataset) if datasets else ()):
            self._known("data set", name, datasets)

    def _known(self, what: str, name: str, there: Collection[str]) -> None:
        if name not in there:
            raise unknown(f"claim {self.says!r}: {what} {name!r}", name, there)

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise InputError(f"claim {self.says!r}: {what}; mend it")

    def met_by(self, number: float) -> bool:
        """Whether a number bears the claim out."""
        if self.above is not None:
            return number > self.above
        if self.below is not None:
            return number < self.below
        return abs(number - (self.paper or 0.0)) <= (self.within or 0.0)

    @property
    def condition(self) -> str:
        """The condition in words."""
        if self.above is not None:
            return f"above {self.above:g}"
        return f"below {self.below:g}" if self.below is not None else f"within {self.within:g} of the paper"
