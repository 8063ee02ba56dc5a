"""MLflow is told of each round once, also of a run that was stopped."""

import logging
import posixpath
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from algorithms.training.forked import drawn
from raysim.config.tables import WatchTable
from raysim.watching.loggers.logger import LoggedRun
from raysim.watching.loggers.mlflow import METRICS_AT_ONCE, MLflow
from tests.kit.logged import NAMES, rows, watched

# MLflow's and SQLAlchemy's own are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("stop_in", [None, 3])
def test_its_metrics_are_the_table(tmp_path: Path, stop_in: int | None) -> None:
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package)
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


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Param(NamedTuple):
    key: str
    value: str


class Client:
    """Client that refuses names as MLflow's own does, on all systems."""

    def __init__(self, uri: str) -> None:
        self.metrics, self.params = dict[str, float](), dict[str, str]()
        self.calls: list[str] = []

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name)

    def create_run(self, experiment: str, **_: Any) -> Any:
        self.calls.append("create_run")
        return SimpleNamespace(info=SimpleNamespace(run_id="1"))

    def set_terminated(self, run: str, status: str = "FINISHED") -> None:
        self.calls.append(status)

    def log_batch(self, run: str, metrics: list[Metric] | None = None, params: list[Param] | None = None) -> None:
        for each in (*(metrics or []), *(params or [])):
            assert re.match(r"^[/\w.\- ]*$", each.key) and len(each.key) <= 250
            norm = posixpath.normpath(each.key)
            assert norm == each.key and norm != "." and not norm.startswith(("..", "/"))
        self.calls += [each.key for each in (*(params or []), *(metrics or []))]
        self.metrics |= {each.key: each.value for each in metrics or []}
        self.params |= {each.key: each.value for each in params or []}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client in place of MLflow's."""
    made, package, entities = Client(""), ModuleType("mlflow"), ModuleType("mlflow.entities")
    vars(package)["MlflowClient"] = lambda uri: made
    vars(entities).update(Metric=Metric, Param=Param)
    monkeypatch.setitem(sys.modules, "mlflow", package)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return made


def test_names_that_mlflow_refuses_are_changed_and_stay_different(client: Client, tmp_path: Path) -> None:
    logger = MLflow()
    logger.begin(LoggedRun("run", tmp_path, WatchTable()))
    logger.algorithm("fedavg", {"local.lr": 0.1, "data.columns.impute.age (years)": "mean"}, 0)
    domains = [
        "Boston (MA)",
        "Boston [MA]",
        "Boston _MA_",
        "a:b",
        "a//b",
        "x/../y",
        "x/./y",
        "Zürich/1.2 - c",
        "n" * 300,
    ]
    given = {f"domain_{name}_accuracy": float(place) for place, name in enumerate(domains)}
    logger.round(1, {"seconds": 0.5, **given})
    logger.end({"rounds": 1.0, **given})
    assert client.params.keys() > {"local.lr"} and len(client.params) == 2
    assert len(client.metrics) == 2 * len(given) + 2
    by_value = {value: name for name, value in client.metrics.items() if name.startswith("evaluation/")}
    kept = [domain for place, domain in enumerate(domains) if by_value[place] == f"evaluation/domain_{domain}_accuracy"]
    assert kept == ["Boston _MA_", "Zürich/1.2 - c"]
    assert by_value[0].startswith("evaluation/domain_Boston _MA__accuracy-") and len(by_value[8]) == 250
    assert client.metrics["time/seconds"] == 0.5


def test_the_seconds_of_a_round_come_last(client: Client, tmp_path: Path) -> None:
    """A resumed run takes a round for logged if its seconds are, so nothing of the round may come after them."""
    logger = MLflow()
    logger.begin(LoggedRun("run", tmp_path, WatchTable()))
    logger.algorithm("fedavg", {"local.lr": 0.1}, 0)
    many = {f"domain_{place}_accuracy": 0.5 for place in range(METRICS_AT_ONCE)}
    logger.round(1, {"round": 1.0, "seconds": 0.5, **many})
    logger.end({"rounds": 1.0})
    assert client.calls[:2] == ["create_run", "local.lr"]
    assert client.calls.index("time/seconds") == len(many) + 3
    assert client.calls[-2:] == ["final/rounds", "FINISHED"]
