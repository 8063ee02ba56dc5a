"""FedScale's traces: drawn ones are converted as FedScale uses them, and no pickle runs code."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysim.common.errors import InputError
from raysim.devices.fedscale import read_fedscale
from raysim.devices.stored import open_stored, store, stored

CAPACITY = {1: {"computation": 20.0, "communication": 800.0}, 2: {"computation": 50, "communication": 8000.5}}
TRACE = {"duration": 9, "inactive": [5, 9], "finish_time": 10, "active": [2, 7], "model": "phone"}


def pickled(path: Path, content: Any) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


def test_numbers_by_hand(tmp_path: Path) -> None:
    late = {**TRACE, "active": [8, 0, 20], "inactive": [12, 4, 30]}
    never = {**TRACE, "active": [], "inactive": []}
    capacity = pickled(tmp_path / "capacity", {**CAPACITY, 3: CAPACITY[1], 4: CAPACITY[1]})
    read_fedscale(capacity, pickled(tmp_path / "behaviour", {7: TRACE, 8: late, 9: never}), tmp_path / "t.parquet")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [row["compute"] for row in rows] == pytest.approx([1000 / 60, 1000 / 150, 1000 / 60, 1000 / 60])
    # 800 kilobits of 1024 bits a second are 102,400 bytes a second.
    assert rows[0]["down"] == rows[0]["up"] == 102_400
    found = [(row["start"], row["end"], row["period"]) for row in rows]
    assert found == [([2, 7], [5, 9], 10), ([0, 8], [4, 10], 10), ([], [], 10), ([2, 7], [5, 9], 10)]


@pytest.mark.parametrize("seed", range(5))
def test_drawn_traces_are_active_as_in_fedscale(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    traces = {}
    for client in range(30):
        times = np.sort(rng.choice(100, 2 * int(rng.integers(1, 8)), replace=False)).tolist()
        traces[client] = {**TRACE, "active": times[::2], "inactive": times[1::2], "finish_time": times[-1] + 1}
    capacity = {client: {"computation": rng.random() + 1, "communication": 5.0} for client in range(30)}
    read_fedscale(pickled(tmp_path / "c", capacity), pickled(tmp_path / "b", traces), tmp_path / "t.parquet")
    store(tmp_path / "t.parquet", tmp_path, 80)
    devices, _ = open_stored(stored(tmp_path) or tmp_path, 80, 0)
    for now in (rng.integers(0, 400, 30) + 0.5).tolist():
        active = [
            any(a <= now % each["finish_time"] <= b for a, b in zip(each["active"], each["inactive"], strict=True))
            for each in traces.values()
        ]
        assert devices.available(np.arange(80), now).tolist() == [active[row] for row in devices.rows]
    for client, row in enumerate(devices.rows.tolist()):
        assert devices.compute_seconds(0, client, 7) == pytest.approx(3 * 7 * capacity[row]["computation"] / 1000)


def test_without_traces_all_are_always_available(tmp_path: Path) -> None:
    read_fedscale(pickled(tmp_path / "c", CAPACITY), None, tmp_path / "t.parquet")
    assert pq.read_schema(tmp_path / "t.parquet").names == ["compute", "down", "up"]


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made",)


def test_a_pickle_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"it names posix.mkdir, which could run code"):
        read_fedscale(pickled(tmp_path / "c", {1: Runs()}), None, tmp_path / "t.parquet")
    assert not (tmp_path / "made").exists() and not (tmp_path / "t.parquet").exists()


NESTED: list[Any] = [0.0] * 10
for _ in range(12):
    NESTED = [NESTED] * 10  # a few hundred bytes, and an array of 80 terabytes


@pytest.mark.parametrize(
    ("capacity", "behaviour", "message"),
    [
        ([1], None, "must be FedScale's pickle of a dictionary"),
        ({}, None, "must be FedScale's pickle of a dictionary"),
        ({1: {"computation": 1.0}}, None, "client 1: must be FedScale's pickle .* computation, communication"),
        ({1: {"computation": 0, "communication": 1.0}}, None, r"client 1: .* \(0, 1.0\): must be numbers from 1e-06"),
        ({1: {"computation": "1", "communication": 1.0}}, None, r"must be numbers from 1e-06 to 1e\+15"),
        ({1: {"computation": 10**5000, "communication": 1.0}}, None, r"must be numbers from 1e-06 to 1e\+15"),
        ({10**5000: {"computation": 0, "communication": 1.0}}, None, r"client int: .* must be numbers from 1e-06"),
        ({10**5000: {}}, None, "client int: must be FedScale's pickle"),
        ({1: {"computation": 5e-324, "communication": 1.0}}, None, r"must be numbers from 1e-06 to 1e\+15"),
        (CAPACITY, {5: {**TRACE, "finish_time": 10**400}}, r"client 5: active, inactive and finish_time .*1e\+15"),
        (CAPACITY, {5: {**TRACE, "active": [1, 10**400]}}, r"client 5: active, inactive and finish_time .*1e\+15"),
        (CAPACITY, {5: {**TRACE, "finish_time": 1e308}}, r"client 5: active, inactive and finish_time .*1e\+15"),
        (CAPACITY, {5: {"active": []}}, "client 5: must be FedScale's pickle .* active, inactive, finish_time"),
        (CAPACITY, {5: {**TRACE, "active": NESTED, "inactive": NESTED}}, r"finish_time \(not numbers\): must be two"),
        ({1: {"computation": NESTED, "communication": 1.0}}, None, r"communication = \(\[\[\.{3}\], .* 1.0\): must be"),
        (CAPACITY, {5: {**TRACE, "active": [1]}}, "client 5: active, inactive and finish_time"),
        (CAPACITY, {5: {**TRACE, "active": [1, -2]}}, "client 5: active, inactive and finish_time"),
        (CAPACITY, {5: {**TRACE, "active": 3, "inactive": 4}}, "client 5: active, inactive and finish_time"),
        (CAPACITY, {5: {**TRACE, "finish_time": 0}}, "client 5: active, inactive and finish_time"),
        (CAPACITY, {5: {**TRACE, "finish_time": None}}, "client 5: active, inactive and finish_time"),
    ],
)
def test_mistakes_name_the_client(capacity: Any, behaviour: Any, message: str, tmp_path: Path) -> None:
    traces = None if behaviour is None else pickled(tmp_path / "b", behaviour)
    with pytest.raises(InputError, match=message):
        read_fedscale(pickled(tmp_path / "c", capacity), traces, tmp_path / "t.parquet")


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps(CAPACITY)[:-9]])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(InputError, match="must be FedScale's pickle"):
        read_fedscale(tmp_path / "c", None, tmp_path / "t.parquet")
