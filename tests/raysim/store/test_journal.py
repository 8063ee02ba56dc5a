"""Journals: rows on disk as soon as they are appended, and a table at the end."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysim.store.journal import GROUP, Journal, batches, joined

SCHEMA = pa.schema([("round", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize("rounds", [0, 1, GROUP, 2 * GROUP + 3])
def test_many_batches_end_as_one_table(rounds: int, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "rows.journal", SCHEMA)
    for number in range(rounds):
        row = {"round": number, "name": None if number % 3 else f"{number}"}
        journal.append(pa.RecordBatch.from_pylist([row], SCHEMA))
    table = joined(batches(tmp_path / "rows.journal"), SCHEMA)
    assert table["round"].to_pylist() == list(range(rounds))
    assert table["round"].num_chunks <= 1  # 100,000 batches of a row took 1.2 GB
    journal.finish()
    assert pq.read_table(tmp_path / "rows.parquet").equals(table)
