"""MLflow is told of each round once, also of a run that was stopped."""

import logging
from pathlib import Path

import pytest

from algorithms.training.forked import drawn
from tests.kit.logged import NAMES, rows, watched

for package in ("mlflow", "sqlalchemy", "alembic"):
    pytest.importorskip(package)

# MLflow's and SQLAlchemy's own are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("stop_in", [None, 3])
def test_its_metrics_are_the_table(tmp_path: Path, stop_in: int | None) -> None:
    from mlflow import MlflowClient

    level, before = logging.getLogger("mlflow").level, drawn()
    run = watched(tmp_path / "run", stop_in, loggers=["mlflow"], project="digits")
    logging.getLogger("mlflow").setLevel(level)
    assert drawn() == before, "a logger drew from a default generator"
    client = MlflowClient(f"sqlite:///{tmp_path / 'run' / 'watch' / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    found = {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}
    assert set(found) == {"run/fedavg", "run/radfed"}
    for name, result in zip(NAMES, run.results, strict=True):
        logged = found[f"run/{name}"]
        assert logged.info.status == "FINISHED"
        assert logged.data.params["local.lr"] == "0.05" and logged.data.params["algorithm.cohort"] == "3"
        assert logged.data.metrics["final/test_accuracy"] == result.metrics["test_accuracy"]
        for title in ("evaluation/test_accuracy", "training/train_loss", "traffic/bytes_up"):
            history = {each.step: each.value for each in client.get_metric_history(logged.info.run_id, title)}
            wanted = {number: row[title] for number, row in enumerate(rows(run.folder / name), 1) if title in row}
            assert history == wanted
