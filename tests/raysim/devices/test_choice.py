"""Devices of a run: a table, nights or a formula, and the run's own copy of the table."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysim
from algorithms import DeviceTable
from partitioning.store.files import sha256
from raysim.common.errors import InputError
from raysim.common.names import DEVICES
from raysim.config.experiment import Experiment
from raysim.devices.stored import open_devices
from raysim.store.resume import settings
from tests.kit.runs import Breaks, assert_same, broken, quick_run, timeless

CONFIG: dict[str, Any] = {
    "rounds": 4,
    "data": {"dataset": "digits", "test": 0.8},
    "partition": {"clients": 6, "validation_clients": 1},
    "model": {"hidden": [6]},
    "algorithm": [{"name": "fedavg", "cohort": 3}],
}


def written(path: Path, factor: float = 1.0) -> Path:
    """Write a table with a row for each of six clients: client k trains on 10 (k + 1) samples a second."""
    speeds = [factor * 10.0 * (client + 1) for client in range(6)]
    pq.write_table(pa.table({"client": list(range(6)), "compute": speeds}), path)
    return path


def with_table(path: Path) -> dict[str, Any]:
    return {**CONFIG, "devices": {"table": str(path)}}


def test_a_round_takes_as_long_as_the_table_says(tmp_path: Path) -> None:
    run = quick_run(with_table(written(tmp_path / "table.parquet")), tmp_path / "run", inline=True)
    metrics, updates = (timeless(run.folder / "fedavg" / name) for name in ("metrics.parquet", "updates.parquet"))
    for number, seconds in zip(metrics["round"], metrics["simulated_seconds"], strict=True):
        mine = [place for place, each in enumerate(updates["round"]) if each == number]
        times = [updates["samples"][place] / (10 * (updates["client"][place] + 1)) for place in mine]
        assert seconds == pytest.approx(max(times), rel=1e-12)
    assert tomllib.loads((run.folder / "config.toml").read_text())["devices"]["sha256"] == sha256(
        tmp_path / "table.parquet"
    )


def test_a_resumed_run_reads_its_own_copy(tmp_path: Path) -> None:
    source = written(tmp_path / "table.parquet")
    quick_run(with_table(source), tmp_path / "one", inline=True)

    class Deletes(Breaks):
        def round(self, number: int, metrics: dict[str, float]) -> None:
            source.unlink(missing_ok=True)
            super().round(number, metrics)

    broken(with_table(source), tmp_path / "other", Deletes(2))
    assert not source.exists()
    assert_same(tmp_path / "one", tmp_path / "other", "fedavg")


def test_a_damaged_copy_stops_the_resume(tmp_path: Path) -> None:
    watcher = Breaks(2)
    with pytest.raises(ZeroDivisionError):
        raysim.run(with_table(written(tmp_path / "table.parquet")), tmp_path / "run", inline=True, watcher=watcher)
    (copy,) = (tmp_path / "run").glob(DEVICES)
    copy.write_bytes(copy.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=r"devices-\w+.arrow is damaged"):
        raysim.resume(tmp_path / "run", inline=True)


def test_another_table_is_another_experiment(tmp_path: Path) -> None:
    source = written(tmp_path / "table.parquet")
    experiment = Experiment.of(with_table(source))
    _, digest = open_devices(experiment, tmp_path, 6)
    assert experiment.devices is not None
    kept = experiment.model_copy(update={"devices": experiment.devices.model_copy(update={"sha256": digest})})
    assert settings(kept, "fedavg") == settings(experiment, "fedavg")
    moved = Experiment.of(with_table(source.rename(tmp_path / "moved.parquet")))
    assert settings(moved, "fedavg") == settings(kept, "fedavg")
    changed = Experiment.of(with_table(written(source, 2.0)))
    assert settings(changed, "fedavg") != settings(kept, "fedavg")
    pinned = changed.model_copy(update={"devices": kept.devices})
    (tmp_path / "new").mkdir()
    with pytest.raises(InputError, match=r"devices.sha256 = .*: must be that of"):
        open_devices(pinned, tmp_path / "new", 6)


def test_a_refused_table_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="row 5, column client = 5: must be the id of a client"):
        raysim.run({**with_table(written(tmp_path / "t.parquet")), "partition": {"clients": 5}}, tmp_path / "run")
    with pytest.raises(InputError, match=r"devices.table = .*: must be a Parquet file, and is missing"):
        raysim.run(with_table(tmp_path / "none.parquet"), tmp_path / "run", inline=True)
    assert not (tmp_path / "run").exists()


def test_nights(tmp_path: Path) -> None:
    experiment = Experiment.of({**CONFIG, "devices": {"availability": "day-night", "compute": 50, "hours": 5}})
    devices, digest = open_devices(experiment, tmp_path, 6)
    assert digest is None and isinstance(devices, DeviceTable) and devices.absent
    assert devices.compute.tolist() == [50] * 6 and not list(tmp_path.iterdir())
