"""Verdicts: a claim's number on each split of a study, and whether they meet its condition."""

import tomllib
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partitioning import Population
from partitioning.common.paths import read_parquet, read_text
from partitioning.measures.statistics import summarise
from raysim.common.errors import InputError, check_known
from raysim.common.names import CLIENTS
from raysim.common.statistics import mean_and_std
from raysim.reproduction.claim import TAKEN, Claim, growth, reached, round_of
from raysim.studies.folder import TRIALS, VIRTUAL_TIME
from raysim.studies.read import Findings, TrialRow, metrics_of
from raysim.studies.split import Split

Verdict = Literal["holds", "holds in direction", "does not hold", "not tested here"]


@dataclass(frozen=True)
class JudgedClaim:
    """Claim with its numbers and verdict.

    Args:
        claim: the claim.
        numbers: its number on each split, in order; empty if the claim is not tested here.
        lost: number of its trials that diverged or failed, and of its algorithms without a winner.
    """

    claim: Claim
    numbers: tuple[float, ...] = ()
    lost: int = 0

    @property
    def mean(self) -> float:
        """Mean over the splits."""
        return mean_and_std(self.numbers)[0]

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over the splits; None for a single split."""
        return mean_and_std(self.numbers)[1]

    @property
    def verdict(self) -> Verdict:
        """Verdict: every split meets the condition, or only the mean of the finished ones, or neither.

        With `by_mean`, the mean counts in place of the splits. If all trials are lost, the claim does not hold.
        """
        if not self.numbers and not self.lost:
            return "not tested here"
        judged = (self.mean,) if self.claim.by_mean else self.numbers
        if not self.lost and all(self.claim.met_by(number) for number in judged):
            return "holds"
        return "holds in direction" if self.claim.met_by(self.mean) else "does not hold"


@dataclass(frozen=True)
class StudyNumbers:
    """Numbers of a finished study, and verdicts from them."""

    study: Findings

    @cached_property
    def _lost(self) -> list[tuple[str, str]]:
        """Data set and algorithm of each trial that has not ended well, and of each algorithm without a winner."""
        counting = [each for each in self.study.trials if each.counts]
        return [*((each.dataset, each.algorithm) for each in counting if each.status != "done"), *self.study.lost]

    def judge(self, claim: Claim) -> JudgedClaim:
        """Judge a claim; raise InputError if the study cannot have its number."""
        datasets = {claim.dataset, claim.minus_dataset, claim.than_dataset} - {None}
        names = {claim.algorithm, claim.minus, *(claim.tuned_with or ())} - {None}
        lost = sum(dataset in datasets and name in names for dataset, name in self._lost)
        try:
            numbers = tuple(self._numbers(claim).values())
        except InputError as error:
            raise InputError(f"claim {claim.says!r}: {error}") from None
        tried = {*self._lost, *((each.dataset, each.algorithm) for each in self.study.trials if each.counts)}
        is_tested = datasets <= {dataset for dataset, _ in tried} and names <= {name for _, name in tried}
        return JudgedClaim(claim, numbers, lost if numbers or is_tested else 0)

    def _numbers(self, claim: Claim) -> dict[Split, float]:
        if claim.minus is None and claim.minus_dataset is None:
            return self._tuned(claim, claim.dataset)
        here = self._differences(claim, claim.dataset, claim.minus_dataset or claim.dataset)
        if claim.than_dataset is None:
            return here
        there = self._differences(claim, claim.than_dataset, claim.than_dataset)
        return {split: here[split] - there[split] for split in here if split in there}

    def _differences(self, claim: Claim, dataset: str, minus_dataset: str) -> dict[Split, float]:
        """Return the difference of two algorithms on each split that both have."""
        ours = self._tuned(claim, dataset)
        others = self._values(claim, minus_dataset, claim.minus) if claim.minus else self._tuned(claim, minus_dataset)
        both = {split: (ours[split], others[split]) for split in ours if split in others}
        return {split: _difference(a, b, claim.relative) for split, (a, b) in both.items()}

    def _tuned(self, claim: Claim, dataset: str) -> dict[Split, float]:
        """Return the claim's value on each split: with `tuned_with`, the least of its algorithms."""
        values = self._values(claim, dataset, claim.algorithm)
        for name in claim.tuned_with or ():
            for split, value in self._values(claim, dataset, name).items():
                values[split] = min(value, values.get(split, inf))
        return values

    def _values(self, claim: Claim, dataset: str, algorithm: str) -> dict[Split, float]:
        """Return a column's value on each split with a finished trial."""
        here = self.study.counting(dataset, algorithm)
        if claim.take == "population":
            # All trials of a partition have the same clients; they differ in the seed and the held-out ones.
            trials = {Split(0, partition=each.split.partition): each.folder for each in here}
            order = sorted(trials, key=lambda split: split.partition or 0)
            return {split: self._of_clients(claim.column, trials[split]) for split in order}
        return {each.split: self._value(claim, each) for each in here}

    def _value(self, claim: Claim, trial: TrialRow) -> float:
        if claim.take == "final" and claim.client is None:
            return _final(claim.column, trial)
        path = metrics_of(self.study.folder, trial.folder, trial.algorithm)
        if claim.client is not None:
            return _of_client(claim.client, claim.column, trial.folder, path and path.with_name(CLIENTS))
        if path is None:
            raise InputError(f"trial {trial.folder} has no metrics.parquet: must have its run; run the study again")
        table = read_parquet(path)
        check_known(f"column {claim.column!r} of {path}", claim.column, table.schema.names)
        rounds, values = _counting(table, claim)
        if not values:
            raise InputError(f"{path}: column {claim.column!r} has no value: must be measured; set evaluate.every")
        if claim.take == "growth":
            return growth(values, claim.period or 0)
        if claim.take == "reached":
            return reached(claim.column, rounds, values, float(claim.level or 0))
        return TAKEN[claim.take](values)

    def _of_clients(self, column: str, trial: str) -> float:
        """Return a number about all clients of a trial's population."""
        config = tomllib.loads(read_text(self.study.folder / "trials" / trial / "config.toml"))
        numbers = asdict(summarise(Population.open(config["data"]["population"]).class_counts))
        known = [name for name, value in numbers.items() if isinstance(value, int | float)]
        check_known(f"column {column!r} of a population", column, known)
        return float(numbers[column])


def _final(column: str, trial: TrialRow) -> float:
    """Return a column of a trial's selected model, or of the trial itself."""
    known = {"seconds": trial.seconds, "rounds": trial.rounds, **trial.metrics}
    value = known.get(column)
    if value is None and column.startswith(VIRTUAL_TIME):
        return inf  # a target that the trial did not reach
    check_known(f"column {column!r} of {TRIALS}", column, known)
    if value is None:
        raise InputError(f"trial {trial.folder} has no {column}: must be measured in each trial; correct the claim")
    return float(value)


def _of_client(client: str, column: str, trial: str, path: Path | None) -> float:
    """Return a client's number after the last round of a trial, from its table of clients."""
    if path is None or not path.is_file():
        raise InputError(f"trial {trial} has no {CLIENTS}: must score its clients; set evaluate.clients = true")
    table = read_parquet(path)
    for name in ("name", column):
        check_known(f"column {name!r} of {path}", name, table.schema.names)
    names = table["name"].to_pylist()
    check_known(f"client {client!r}", client, names)
    value = table[column][names.index(client)].as_py()
    if value is None:
        raise InputError(f"client {client!r} of trial {trial} has no {column}: must have a test part; name another")
    return float(value)


def _counting(table: pa.Table, claim: Claim) -> tuple[list[int], list[float]]:
    total = pc.max(table["round"]).as_py() or 0
    first, last = round_of(claim.since, total, 1), round_of(claim.until, total, total)
    counts = (pc.field("round") >= first) & (pc.field("round") <= last) & pc.field(claim.column).is_valid()
    table = table.filter(counts)
    return table["round"].to_pylist(), table[claim.column].to_pylist()


def _difference(ours: float, theirs: float, relative: bool) -> float:
    """Return the difference of two numbers. Relative to infinity, it is -1."""
    if not relative:
        return ours - theirs
    if np.isinf(theirs) and np.isfinite(ours):
        return -1.0
    # A relative difference from 0 is undefined, and NaN meets no condition.
    return (ours - theirs) / theirs if theirs else float("nan")
