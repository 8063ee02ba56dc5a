"""Tables of devices: through Parquet and Arrow the devices are those of a plain reading, and mistakes are named."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from algorithms import DeviceTable
from raysim.common.errors import InputError
from raysim.devices import source
from raysim.devices.stored import open_stored, store, stored

Row = dict[str, Any]


def opened(rows: list[Row] | pa.Table, folder: Path, clients: int, seed: int = 0) -> DeviceTable:
    """Return the devices of a table after its way through the files."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "table.parquet", row_group_size=7)
    store(folder / "table.parquet", folder, clients)
    return again(folder, clients, seed)


def again(folder: Path, clients: int, seed: int) -> DeviceTable:
    """Return the stored devices."""
    path = stored(folder)
    assert path is not None
    return open_stored(path, clients, seed)[0]


def drawn(rng: np.random.Generator, clients: int) -> list[Row]:
    """Return rows with nulls, kinds and intervals, one for each client in a random order."""
    rows = []
    for client in rng.permutation(clients).tolist():
        times = np.sort(rng.choice(200, 2 * int(rng.integers(0, 5)), replace=False)).astype(float).tolist()
        row: Row = {"client": client, "device": str(rng.choice(["old", "new", "tablet"])), "latency": rng.random()}
        row |= {"compute": float(rng.lognormal()), "down": rng.choice([None, 0.0, 5.0]), "up": rng.choice([None, 2.0])}
        lists = (None, None) if rng.random() < 0.2 else (times[::2], times[1::2])
        rows.append({**row, "start": lists[0], "end": lists[1], "period": rng.choice([None, 200.0])})
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_devices_are_those_of_a_plain_reading(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH", 10)
    rng = np.random.default_rng(seed)
    rows = drawn(rng, 37)
    devices, ids = opened(rows, tmp_path, 37), np.arange(37)
    assert devices.kinds == tuple(dict.fromkeys(row["device"] for row in rows))
    for row in rows:
        client = row["client"]
        assert devices.kinds[devices.kind(ids)[client]] == row["device"]
        moving = (8 / row["down"] if row["down"] else 0) + (6 / row["up"] if row["up"] else 0)
        expected = row["latency"] + moving + 20 / row["compute"]
        assert devices.seconds(0, client, 20, 8, 6) == pytest.approx(expected, rel=1e-12)
        for now in rng.integers(0, 600, 20).tolist():
            time = now % row["period"] if row["period"] else now
            there = row["start"] is None or any(a <= time < b for a, b in zip(row["start"], row["end"], strict=True))
            assert devices.available(ids, now)[client] == there == (devices.until(client, now) > now)
        if row["start"] is None:
            assert devices.until(client, 3.0) == inf


def test_rows_with_long_lists_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    times = np.arange(20_000.0)
    rows = {"compute": [1.0] * 100, "start": [times] * 100, "end": [times + 0.5] * 100}
    pq.write_table(pa.table(rows), tmp_path / "table.parquet")
    batches = list(source.DeviceSource(tmp_path / "table.parquet", 0).batches())
    assert sum(len(each.counts) for each in batches) == 100 and len(batches) > 3
    assert all(each.starts.nbytes < 2**24 for each in batches)


def test_clients_draw_rows_by_their_share(tmp_path: Path) -> None:
    rows = [{"compute": 1.0, "share": 1.0}, {"compute": 2.0, "share": 0.0}, {"compute": 3.0, "share": 3.0}]
    devices = opened(rows, tmp_path, 4000)
    assert np.bincount(devices.rows, minlength=3) / 4000 == pytest.approx([0.25, 0, 0.75], abs=0.03)
    assert not devices.absent and devices.kinds == ("device",)
    same, other = again(tmp_path, 4000, 0), again(tmp_path, 4000, 1)
    assert np.array_equal(devices.rows, same.rows) and not np.array_equal(devices.rows, other.rows)


def test_arrays_are_views_of_the_file(tmp_path: Path) -> None:
    devices = opened(drawn(np.random.default_rng(0), 37), tmp_path, 37)
    assert devices.availability is not None
    for array in (devices.compute, devices.numbers, devices.availability.first, devices.availability.ends):
        assert not array.flags.owndata and not array.flags.writeable
    assert {path.suffix for path in tmp_path.iterdir()} == {".arrow", ".parquet"}


PAIR = {"start": [1.0, 5.0], "end": [2.0, 6.0]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"speed": 1.0}], "unknown column 'speed'"),
        ([{"latency": 1.0}], "must have the column compute with devices, and lacks it"),
        ([{"compute": 1.0}, {"compute": 0.0}], "row 1, column compute = 0.0: must be a finite number > 0"),
        ([{"compute": 1.0}, {"compute": None}], "row 1, column compute = None"),
        ([{"compute": inf}], "row 0, column compute = inf"),
        ([{"compute": "fast"}], "column compute: must hold values of type double, and is string"),
        (
            [{"compute": 5e-324}],
            r"row 0, column compute = 5e-324: must be a finite number > 0 \(from 1e-06 to 1e\+15\)",
        ),
        ([{"compute": 1.0, "share": 1e308}] * 2, r"row 0, column share = 1e\+308: must be a finite number >= 0"),
        ([{"compute": 1.0, "up": -1.0}], "row 0, column up = -1.0: must be a finite number >= 0"),
        ([{"compute": 1.0, "device": "a"}, {"compute": 1.0, "device": None}], "row 1, column device = None"),
        ([{"compute": 1.0, "client": 0, "share": 1.0}], "must have only one of the columns client and share"),
        ([{"compute": 1.0, "share": 0.0}], "with a share > 0"),
        ([{"compute": 1.0, "client": 2}], "row 0, column client = 2: must be the id of a client, >= 0 and below 2"),
        ([{"compute": 1.0, "client": -1}], "row 0, column client = -1"),
        ([{"compute": 1.0, "client": 0}] * 2, "2 clients, held-out ones included, and has 2 for client 0"),
        ([{"compute": 1.0, "client": 0}], "and has 0 for client 1"),
        ([{"compute": 1.0, "start": [0.0]}], "must have the column end with start"),
        ([{"compute": 1.0, "period": 5.0}], "must have the column start with period"),
        ([{"compute": 1.0, "start": 1.0, "end": 2.0}], "column start: must hold lists of seconds, and is double"),
        ([{"compute": 1.0, "start": [1.0], "end": [2.0, 3.0]}], "row 0, column end = .*: must be as long as"),
        ([{"compute": 1.0, "start": [1.0], "end": None}, {"compute": 1.0, **PAIR}], "row 0, column end = None"),
        ([{"compute": 1.0, **PAIR}, {"compute": 1.0, **PAIR, "start": [1.0, -1.0]}], "row 1, column start"),
        ([{"compute": 1.0, **PAIR, "start": [2.0, 5.0]}], "row 0, column end = .* each above its start"),
        ([{"compute": 1.0, **PAIR, "start": [1.0, 1.5]}], "row 0, column start = .* ascending"),
        ([{"compute": 1.0, **PAIR, "period": 5.5}], "row 0, column end = .* at most the period"),
        ([{"compute": 1.0, **PAIR, "period": 0.0}], "row 0, column period = 0.0: must be a finite number > 0"),
    ],
)
def test_mistakes_name_their_row_and_column(rows: list[Row], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        opened(rows, tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"table.parquet"}


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must have a row for each device"):
        opened(pa.table({"compute": pa.array([], pa.float64())}), tmp_path, 2)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_text("compute\n1.0\n")
    with pytest.raises(InputError, match=r"table.parquet'?: must be a readable Parquet file"):
        store(tmp_path / "table.parquet", tmp_path, 2)


def test_damaged_pages_and_repeated_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"compute": np.arange(1.0, 100.0)}), path)
    content = bytearray(path.read_bytes())
    content[10:200] = b"x" * 190
    path.write_bytes(content)
    with pytest.raises(InputError, match="must be a readable Parquet file"):
        store(path, tmp_path, 2)
    pq.write_table(pa.table({"compute": [1.0, 1.0]}), path)
    path.write_bytes(path.read_bytes().replace(b"compute", b"\xe5ompute"))
    with pytest.raises(InputError, match=r"must be a readable Parquet file .*decode"):
        store(path, tmp_path, 2)
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 2, ["compute"] * 2), path)
    with pytest.raises(InputError, match="must have each column once"):
        store(path, tmp_path, 2)


def test_other_types_of_columns_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "compute": pa.array([1, 2, 3], pa.float32()),
            "device": pa.array(["a", "b", "a"]).dictionary_encode(),
            "client": pa.array([2, 0, 1], pa.uint16()),
            "start": pa.array([[0, 1], None, [2, 3]], pa.list_(pa.int32(), 2)),
            "end": pa.array([[1, 2], None, [3, 5]], pa.large_list(pa.float32())),
        }
    )
    devices = opened(table, tmp_path, 3)
    assert devices.compute[devices.rows].tolist() == [2, 3, 1]
    assert devices.kind(np.arange(3)).tolist() == [1, 0, 0] and devices.kinds == ("a", "b")
    assert [devices.until(client, 0.5) for client in range(3)] == [inf, 0.5, 2]


@pytest.mark.parametrize("cut", [None, -20])
def test_a_damaged_copy_is_refused(cut: int | None, tmp_path: Path) -> None:
    opened(drawn(np.random.default_rng(0), 37), tmp_path, 37)
    path = stored(tmp_path)
    assert path is not None
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= cut is None
    path.write_bytes(content[:cut])
    with pytest.raises(InputError, match=r"is damaged .*: must be as raysim wrote it; restore it"):
        again(tmp_path, 37, 0)
