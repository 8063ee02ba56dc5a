"""Facts about the columns of a table, from which `raysim init` proposes their roles."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from partitioning.common.columns import check_text, is_label, value_type
from partitioning.sources.source import Source
from partitioning.store.own_tests import TEST, TRAIN
from raysim.data.columns import FEW, is_date, is_scalar, known_values, missing_rows, signs_of_missing, wrong_date
from raysim.data.features import is_number

OWNER = re.compile(
    "(client|user|patient|subject|person|site|hospital|clinic|centre|center|ward|device|speaker|writer|school|domain|owner|party"
    "|node|account|institution)"
    "(_?(id|name|no))?",
    re.IGNORECASE,
)
"""Usual names of a column that says whose a row is."""

MOST_DISTINCT = 2**16
"""Most different values of a column that are kept."""

HASHES = 2**64
"""Number of hashes of a value, all equally likely."""

LEAST_NUMBERS = 10
"""Different texts from which a column of text may be one of numbers with signs of missing values."""

FEW_NUMBERS = range(3, 11)
"""Numbers of different whole numbers that may be codes of categories."""

MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"

FOREIGN_DATE = re.compile(
    rf"(\d\d?\.\d\d?\.\d{{4}}|\d\d\.\d\d\.\d\d|\d\d?([/-])\d\d?\2(\d{{4}}|\d\d)|\d{{4}}([./-])\d\d?\4\d\d?"
    rf"|\d\d?[-. ]+{MONTH}[-., ]+(\d{{4}}|\d\d)|{MONTH}\.? \d\d?,? \d{{4}})"
    r"([ T,]+\d\d?:\d\d[\d:.]*( ?[ap]m)?)?",
    re.IGNORECASE,
)
"""Usual forms of dates, such as 17/04/2023, 17/4/23, 17.04.23, 2023/04/17, 17-Apr-2023 and April 17, 2023."""


@dataclass
class ColumnFacts:
    """Facts about a column.

    Args:
        name: name of the column.
        kind: type of its values.
        rows: rows read so far.
        missing: missing values among them.
        values: different values, up to `MOST_DISTINCT`.
        dates: whether all known values are dates.
        counted: rows with known values that were counted.
        least: the least hashes of the values, up to `MOST_DISTINCT`, if the name is an owner's.
    """

    name: str
    kind: pa.DataType
    rows: int = 0
    missing: int = 0
    values: set[object] = field(default_factory=set)
    dates: bool = True
    counted: int = 0
    least: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def repeats(self) -> bool:
        """Whether a value has two rows or more, on average; a number of the row has one."""
        if len(self.least) < MOST_DISTINCT:
            return self.counted >= 2 * len(self.values)
        # The K least of n hashes show that n is about K times their range over the K-th one (Bar-Yossef et al. 2002).
        # Its standard error is 1 / sqrt(K), 0.4 %: two rows of each value are two in spite of five such errors.
        return self.rows - self.missing >= 1.96 * MOST_DISTINCT * (HASHES / int(self.least[-1]))

    def add(self, column: pa.Array) -> None:
        """Take in more rows."""
        self.rows += len(column)
        self.missing += missing_rows(column)
        if self.is_text or pa.types.is_integer(self.kind):
            is_owner, is_open = OWNER.fullmatch(self.name), len(self.values) <= MOST_DISTINCT
            values = pc.unique(known_values(column)).drop_null().to_pylist() if is_owner or is_open else []
            if is_open:
                self.values.update(values)
                self.counted += len(column) - missing_rows(column)
            if is_owner:
                joined = b"".join(blake2b(str(each).encode(), digest_size=8).digest() for each in values)
                hashes = np.frombuffer(joined, np.uint64)
                if len(self.least) == MOST_DISTINCT:
                    hashes = hashes[hashes < self.least[-1]]  # few, so that most batches need no sorting
                if len(hashes):
                    self.least = np.union1d(self.least, hashes)[:MOST_DISTINCT]
            self.dates = self.dates and self.is_text and not wrong_date(column)

    @property
    def is_text(self) -> bool:
        """Whether the column holds text."""
        return is_label(self.kind) and not is_number(self.kind)

    @property
    def signs(self) -> list[str]:
        """Texts among numbers, which may stand for missing values."""
        texts = pa.array(sorted(map(str, self.values)), pa.large_string()) if self.is_text else []
        return signs_of_missing(texts) if len(texts) > LEAST_NUMBERS else []

    @property
    def is_empty(self) -> bool:
        """Whether no value is known."""
        return self.missing == self.rows

    @property
    def is_split(self) -> bool:
        """Whether the column divides rows into training and test rows."""
        return self.is_text and not self.missing and self.values == {TRAIN, TEST}

    @property
    def is_date(self) -> bool:
        """Whether the column holds dates."""
        return not self.is_empty and (is_date(self.kind) or (self.is_text and self.dates))

    @property
    def is_foreign_date(self) -> bool:
        """Whether the column holds text that looks like dates, but not like 2023-04-17."""
        if not self.is_text or self.is_empty or self.is_date:
            return False
        return all(FOREIGN_DATE.fullmatch(str(each)) for each in self.values)

    @property
    def is_identifier(self) -> bool:
        """Whether the column holds a different whole number in every row."""
        is_different = len(self.values) == self.counted > LEAST_NUMBERS
        return is_different and pa.types.is_integer(self.kind) and not self.missing

    @property
    def is_category(self) -> bool:
        """Whether the column holds text that repeats as categories do."""
        if not self.is_text or self.is_date or self.is_foreign_date or self.signs:
            return False
        return len(self.values) > 1 and (len(self.values) <= FEW or self.repeats)

    @property
    def may_be_category(self) -> bool:
        """Whether the column holds few whole numbers, which may be codes."""
        return pa.types.is_integer(self.kind) and len(self.values) in FEW_NUMBERS

    @property
    def line(self) -> str:
        """The column in words."""
        kind = value_type(self.kind)
        counted = f", {len(self.values)} different" if self.is_text and len(self.values) <= MOST_DISTINCT else ""
        return f"{self.name}: {kind}{counted}" + (f", {self.missing} of {self.rows} missing" if self.missing else "")


def facts_of(source: Source) -> list[ColumnFacts]:
    """Read a table once and return the facts about each of its plain columns, in their order.

    Raises:
        InputError: a text is not UTF-8, or the table cannot be read.
    """
    found = [ColumnFacts(each.name, each.type) for each in source.schema if is_scalar(each.type)]
    rows = 0
    for batch in source.batches([each.name for each in found]) if found else ():
        check_text(batch, name=source.name, first=rows)
        rows += batch.num_rows
        for facts, column in zip(found, batch.columns, strict=True):
            facts.add(column)
    return found
