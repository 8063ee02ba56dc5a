"""Folders of studies: of trials that ran, and of trials whose metrics the test gives."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from raysim.simulation.options import RunOptions
from raysim.studies.course import StudyProgress
from raysim.studies.showing import Board
from raysim.studies.studying import run_study


def quick_study(
    config: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    changes: Iterable[str] = (),
    **options: Any,
) -> StudyProgress:
    """Do what `raysim.study` does, without writing the tables and the report."""
    board = options.setdefault("watcher", Board())
    return run_study(config, out, changes, RunOptions(**options), board, lambda folder, failed: None)


def stamps(folder: Path) -> dict[str, int]:
    """Return the time of each trial's summary, by the name of its folder."""
    return {path.parent.parent.name: path.stat().st_mtime_ns for path in folder.glob("trials/*/*/summary.json")}


METRICS = ("held_out_accuracy", "validation_accuracy", "held_out_loss")

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "algorithm", "point")),
        *((name, pa.int64()) for name in ("seed", "fold", "validation", "partition_seed")),
        ("stage", pa.string()),
        ("chosen", pa.bool_()),
        ("status", pa.string()),
        ("trial", pa.string()),
        ("seconds", pa.float64()),
        ("rounds", pa.int64()),
        *((name, pa.float64()) for name in METRICS),
    ]
)


def trial(
    algorithm: str, seed: int = 1, fold: int | None = 0, value: float | None = None, **other: Any
) -> dict[str, Any]:
    """A row of `trials.parquet`: final, chosen and done, with the same accuracy everywhere."""
    row = {
        "dataset": "digits",
        "algorithm": algorithm,
        "point": "{}",
        "seed": seed,
        "fold": fold,
        "validation": None if fold is None else fold + 1,
        "partition_seed": None,
        "stage": "final",
        "chosen": True,
        "status": "done",
        "trial": f"{algorithm}-{seed}-{fold}",
        "seconds": 1.0,
        "rounds": 2,
        "held_out_accuracy": value,
        "validation_accuracy": value,
    }
    return row | other


def trials(algorithm: str, values: Iterable[float | None], **other: Any) -> list[dict[str, Any]]:
    """A row a value: seeds 1, 2, ... of fold 0."""
    return [trial(algorithm, seed, 0, value, **other) for seed, value in enumerate(values, 1)]


def write_study(folder: Path, rows: Sequence[Mapping[str, Any]], **study: Any) -> Path:
    """A study's folder without the runs."""
    folder.mkdir(parents=True, exist_ok=True)
    defaults = {"metric": "held_out_accuracy", "select_by": "validation_accuracy", "baseline": "fedavg"}
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    config = {"study": {**defaults, **study}, "algorithm": [{"name": name} for name in names]}
    (folder / "study.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), folder / "trials.parquet")
    return folder


def point(**keys: Any) -> str:
    return json.dumps(keys, sort_keys=True)


SMALL: dict[str, Any] = {
    "seed": 3,
    "rounds": 2,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 6},
    "model": {"name": "mlp", "hidden": [4]},
    "local": {"batch_size": 50, "lr": 0.1},
    "algorithm": [{"name": "fedavg"}, {"name": "radfed", "aggregate_every": 2}],
    "evaluate": {"metrics": ["accuracy", "loss"]},
    "study": {
        "seeds": [1, 2],
        "folds": 3,
        "tune": {"seeds": [1], "folds": [0, 1]},
        "grid": {"*": {"local.lr": [0.1, 0.3]}},
    },
}
