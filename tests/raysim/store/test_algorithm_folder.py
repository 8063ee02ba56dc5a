"""Rows of client updates, as an algorithm's folder writes them."""

import numpy as np
import pyarrow as pa

from raysim.store.algorithm_folder import _facts


def test_each_row_has_the_facts_of_its_client_and_none_without_a_client() -> None:
    facts = pa.RecordBatch.from_pydict({"client": [2, 5, 9], "domain": [7, 8, 6]})
    found = _facts(np.array([9, 2, -1, 4, 10, 5]), facts)
    assert {name: column.to_pylist() for name, column in found.items()} == {"domain": [6, 7, None, None, None, 8]}
    assert _facts(np.array([9]), facts.select(["client"])) == {}
