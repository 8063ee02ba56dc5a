"""Numbers of a run at the Prometheus endpoint that each of Ray's nodes has (`ray[default]`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Any

from partitioning.common.text import caption
from raysim.fleet.traffic import TRAFFIC
from raysim.watching.loggers.logger import LoggedRun
from raysim.watching.stopwatch import ROUND_STAGES

PUBLISH_SECONDS = 5.0
"""Interval of publications. Ray exports every ten seconds by default, and drops gauges that were not set since."""

COUNTED: Mapping[str, tuple[str, str]] = {
    "updates": ("raysim_client_updates", ""),
    "nonfinite": ("raysim_nonfinite_updates", ""),
    **{f"bytes_{way}": ("raysim_protocol_bytes", way) for way in ("up", "down")},
    **{f"machine_bytes_{kind}": ("raysim_measured_bytes", kind) for kind in TRAFFIC},
    **{f"seconds_{stage}": ("raysim_stage_seconds", stage) for stage in ROUND_STAGES},
}
"""Counter to which a column is added, and its tag `kind`."""

TAGS = ("run", "algorithm", "kind")

SeriesKey = tuple[str, str, str]
"""Name of a metric, algorithm and kind."""


class PrometheusLogger:
    """Logger whose numbers Ray's own endpoint publishes; a round only stores them here and waits for nothing.

    Counters: `raysim_rounds`, those of `COUNTED`, `raysim_client_actor_deaths`. Gauges: `raysim_round`, the last round;
    `raysim_metric`, the latest value of the column of `metrics.parquet` in the tag `kind`; `raysim_client_actors`, the
    number of ready actors.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._run, self._algorithm = "", ""
        self._gauges: dict[SeriesKey, float] = {}
        self._totals: Counter[SeriesKey] = Counter()
        self._published: Counter[SeriesKey] = Counter()
        self._metrics: dict[str, Any] = {}

    def begin(self, run: LoggedRun) -> None:
        """Store the run's name, a tag of all numbers."""
        self._run = run.name

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Store the algorithm's name, a tag of its rounds."""
        self._algorithm = name

    def round(self, round_number: int, row: Mapping[str, float]) -> None:
        """Count a round of this process, and store its metrics; a value that is not finite has no gauge."""
        of = self._algorithm
        with self._lock:
            self._totals["raysim_rounds", of, ""] += 1
            self._gauges["raysim_round", of, ""] = round_number
            for column, value in row.items():
                if column in COUNTED:
                    name, kind = COUNTED[column]
                    self._totals[name, of, kind] += value  # type: ignore[assignment]
                elif math.isfinite(value):
                    self._gauges["raysim_metric", of, column] = value
                else:
                    self._gauges.pop(("raysim_metric", of, column), None)

    def end(self, summary: Mapping[str, float]) -> None:
        """Keep the numbers until the run ends."""

    def close(self) -> None:
        """Keep the numbers until Ray ends."""

    def set_actors(self, ready: int) -> None:
        """Store the number of ready client actors."""
        with self._lock:
            self._gauges["raysim_client_actors", "", ""] = ready

    def count_death(self) -> None:
        """Count the death of a client actor."""
        with self._lock:
            self._totals["raysim_client_actor_deaths", "", ""] += 1

    def publish(self) -> None:
        """Send all numbers to Ray, which must be running."""
        from ray.util.metrics import Counter as RayCounter
        from ray.util.metrics import Gauge

        with self._lock:
            gauges, added = dict(self._gauges), self._totals - self._published
            self._published = self._totals.copy()
        for (name, algorithm, kind), value in gauges.items():
            self._metric(Gauge, name).set(value, self._tags(algorithm, kind))
        for (name, algorithm, kind), value in added.items():
            self._metric(RayCounter, name).inc(value, self._tags(algorithm, kind))

    def _metric(self, form: type[Any], name: str) -> Any:
        if name not in self._metrics:
            self._metrics[name] = form(name, tag_keys=TAGS)
        return self._metrics[name]

    def _tags(self, algorithm: str, kind: str) -> dict[str, str]:
        return {"run": caption(self._run), "algorithm": caption(algorithm), "kind": kind}
