"""Text as tokens: samples with a label, or sequences that predict their next token."""

import os
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from algorithms.training.loss import NO_POSITION
from partitioning.common.bounds import check_memory
from partitioning.common.columns import value_type
from partitioning.common.paths import expanded, read_bytes
from partitioning.sources.arrays import nested
from raysim.common.distribution import require
from raysim.common.errors import InputError, unknown
from raysim.common.hub import NO_CODE, check_files, quiet_hub, reason_of
from raysim.common.log import LOG
from raysim.data.targets import class_metadata
from raysim.data.tokenizer_growth import check_growth

BYTES = "bytes"
"""Name of the tokenizer that needs no file: the bytes of the text in UTF-8."""

NO_TOKEN = -1
"""Value of the positions behind a text that is shorter than a sample."""

TOKENS, NEXT = "tokens", "next"
"""Names of the columns that stand in the place of the text."""

BATCH_ROWS = 256
"""Rows that are encoded in one call, because a tokenizer's own result takes many times the memory of its tokens."""

CHARACTER_BYTES = 100
"""Bytes that a tokenizer of the hub takes for each character of one call: some 400 for a token of four."""

Encode = Callable[[Sequence[Sequence[str]]], Sequence[NDArray[np.int32]]]


@dataclass(frozen=True)
class Tokenizer:
    """Tokenizer of some columns.

    Args:
        name: "bytes", a name of the Hugging Face hub, or a path: a folder, or a `tokenizer.json`.
        columns: the column of text, or two of pairs of texts.
        length: tokens of a sample; longer texts are cut.
        predict: "label", or "next-token" for sequences whose label at each position is the token that follows.
    """

    name: str = BYTES
    columns: tuple[str, ...] = ("text",)
    length: int = 128
    predict: Literal["label", "next-token"] = "label"

    def label(self, label: str | None) -> str | None:
        """Return the label column to read; text that predicts itself is its own."""
        return label if self.predict == "label" else self.columns[0]

    def __call__(self, table: pa.Table, label: str, owners: Collection[str], keep: Collection[str]) -> pa.Table:
        """Return a table with tokens in the place of its text: `tokens`, int32 [length], and the label.

        Args:
            table: rows with the columns of text.
            label: label column; "next-token" replaces it by `next`, int64 [length].
            owners: columns that identify a row's owner. Texts of one owner are joined before they are cut to sequences.
            keep: further columns to keep.

        Raises:
            InputError: a column of text is missing or holds none, or the tokenizer cannot be loaded.
        """
        for name in self.columns:
            if name not in table.schema.names:
                raise unknown(f"column {name!r} of data.text.column", name, table.schema.names)
            kind = value_type(table[name].type)
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise InputError(
                    f"column {name!r} of data.text.column is {table[name].type}: must hold text; name another column"
                )
        owners = [name for name in owners if name in table.schema.names and name not in self.columns]
        taken = {label, *owners, *keep} if self.predict == "label" else set(owners)
        if twice := sorted(taken & ({TOKENS} if self.predict == "label" else {TOKENS, NEXT})):
            raise InputError(f"column {twice[0]!r} has the name of a column that [data.text] adds: rename it")
        if self.predict == "label":
            return self._labelled(table, [*dict.fromkeys([label, *owners, *keep])])
        return self._sequences(table, owners)

    def _labelled(self, table: pa.Table, keep: Sequence[str]) -> pa.Table:
        dropped = [name for name in table.schema.names if name not in (*keep, *self.columns)]
        if dropped:
            LOG.info("columns beside the text and the labels are left out: %s", ", ".join(dropped))
        encode, _, _ = self._loaded(special=True)
        check_memory("the text as tokens", 4 * self.length * table.num_rows)
        rows = (ids for batch in self._encoded(table, encode) for ids in batch)
        tokens = _padded(rows, np.full((table.num_rows, self.length), NO_TOKEN, np.int32))
        rest = table.select([name for name in table.schema.names if name in keep])
        return rest.add_column(0, TOKENS, nested(tokens))

    def _sequences(self, table: pa.Table, owners: Sequence[str]) -> pa.Table:
        """Return all sequences of each owner's text: x_i = t[iL : iL + L], y_i = t[iL + 1 : iL + L + 1]."""
        encode, vocabulary, end = self._loaded(special=False)
        owner, first = _owners(table, owners)
        joined = [array("i") for _ in first]
        places, ending, count = iter(owner.tolist()), np.array(end, np.int32).tobytes(), 0
        for batch in self._encoded(table, encode):
            added = sum(map(len, batch)) + len(end) * len(batch)
            count += added
            # 4 bytes joined, which those before have taken already; 4 as inputs, and 8 as labels.
            check_memory("the text as tokens", 4 * added + 12 * count)
            for ids, place in zip(batch, places, strict=False):  # in this order, a batch's end takes no place
                joined[place].frombytes(ids.tobytes() + ending)
        counts = np.array([-(-(len(ids) - 1) // self.length) if len(ids) > 1 else 0 for ids in joined])
        if not counts.any():
            raise InputError(
                f"column {self.columns[0]!r} of data.text.column has no text of two tokens: must have one, because "
                "data.text.predict = 'next-token' predicts each token from those before it; name another column"
            )
        check_memory("the text as tokens", 12 * self.length * int(counts.sum()))

        def cut(shift: int) -> Iterator[NDArray[np.int32]]:
            for ids in (np.frombuffer(each, np.int32) for each in joined if each):
                last = len(ids) - 1  # nothing follows the last token
                for start in range(0, last, self.length):
                    yield ids[start + shift : min(start + self.length, last) + shift]

        shape = int(counts.sum()), self.length
        tokens = nested(_padded(cut(0), np.full(shape, NO_TOKEN, np.int32)))
        following = nested(_padded(cut(1), np.full(shape, NO_POSITION, np.int64)))
        rows = pa.array(np.repeat(first, counts))
        fields = [
            pa.field(TOKENS, tokens.type),
            *(table.schema.field(name) for name in owners),
            pa.field(NEXT, following.type, metadata=class_metadata(vocabulary)),
        ]
        columns = [tokens, *(table[name].take(rows) for name in owners), following]
        return pa.table(columns, schema=pa.schema(fields))

    def _encoded(self, table: pa.Table, encode: Encode) -> Iterator[Sequence[NDArray[np.int32]]]:
        """Yield the tokens of each row, a few rows at a time."""
        for batch in table.select(self.columns).to_batches(max_chunksize=BATCH_ROWS):
            yield encode([*zip(*(column.to_pylist() for column in batch.columns), strict=True)])

    def _loaded(self, special: bool) -> tuple[Encode, int, list[int]]:
        """Return the function from rows of texts to tokens, the number of tokens, and the tokens that end a text.

        Args:
            special: whether tokens such as the beginning of a text are added, and a text is cut to the length.
        """
        most = self.length if special else None
        if self.name == BYTES:

            def encode_bytes(rows: Sequence[Sequence[str]]) -> Sequence[NDArray[np.int32]]:
                texts = (" ".join(row).encode()[:most] for row in rows)
                return [np.frombuffer(text, np.uint8).astype(np.int32) for text in texts]

            return encode_bytes, 256, list(b"\n")
        tokenizer = _load(self.name)
        end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]

        def encode(rows: Sequence[Sequence[str]]) -> Sequence[NDArray[np.int32]]:
            cut = {"truncation": True, "max_length": self.length} if special else {"verbose": False}
            columns = [list(column) for column in zip(*rows, strict=True)]
            size = sum(len(text) for column in columns for text in column)
            where = f"data.text.tokenizer = {self.name!r} on {len(rows)} rows of {size:,} characters"
            check_memory(where, CHARACTER_BYTES * size)
            with _refused(self.name, "applied"):
                encoded = tokenizer(*columns, add_special_tokens=special, **cut)["input_ids"]
            return [np.array(ids[:most], np.int32) for ids in encoded]

        return encode, len(tokenizer), end


def _load(name: str) -> Any:
    require("transformers", f"data.text.tokenizer = {name!r}", ', or set data.text.tokenizer = "bytes"')
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # late, because it takes seconds

    path = expanded("data.text.tokenizer", name)
    with _refused(name, "loaded"):
        if path.suffix == ".json":
            check_growth(name, read_bytes(path))
            return PreTrainedTokenizerFast(tokenizer_file=os.fspath(path))
        if path.is_dir():
            check_files("data.text.tokenizer", path)
        if (inner := path / "tokenizer.json").is_file():
            check_growth(name, read_bytes(inner))
        source, _, revision = (os.fspath(path) if path.exists() else name).partition("@")
        with quiet_hub():
            tokenizer = AutoTokenizer.from_pretrained(source, revision=revision or "main", **NO_CODE)
        if tokenizer.is_fast:
            check_growth(name, tokenizer.backend_tokenizer.to_str())
        return tokenizer


@contextmanager
def _refused(name: str, done: str) -> Iterator[None]:
    try:
        yield
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library and its readers may raise anything, also panics
        raise InputError(
            f"data.text.tokenizer = {name!r} cannot be {done} ({reason_of(error)}): must be bytes, a folder, a "
            "tokenizer.json, or a name of the hub, and have a token for all text; check the name, the network and "
            "HF_HUB_OFFLINE"
        ) from error


def _owners(table: pa.Table, columns: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of each row's owner, in the order of their first rows, and these first rows."""
    rows = np.arange(table.num_rows)
    if not columns:
        return rows, rows
    numbers: dict[tuple[object, ...], int] = {}
    keys = zip(*(table[name].to_pylist() for name in columns), strict=True)
    owner = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    return owner, np.unique(owner, return_index=True)[1]


def _padded(rows: Iterator[NDArray[np.int32]], padding: NDArray[Any]) -> NDArray[Any]:
    """Return an array of padding with each row at its beginning."""
    for place, row in enumerate(rows):
        padding[place, : len(row)] = row
    return padding
