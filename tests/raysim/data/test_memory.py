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
        (TABLE.set_column(0, "x", pa.array([np.nan] * 9000)), r"the data in memory: 'x' has nulls \(9000 rows\)"),
        (TABLE.drop_columns("label"), "label column data.label = 'label' of the data in memory"),
        (TABLE.slice(0, 0), "has no rows"),
    ):
        with pytest.raises(InputError, match=line):
            load(HeldData.of(table, "label"))
    with pytest.raises(InputError, match=r"data.shifts = \['none'\] with data in memory"):
        load(held, shifts=["none"])
