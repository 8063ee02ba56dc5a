"""Journals: rows on disk as soon as they are appended, and a table at the end."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysim.common.errors import DamagedError
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


def foreign(path: Path) -> None:
    """Another table in the place of the journal, of as many bytes or not."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, pa.schema([("x", pa.int64())])) as stream:
        stream.write_batch(pa.RecordBatch.from_pylist([{"x": 1}]))


def appended(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def changed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [foreign, appended, cut, changed, Path.unlink])
def test_what_was_damaged_since_is_refused_before_it_is_read(damage: Callable[[Path], object], tmp_path: Path) -> None:
    journal, path = Journal(tmp_path / "rows.journal", SCHEMA), tmp_path / "rows.journal"
    journal.append(pa.RecordBatch.from_pylist([{"round": 1, "name": "a"}], SCHEMA))
    journal.check()
    damage(path)
    with pytest.raises(DamagedError, match=r"rows\.journal is damaged: its rows are not those that were written"):
        journal.check()
    journal.close()


def test_a_long_journal_ends_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.store.journal.ROWS", 25)
    journal = Journal(tmp_path / "rows.journal", SCHEMA)
    for number in range(12):
        journal.append(pa.RecordBatch.from_pydict({"round": [number] * 10, "name": ["a"] * 10}, SCHEMA))
    journal.finish()
    with pq.ParquetFile(tmp_path / "rows.parquet") as file:
        assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [30, 30, 30, 30]
    assert pq.read_table(tmp_path / "rows.parquet").equals(joined(batches(tmp_path / "rows.journal"), SCHEMA))
