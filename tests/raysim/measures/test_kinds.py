"""Fairness among kinds of devices: participation from the run's rows, and metrics as the clients' own evaluations."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysim
from partitioning.measures.statistics import gini
from raysim.report.page import write_report
from raysim.report.read import read_runs
from raysim.report.tables import headline
from raysim.store.summary import read_summary
from tests.kit.runs import quick_resume, quick_run

KINDS = ["old", "new", "old", "new", "new", "new", "old", "old"]
CONFIG: dict[str, Any] = {
    "rounds": 5,
    "data": {"dataset": "digits", "test": 0.2},
    "partition": {"clients": 8, "test_clients": 1, "local_test": 0.4},
    "model": {"hidden": [16], "norm": "batch"},
    "local": {"lr": 0.5, "batch_size": 10},
    "algorithm": [{"name": "fedbn", "cohort": 3}, {"name": "fedasync", "cohort": 2}],
    "evaluate": {
        "every": 1,
        "metrics": ["accuracy"],
        "on": ["test", "local"],
        "clients": False,
        "target": {"test_accuracy": 0.3, "local_accuracy": 1.1},
    },
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> raysim.Run:
    folder = tmp_path_factory.mktemp("kinds")
    speeds = [{"old": 10.0, "new": 100.0}[kind] for kind in KINDS]
    table = pa.table({"client": list(range(8)), "device": KINDS, "compute": speeds})
    pq.write_table(table, folder / "table.parquet")
    return quick_run({**CONFIG, "devices": {"table": str(folder / "table.parquet")}}, folder / "run", inline=True)


@pytest.mark.parametrize("name", ["fedbn", "fedasync"])
def test_participation_is_that_of_the_rows(run: raysim.Run, name: str) -> None:
    kinds = read_summary(run.folder / name / "summary.json")["kinds"]
    rows = pq.read_table(run.folder / name / "updates.parquet")["client"].to_numpy()
    counts = np.bincount(rows, minlength=8)
    held_out = set(raysim_population(run).test_clients.tolist())
    assert set(kinds) == {"old", "new"} and len(held_out) == 1
    for kind, found in kinds.items():
        mine = np.array([counts[client] for client in range(8) if KINDS[client] == kind and client not in held_out])
        assert (found["clients"], found["updates"]) == (len(mine), mine.sum())
        assert found["gini"] == pytest.approx(gini(mine))
        assert found["never"] == (mine == 0).sum()
        assert "late" not in found and found["samples"] > 0


def raysim_population(run: raysim.Run) -> Any:
    from partitioning import Population

    return Population.open(run.folder / "population")


@pytest.mark.parametrize("name", ["fedbn", "fedasync"])
def test_metrics_are_the_kinds_shares_of_the_whole(run: raysim.Run, name: str) -> None:
    """Accuracy pooled over all clients is that of the kinds, weighted by their samples; clients weigh their mean."""
    summary, population = read_summary(run.folder / name / "summary.json"), raysim_population(run)
    train = population.train_clients
    kinds = summary["kinds"]
    tests = {kind: [population.test_sizes[k] for k in train if KINDS[k] == kind] for kind in kinds}
    pooled = sum(found["accuracy"] * sum(tests[kind]) for kind, found in kinds.items()) / sum(map(sum, tests.values()))
    mean = sum(found["mean_accuracy"] * len(tests[kind]) for kind, found in kinds.items()) / len(train)
    assert summary["metrics"]["local_accuracy"] == pytest.approx(pooled)
    assert summary["metrics"]["local_mean_accuracy"] == pytest.approx(mean)
    assert kinds["old"]["accuracy"] != kinds["new"]["accuracy"]


def test_time_to_target_is_the_sum_of_the_rounds(run: raysim.Run) -> None:
    for result in run.results:
        reached = json.loads((run.folder / result.name / "summary.json").read_text())["reached"]
        rows = pq.read_table(run.folder / result.name / "metrics.parquet").to_pylist()
        number = reached["test_accuracy"]["round"]
        assert 1 <= number <= 5 and reached["local_accuracy"]["simulated_seconds"] is None
        expected = sum(row["simulated_seconds"] for row in rows if row["round"] <= number)
        assert reached["test_accuracy"]["simulated_seconds"] == pytest.approx(expected)
        assert result.reached_after == {"test_accuracy": reached["test_accuracy"]["simulated_seconds"]}
    again = quick_resume(run.folder, inline=True)
    assert [each.reached_after for each in again.results] == [each.reached_after for each in run.results]


def test_the_report_shows_kinds_and_virtual_time(run: raysim.Run, tmp_path: Path) -> None:
    page = write_report([run.folder], tmp_path / "report.html").read_text()
    for text in (
        "fedbn: old",
        "fedasync: new",
        "Gini",
        "Accuracy by virtual time",
        "Virtual time to",
        "Virtual seconds",
    ):
        assert text in page, text
    results = read_runs([run.folder])[0].results
    assert "Simulated time" in [column.title for column in headline(results).columns]


def test_pooled_training_is_no_clients_participation(tmp_path: Path) -> None:
    config = {**CONFIG, "rounds": 2, "algorithm": [{"name": "centralized"}], "devices": {}}
    run = quick_run(config, tmp_path / "run", inline=True)
    kinds = read_summary(run.folder / "centralized" / "summary.json")["kinds"]
    assert kinds == {
        "device": {"clients": 7, "never": 7, "updates": 0, "samples": 0, "bytes_up": 0, "bytes_down": 0, "gini": 0.0}
    }


def test_without_devices_nothing_is_said_of_them(tmp_path: Path) -> None:
    config = {**CONFIG, "rounds": 1, "algorithm": [{"name": "fedavg", "cohort": 3}]}
    run = raysim.run(config, tmp_path / "run", inline=True)
    assert "kinds" not in read_summary(run.folder / "fedavg" / "summary.json")
    page = run.report.read_text()
    assert "Accuracy by bytes that clients sent" in page and "virtual time" not in page.lower().split("glossary")[0]
    assert "<h2>Devices</h2>" not in page
