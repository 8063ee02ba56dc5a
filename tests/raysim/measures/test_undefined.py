"""A metric that is undefined and one that diverged, from the evaluation to the files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

METRICS = ["accuracy", "loss", "auc"]


class Notices(Watcher):
    """Keep the notices."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def notice(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def experiment(tmp_path: Path) -> dict[str, Any]:
    """Six clients with one test sample each: the AUC is defined for all of them together, and for none alone."""
    labels = np.arange(12) % 2
    pq.write_table(pa.table({"x": 10.0 * labels, "y": 10.0 - labels, "label": labels}), tmp_path / "dots.parquet")
    return {
        "rounds": 3,
        "data": {"dataset": f"file:{tmp_path / 'dots.parquet'}"},
        "partition": {"scheme": "iid", "clients": 6, "local_test": 0.5},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedavg"},
        "evaluate": {"every": 0, "metrics": METRICS},
    }


def test_an_undefined_metric_is_null(experiment: dict[str, Any], tmp_path: Path) -> None:
    run = quick_run(experiment, tmp_path / "run", inline=True)
    table = pq.read_table(run.folder / "fedavg" / "metrics.parquet")
    assert table["local_mean_auc"].null_count == 3
    assert table["local_auc"].null_count == table["local_mean_loss"].null_count == 2
    summary = json.loads((run.folder / "fedavg" / "summary.json").read_text(encoding="utf-8"))
    for metrics in (run.results[0].metrics, summary["metrics"]):
        assert metrics.get("local_mean_auc") is None
        assert 0 <= metrics["local_auc"] <= 1


def test_a_diverged_metric_is_not_a_number(experiment: dict[str, Any], tmp_path: Path) -> None:
    """A step so long that the weights are still numbers, and the logits are not."""
    labels = np.arange(12) % 2
    long = pa.table({"x": 1e15 * labels, "y": 1e15 - labels, "label": labels})
    pq.write_table(long, experiment["data"]["dataset"].removeprefix("file:"))
    changed = {**experiment, "rounds": 1, "local": {"lr": 1e12}}
    watcher = Notices()
    run = quick_run(changed, tmp_path / "run", inline=True, watcher=watcher)
    (text,) = (text for text in watcher.texts if "every evaluation" in text)
    assert "'local_loss', 'local_auc', " in text and "accuracy" not in text
    table = pq.read_table(run.folder / "fedavg" / "metrics.parquet")
    for name in ("local_loss", "local_mean_loss", "local_auc", "local_mean_auc"):
        assert np.isnan(table[name][-1].as_py()), name
