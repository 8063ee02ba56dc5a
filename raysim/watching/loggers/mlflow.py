"""MLflow: a run per algorithm, in a database of the run's folder or on a server."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partitioning.common.paths import read_text
from raysim.common.secrets import tracking_uri
from raysim.watching.loggers.logger import LoggedRun, metric_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

AT_ONCE, METRICS_AT_ONCE = 100, 1000
"""Largest numbers of parameters and of metrics per call."""

LONGEST = 250
"""Largest number of characters of a name."""

SECONDS = metric_path("seconds")
"""Metric of every round; its history in MLflow gives the last logged round."""


class MLflow:
    """Logger that sends every round to MLflow once, also if the run was resumed."""

    _run: LoggedRun
    _client: MlflowClient
    _experiment: str
    _id = ""
    _logged = 0

    def begin(self, run: LoggedRun) -> None:
        """Open the database RUN/watch/mlflow/mlflow.db, or a connection to `watch.mlflow_uri`."""
        # MLflow must contact only the user's server, and draw no random waiting times.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
        from mlflow import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        self._run = run
        self._folder.mkdir(parents=True, exist_ok=True)
        local = f"sqlite:///{(self._folder / 'mlflow.db').absolute()}"
        uri = run.table.mlflow_uri
        self._client = MlflowClient(tracking_uri(uri) if uri else local)
        artifacts = None if uri else (self._folder / "artifacts").absolute().as_uri()
        there = self._client.get_experiment_by_name(run.project)
        self._experiment = there.experiment_id if there else self._client.create_experiment(run.project, artifacts)

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Begin an MLflow run, or continue the one with the id in RUN/watch/mlflow/ALGORITHM.id."""
        known = self._folder / f"{name}.id"
        if known.exists():
            self._id = read_text(known)
            self._logged = max((each.step for each in self._client.get_metric_history(self._id, SECONDS)), default=0)
            self._client.update_run(self._id, status="RUNNING")
        else:
            self._id, self._logged = self._begun(name, settings), 0
            known.write_text(self._id, encoding="utf-8")

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Log a round unless MLflow has it."""
        if number > self._logged:
            self._log({metric_path(column): value for column, value in row.items()}, number)

    def end(self, summary: Mapping[str, float]) -> None:
        """Log the final metrics and end the MLflow run."""
        self._log({f"final/{name}": value for name, value in summary.items()}, int(summary["rounds"]))
        self._client.set_terminated(self._id)
        self._id = ""

    def close(self) -> None:
        """Mark an unfinished MLflow run as stopped."""
        if self._id:
            self._client.set_terminated(self._id, "KILLED")

    @property
    def _folder(self) -> Path:
        return self._run.folder / "mlflow"

    def _begun(self, name: str, settings: Mapping[str, Any]) -> str:
        from mlflow.entities import Param

        tags = {"run": self._run.name, "algorithm": name}
        begun = self._client.create_run(self._experiment, tags=tags, run_name=f"{self._run.name}/{name}")
        identity: str = begun.info.run_id
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
        parameters = [Param(allowed(key), text) for key, text in texts.items()]
        for start in range(0, len(parameters), AT_ONCE):
            self._client.log_batch(identity, params=parameters[start : start + AT_ONCE])
        return identity

    def _log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        # The seconds come last, because they say that the round is logged.
        names = sorted(values, key=lambda name: name == SECONDS)
        metrics = [Metric(allowed(name), values[name], now, step) for name in names]
        for start in range(0, len(metrics), METRICS_AT_ONCE):
            self._client.log_batch(self._id, metrics=metrics[start : start + METRICS_AT_ONCE])


def allowed(name: str) -> str:
    """Return the name of a metric or parameter as MLflow accepts it; different names stay different.

    MLflow refuses some characters, such as the parentheses of a domain's name, and parts between slashes that a file
    system would leave out.
    """
    parts = re.sub(r"[^\w\-./ ]", "_", name).split("/")
    plain = "/".join("_" if part in ("", ".", "..") else part for part in parts)
    if plain == name and len(name) <= LONGEST:
        return name
    mark = sha256(name.encode()).hexdigest()[:8]  # tells Boston (MA) from Boston [MA]
    return f"{plain[: LONGEST - len(mark) - 1]}-{mark}"
