"""Deviations of numeric columns, pooled over blocks of rows, against NumPy's own."""

import numpy as np
import pyarrow as pa
import pytest

from partitioning.measures.numeric import deviations


def test_deviations_are_those_of_all_rows_in_whatever_batches_they_come():
    # The mean drifts, so blocks of rows differ from each other by more than rows do within one.
    rows = np.random.default_rng(0).standard_normal((10_000, 3)) + np.linspace(0, 50, 10_000)[:, None]
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)
    table = pa.table({"label": np.zeros(10_000, int), "x": column, "step": np.arange(10_000)})
    found = [deviations(table.to_batches(max_chunksize=size), "label") for size in (10_000, 4096, 700)]
    assert found[0] == found[1] == found[2]
    assert found[0] == pytest.approx({"x": rows.std(), "step": np.arange(10_000).std()}, rel=1e-12)
