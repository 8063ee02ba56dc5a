"""What a claim comes to: its number on each split of the study, and whether they bear it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raysim.errors import InputError, unknown
from raysim.measures.selection import reaches
from raysim.reproduction.file import Claim
from raysim.studies.read import metrics_of

Verdict = Literal["holds", "holds in direction", "does not hold", "not tested here"]

Split = tuple[int, int | None, int | None]
"""The seed, the fold that is tested, and the one for validation."""

TAKEN: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "best": max,
    "least": min,
    "mean": lambda values: float(np.mean(values)),
    "jitter": lambda values: float(np.std(np.diff(values))) if len(values) > 2 else np.nan,
}


@dataclass(frozen=True)
class Judged:
    """A claim, and what it came to.

    Args:
        claim: the one.
        numbers: its number on each split, in the order of the splits; none where it is not tested here.
    """

    claim: Claim
    numbers: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """The mean over the splits."""
        return float(np.mean(self.numbers))

    @property
    def spread(self) -> float | None:
        """The standard deviation over the splits; None for one."""
        with np.errstate(invalid="ignore"):  # a level that is never reached is reached in round infinity
            return float(np.std(self.numbers, ddof=1)) if len(self.numbers) > 1 else None

    @property
    def verdict(self) -> Verdict:
        """It holds where every split bears it out, and in direction where their mean does."""
        if not self.numbers:
            return "not tested here"
        if all(self.claim.met_by(number) for number in self.numbers):
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
        return table.filter(pc.field("chosen") & (pc.field("stage") == "final") & (pc.field("status") == "done"))

    def judged(self, claim: Claim) -> Judged:
        """What a claim comes to; InputError where the study never has such a number."""
        if claim.minus is None and claim.minus_dataset is None:
            return Judged(claim, tuple(self._values(claim, claim.dataset, claim.algorithm).values()))
        here = self._differences(claim, claim.dataset, claim.minus_dataset or claim.dataset)
        if claim.than_dataset is None:
            return Judged(claim, tuple(here.values()))
        there = self._differences(claim, claim.than_dataset, claim.than_dataset)
        return Judged(claim, tuple(here[split] - there[split] for split in here if split in there))

    def _differences(self, claim: Claim, dataset: str, minus_dataset: str) -> dict[Split, float]:
        """What an algorithm is ahead of the other by, on each split that both have."""
        ours = self._values(claim, dataset, claim.algorithm)
        others = self._values(claim, minus_dataset, claim.minus or claim.algorithm)
        both = {split: (ours[split], others[split]) for split in ours if split in others}
        return {split: _difference(a, b, claim.relative) for split, (a, b) in both.items()}

    def _values(self, claim: Claim, dataset: str, algorithm: str) -> dict[Split, float]:
        """A column's value on each split, as far as an algorithm was run on a data set."""
        here = self._trials.filter((pc.field("dataset") == dataset) & (pc.field("algorithm") == algorithm))
        return {
            (row["seed"], row["fold"], row["validation"]): self._value(claim, row, algorithm)
            for row in here.to_pylist()
        }

    def _value(self, claim: Claim, row: Mapping[str, object], algorithm: str) -> float:
        if claim.take == "final":
            if claim.column not in row:
                raise unknown(f"column {claim.column!r} of trials.parquet", claim.column, list(row))
            return float(str(row[claim.column]))
        path = metrics_of(self._folder, str(row["trial"]), algorithm)
        if path is None:
            raise InputError(f"trial {row['trial']} has no metrics.parquet: must have its run; run the study again")
        table = pq.read_table(path)
        if claim.column not in table.schema.names:
            raise unknown(f"column {claim.column!r} of {path}", claim.column, table.schema.names)
        total = pc.max(table["round"]).as_py() or 0
        table = table.filter(pc.is_valid(table[claim.column]))
        table = table.filter(
            (pc.field("round") >= _round(claim.since, total, 1))
            & (pc.field("round") <= _round(claim.until, total, total))
        )
        values = table[claim.column].to_pylist()
        if not values:
            raise InputError(f"{path}: column {claim.column!r} has no value: must be measured; set evaluate.every")
        if claim.take != "reached":
            return TAKEN[claim.take](values)
        rounds = zip(table["round"].to_pylist(), values, strict=True)
        there = (number for number, value in rounds if reaches(claim.column, value, float(claim.level or 0)))
        return float(next(there, np.inf))


def _difference(ours: float, theirs: float, relative: bool) -> float:
    """What a number is above another; in parts of one that is infinite all of it is missing."""
    if not relative:
        return ours - theirs
    return -1.0 if np.isinf(theirs) and np.isfinite(ours) else (ours - theirs) / theirs


def _round(reach: int | float | None, total: int, default: int) -> float:
    """A round that is given as a number, or as a share of all."""
    if reach is None:
        return default
    return reach if isinstance(reach, int) else reach * total
