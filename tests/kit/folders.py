"""Small run folders, written as a run writes them, with numbers that a formula gives."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from raysim.store.summary import read_summary, write_summary

METRICS = ("accuracy", "auc", "loss")


def write_run(
    folder: Path,
    algorithms: Sequence[str] = ("fedavg", "radfed"),
    rounds: int = 12,
    every: int = 3,
    targets: Sequence[str] = ("held_out", "held_out_mean"),
) -> Path:
    """A run of some algorithms; every `every`-th round was evaluated, none where that is 0."""
    config = {
        "seed": 1,
        "rounds": rounds,
        "data": {"dataset": "digits", "label": "label"},
        "partition": {"scheme": "dirichlet-qp", "clients": 50, "label_alpha": 0.1, "size_alpha": 1.0},
        "model": {"name": "mlp", "hidden": [200, 200], "norm": "none"},
        "algorithm": [{"name": name, "fraction": 1.0} for name in algorithms],
    }
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    for index, name in enumerate(algorithms):
        before = list(algorithms[:index]).count(name)
        own = folder / (name if before == 0 else f"{name}-{before + 1}")
        own.mkdir()
        pq.write_table(metrics(rounds, every, targets, index), own / "metrics.parquet")
        write_summary(own / "summary.json", summary(name, rounds))
    return folder


def told(own: Path, metrics: pa.Table | None = None, **keys: object) -> None:
    """Add to an algorithm's summary, and give it other metrics."""
    if metrics is not None:
        pq.write_table(metrics, own / "metrics.parquet")
    write_summary(own / "summary.json", read_summary(own / "summary.json", ()) | keys)


def summary(name: str, rounds: int) -> dict[str, object]:
    return {
        "algorithm": "Algorithm(schedule=Rounds(participation=1.0), local=Local(epochs=1), weighting=Samples())",
        "name": name,
        "rounds": rounds,
        "seconds": 0.4 * rounds,
        "bytes_up": 1000 * rounds,
        "bytes_down": 1000 * rounds,
        "fingerprint": {"torch": "2.15.0", "cpu": "AVX2"},
    }


def metrics(rounds: int, every: int, targets: Sequence[str], index: int) -> pa.Table:
    """Curves that rise and fall; an algorithm at `index` > 0 aggregates every fourth round, and learns faster."""
    numbers = range(1, rounds + 1)
    evaluated = [every > 0 and (n % every == 0 or n == rounds) for n in numbers]
    aggregated = [index == 0 or n % 4 == 0 or n == rounds for n in numbers]
    progress = [1 - 0.97 ** (n * (1 + index)) for n in numbers]
    columns = {
        "round": pa.array(numbers, pa.int64()),
        "seconds": pa.array([0.3 + 0.1 * (n % 3) + 0.1 * index for n in numbers], pa.float64()),
        "seconds_evaluate": pa.array([0.05] * rounds, pa.float64()),
        "updates": pa.array([40] * rounds, pa.int64()),
        "train_loss": pa.array([2.3 * (1 - p) + 0.1 for p in progress], pa.float64()),
        "aggregated": pa.array(aggregated, pa.bool_()),
        "bytes_up": pa.array([40 * 217_000] * rounds, pa.int64()),
        "bytes_down": pa.array([40 * 217_000] * rounds, pa.int64()),
        "exchanges": pa.array([1] * rounds, pa.int64()),
        "machine_bytes_driver": pa.array([8 * 217_000 if m else 900 for m in aggregated], pa.int64()),
        "machine_bytes_inlined": pa.array([400] * rounds, pa.int64()),
        "machine_bytes_moved": pa.array([0 if m else 40 * 217_000 for m in aggregated], pa.int64()),
    }
    for offset, target in enumerate(targets):
        for place, name in enumerate(METRICS):
            shape = [2.3 * (1 - p) if name == "loss" else p * (0.95 - 0.02 * place - 0.05 * offset) for p in progress]
            values = [value if is_on else None for value, is_on in zip(shape, evaluated, strict=True)]
            columns[f"{target}_{name}"] = pa.array(values, pa.float64())
    return pa.table(columns)
