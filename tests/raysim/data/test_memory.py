"""Names of data in memory: equal for equal values, and in place of the data wherever a text is needed."""

import numpy as np
import pyarrow as pa
import pytest

from partitioning import InputError
from raysim.data.catalogue import MEMORY
from raysim.data.memory import HeldData, fingerprint, take_objects
from raysim.data.sources import load

TABLE = pa.table({"x": np.arange(9000) / 7, "b": np.arange(9000) % 3 == 0, "label": np.arange(9000) % 2})


def test_a_fingerprint_depends_on_values_and_not_on_chunks() -> None:
    chunked = pa.concat_tables([TABLE.slice(0, 11), TABLE.slice(11)])
    assert chunked["x"].num_chunks == 2
    changed = TABLE.set_column(0, "x", pa.array([*(np.arange(8999) / 7), -1.0]))
    assert fingerprint(TABLE) == fingerprint(chunked) != fingerprint(changed)
    assert fingerprint(TABLE, TABLE) != fingerprint(TABLE, None) != fingerprint(None, TABLE)


def test_a_fingerprint_sees_through_dictionaries() -> None:
    words = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()])
    others = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["d"]).dictionary_encode()])
    assert fingerprint(pa.table({"x": words})) != fingerprint(pa.table({"x": others}))


def test_a_fingerprint_sees_the_rows_of_a_slice_alone() -> None:
    flags = pa.table({"flag": [True] * 16, "gaps": [None, 1, 2, 3] * 4})
    part = pa.table({"flag": [True] * 10, "gaps": [None, 1, 2, 3, None, 1, 2, 3, None, 1]})
    assert flags.slice(0, 10).equals(part) and fingerprint(flags.slice(0, 10)) == fingerprint(part)
    words = [str(row // 2500) for row in range(5000)]
    whole = pa.chunked_array([pa.array(words).dictionary_encode()])
    parts = pa.chunked_array([pa.array(words[half : half + 2500]).dictionary_encode() for half in (0, 2500)])
    assert fingerprint(pa.table({"x": whole})) == fingerprint(pa.table({"x": parts}))


def test_dictionaries_that_cannot_be_joined_are_refused() -> None:
    words = [
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), [str(first + number) for number in range(100)])
        for first in (0, 50)
    ]
    with pytest.raises(InputError, match="dictionary-encoded values cannot be joined"):
        HeldData.of(pa.table({"kind": pa.chunked_array(words), "label": [0, 1]}), "label")


def test_only_objects_are_taken_out_of_a_configuration() -> None:
    config = {"data": {"dataset": TABLE, "test": 0.1, "label": "label"}, "rounds": 1}
    raw, objects = take_objects(config)
    assert raw == {"data": {"dataset": MEMORY, "test": 0.1, "label": "label"}, "rounds": 1}
    assert objects == {"dataset": TABLE} and config["data"]["dataset"] is TABLE
    assert take_objects({"data": TABLE}) == ({"data": TABLE}, {})


def test_data_in_memory_are_checked_like_a_file() -> None:
    held = HeldData.of(TABLE, "label")
    assert load(held).name == held.name == str(held) == MEMORY + fingerprint(TABLE, None)
    for table, line in (
        (
            TABLE.append_column("name", pa.array(["a"] * 9000)),
            r"'name' is string: must be numbers .* leave columns out by data.without = \[\"name\"\]",
        ),
        (TABLE.set_column(0, "x", pa.array([np.nan] * 9000)), "the data in memory: 'x' is empty: .*; leave columns"),
        (TABLE.drop_columns("label"), "label column data.label = 'label' of the data in memory"),
        (TABLE.slice(0, 0), "has no rows"),
    ):
        with pytest.raises(InputError, match=line):
            load(HeldData.of(table, "label"))
    with pytest.raises(InputError, match=r"data.shifts = \['none'\] with data in memory"):
        load(held, shifts=["none"])
