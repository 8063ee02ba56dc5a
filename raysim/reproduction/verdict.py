"""What a claim comes to: its number on each split of the study, and whether they bear it out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partitioning import Population
from partitioning.measures.statistics import summarise
from raysim.common.errors import InputError, unknown
from raysim.reproduction.claim import Claim
from raysim.reproduction.taking import TAKEN, growth, reached, round_of
from raysim.studies.read import metrics_of

Verdict = Literal["holds", "holds in direction", "does not hold", "not tested here"]

Split = tuple[int, int | None, int | None]
"""The seed, the fold that is tested, and the one for validation."""


@dataclass(frozen=True)
class Judged:
    """A claim, and what it came to.

    Args:
        claim: the one.
        numbers: its number on each split, in the order of the splits; none where it is not tested here.
        lost: how many of the trials that it is about did not end well.
    """

    claim: Claim
    numbers: tuple[float, ...] = ()
    lost: int = 0

    @property
    def mean(self) -> float:
        """The mean over the splits."""
        with np.errstate(invalid="ignore"):  # a level that is never reached is reached in round infinity
            return float(np.mean(self.numbers))

    @property
    def spread(self) -> float | None:
        """The standard deviation over the splits; None for one."""
        with np.errstate(invalid="ignore"):  # likewise
            return float(np.std(self.numbers, ddof=1)) if len(self.numbers) > 1 else None

    @property
    def verdict(self) -> Verdict:
        """It holds where every split bears it out, and in direction where the mean of those that ended well does."""
        if not self.numbers:
            return "not tested here"
        if not self.lost and all(self.claim.met_by(number) for number in self.numbers):
            return "holds"
        return "holds in direction" if self.claim.met_by(self.mean) else "does not hold"


class Measured:
    """The numbers of a study.

    Args:
        folder: of the study.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _trials(self) -> pa.Table:
        table = pq.read_table(self._folder / "trials.parquet")
        return table.filter(pc.field("chosen") & (pc.field("stage") == "final"))

    def judged(self, claim: Claim) -> Judged:
        """What a claim comes to; InputError where the study never has such a number."""
        others = (claim.minus_dataset, claim.than_dataset)
        datasets = {claim.dataset, *(each for each in others if each is not None)}
        lost = sum(self._lost(each, name) for each in datasets for name in {claim.algorithm, claim.minus} - {None})
        try:
            return Judged(claim, tuple(self._numbers(claim).values()), lost)
        except InputError as error:
            raise InputError(f"claim {claim.says!r}: {error}") from None

    def _numbers(self, claim: Claim) -> dict[Split, float]:
        if claim.minus is None and claim.minus_dataset is None:
            return self._values(claim, claim.dataset, claim.algorithm)
        here = self._differences(claim, claim.dataset, claim.minus_dataset or claim.dataset)
        if claim.than_dataset is None:
            return here
        there = self._differences(claim, claim.than_dataset, claim.than_dataset)
        return {split: here[split] - there[split] for split in here if split in there}

    def _of(self, dataset: str, algorithm: str | None) -> pa.Table:
        return self._trials.filter((pc.field("dataset") == dataset) & (pc.field("algorithm") == algorithm))

    def _lost(self, dataset: str, algorithm: str | None) -> int:
        """How many trials of an algorithm on a data set diverged or failed."""
        return int(self._of(dataset, algorithm).filter(pc.field("status") != "done").num_rows)

    def _differences(self, claim: Claim, dataset: str, minus_dataset: str) -> dict[Split, float]:
        """What an algorithm is ahead of the other by, on each split that both have."""
        ours = self._values(claim, dataset, claim.algorithm)
        others = self._values(claim, minus_dataset, claim.minus or claim.algorithm)
        both = {split: (ours[split], others[split]) for split in ours if split in others}
        return {split: _difference(a, b, claim.relative) for split, (a, b) in both.items()}

    def _values(self, claim: Claim, dataset: str, algorithm: str) -> dict[Split, float]:
        """A column's value on each split, as far as an algorithm was run on a data set."""
        here = self._of(dataset, algorithm).filter(pc.field("status") == "done")
        if claim.take == "population":
            # Of a seed's trials all have the same clients, of whom each holds others out.
            trials = {(row["seed"], None, None): row["trial"] for row in here.to_pylist()}
            return {split: self._of_clients(claim.column, trial) for split, trial in sorted(trials.items())}
        return {
            (row["seed"], row["fold"], row["validation"]): self._value(claim, row, algorithm)
            for row in here.to_pylist()
        }

    def _value(self, claim: Claim, row: Mapping[str, object], algorithm: str) -> float:
        if claim.take == "final":
            if claim.column not in row:
                raise unknown(f"column {claim.column!r} of trials.parquet", claim.column, list(row))
            if (value := row[claim.column]) is None:
                raise InputError(
                    f"trial {row['trial']} has no {claim.column}: must be measured in each trial; correct the claim"
                )
            return float(str(value))
        path = metrics_of(self._folder, str(row["trial"]), algorithm)
        if path is None:
            raise InputError(f"trial {row['trial']} has no metrics.parquet: must have its run; run the study again")
        table = pq.read_table(path)
        if claim.column not in table.schema.names:
            raise unknown(f"column {claim.column!r} of {path}", claim.column, table.schema.names)
        rounds, values = _counting(table, claim)
        if not values:
            raise InputError(f"{path}: column {claim.column!r} has no value: must be measured; set evaluate.every")
        if claim.take == "growth":
            return growth(values, claim.period or 0)
        if claim.take == "reached":
            return reached(claim.column, rounds, values, float(claim.level or 0))
        return TAKEN[claim.take](values)

    def _of_clients(self, column: str, trial: str) -> float:
        """A number of a trial's population: all clients, whatever is held out."""
        config = tomllib.loads((self._folder / "trials" / trial / "config.toml").read_text(encoding="utf-8"))
        numbers = asdict(summarise(Population.open(config["data"]["population"]).class_counts))
        if not isinstance(numbers.get(column), int | float):
            known = [name for name, value in numbers.items() if isinstance(value, int | float)]
            raise unknown(f"column {column!r} of a population", column, known)
        return float(numbers[column])


def _counting(table: pa.Table, claim: Claim) -> tuple[list[int], list[float]]:
    """The rounds that count for a claim and were measured, and their values."""
    total = pc.max(table["round"]).as_py() or 0
    first, last = round_of(claim.since, total, 1), round_of(claim.until, total, total)
    counts = (pc.field("round") >= first) & (pc.field("round") <= last) & pc.field(claim.column).is_valid()
    table = table.filter(counts)
    return table["round"].to_pylist(), table[claim.column].to_pylist()


def _difference(ours: float, theirs: float, relative: bool) -> float:
    """What a number is above another; in parts of one that is infinite all of it is missing."""
    if not relative:
        return ours - theirs
    if np.isinf(theirs) and np.isfinite(ours):
        return -1.0
    # Of nothing there are no parts: a number that bears nothing out.
    return (ours - theirs) / theirs if theirs else float("nan")
