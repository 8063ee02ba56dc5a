"""Drawn tables: medians and shares of the kinds, the same rows on any number of batches, and a run with them."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysim.common.errors import InputError
from raysim.devices import make as module
from raysim.devices.make import KINDS, DeviceKind, make
from raysim.devices.stored import open_stored, store, stored


def test_kinds_have_their_shares_and_medians(tmp_path: Path) -> None:
    make(tmp_path / "t.parquet", 40_000, seed=1, night=False)
    table = pq.read_table(tmp_path / "t.parquet").to_pandas()
    assert table.columns.tolist() == ["client", "device", "compute", "down", "up", "latency"]
    assert table["latency"].median() == pytest.approx(0.05, rel=0.03)
    for kind in KINDS:
        mine = table[table["device"] == kind.name]
        assert len(mine) / 40_000 == pytest.approx(kind.share, abs=0.01)
        for name, spread in (("compute", 0.3), ("down", 0.7), ("up", 0.7)):
            assert mine[name].median() == pytest.approx(getattr(kind, name), rel=0.05)
            assert np.log(mine[name]).std() == pytest.approx(spread, rel=0.05)
        assert np.corrcoef(np.log(mine["down"]), np.log(mine["up"]))[0, 1] == pytest.approx(1)


def test_more_clients_have_the_same_first_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 20)
    for number in (40, 50):
        make(tmp_path / f"{number}.parquet", number)
    few, many = (pq.read_table(tmp_path / f"{number}.parquet") for number in (40, 50))
    assert few.equals(many.slice(0, 40)) and many.num_rows == 50
    make(tmp_path / "other.parquet", 40, seed=1)
    assert not few.equals(pq.read_table(tmp_path / "other.parquet"))


def test_a_run_takes_the_table(tmp_path: Path) -> None:
    make(tmp_path / "t.parquet", 500, kinds=(DeviceKind.of("a=1,5,6,7"), DeviceKind.of("b b=2,5,6,7")))
    store(tmp_path / "t.parquet", tmp_path, 500)
    devices, _ = open_stored(stored(tmp_path) or tmp_path, 500, 0)
    assert set(devices.kinds) == {"a", "b b"} and devices.rows.tolist() == list(range(500))
    assert 0.2 < float(devices.available(np.arange(500), 0.0).mean()) < 0.5


@pytest.mark.parametrize(
    "text",
    [
        *("phone", "phone=1,2,3", "phone=1,2,3,0", "=1,2,3,4", "phone=1,2,3,inf", "p=a,b,c,d", "p=nan,1,1,1"),
        *("p=1e308,1,1,1", "p=1,5e-324,1,1", f"p=1,2,3,1{'0' * 400}"),
    ],
)
def test_other_kinds_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="must be NAME=SHARE,COMPUTE,DOWN,UP"):
        DeviceKind.of(text)


@pytest.mark.parametrize("clients", [0, 99_999_999_999])
def test_other_numbers_of_clients_are_refused(clients: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"--clients = {clients}: must be from 1 to 100000000; set fewer"):
        make(tmp_path / "t.parquet", clients)
    assert not list(tmp_path.iterdir())
