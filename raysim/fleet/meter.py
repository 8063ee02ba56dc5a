"""What a run publishes at the endpoint for Prometheus that each of Ray's nodes has (`ray[default]`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysim.watching.loggers.logger import Watched

PUBLISH_SECONDS = 5.0
"""Time from one publication to the next: Ray forgets a gauge that it was not told of since it last told it on, and by
default it does so every ten seconds."""

COUNTED: Mapping[str, tuple[str, str]] = {
    "updates": ("raysim_visits", ""),
    "nonfinite": ("raysim_nonfinite_visits", ""),
    **{f"bytes_{way}": ("raysim_protocol_bytes", way) for way in ("up", "down")},
    **{f"machine_bytes_{kind}": ("raysim_measured_bytes", kind) for kind in ("driver", "inlined", "moved")},
    **{
        f"seconds_{stage}": ("raysim_stage_seconds", stage)
        for stage in ("sample", "send", "train", "sum", "aggregate", "evaluate", "write")
    },
}
"""The counter that a column is added to, and its tag `kind`."""

TAGS = ("run", "algorithm", "kind")

Series = tuple[str, str, str]
"""A metric's name, and the algorithm and the kind that it is of."""


class Meter:
    """A logger whose numbers Ray's own endpoint tells; rounds only leave them here, and wait for nothing.

    Counters: `raysim_rounds`, those of `COUNTED`, `raysim_client_actor_deaths`. Gauges: `raysim_round`, the last round;
    `raysim_metric`, where `kind` is a column of `metrics.parquet`, as last measured; `raysim_client_actors`, those
    there.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._run, self._algorithm, self._done = "", "", 0
        self._gauges: dict[Series, float] = {}
        self._totals: Counter[Series] = Counter()
        self._published: Counter[Series] = Counter()
        self._metrics: dict[str, Any] = {}

    def begin(self, run: Watched) -> None:
        """Take note of the run's name, which tags all."""
        self._run = run.name

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Take note of the algorithm's name, which tags its rounds."""
        self._algorithm, self._done = name, done

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Count a round of this process, and take note of what it measured; what is no number has no gauge."""
        if number <= self._done:
            return
        of = self._algorithm
        with self._lock:
            self._totals["raysim_rounds", of, ""] += 1
            self._gauges["raysim_round", of, ""] = number
            for column, value in row.items():
                if column in COUNTED:
                    name, kind = COUNTED[column]
                    self._totals[name, of, kind] += value  # type: ignore[assignment]
                elif math.isfinite(value):
                    self._gauges["raysim_metric", of, column] = value
                else:
                    self._gauges.pop(("raysim_metric", of, column), None)

    def end(self, summary: Mapping[str, float]) -> None:
        """What is known stays until the run ends."""

    def close(self) -> None:
        """What is known stays until Ray ends."""

    def actors(self, there: int) -> None:
        """So many client actors are there."""
        with self._lock:
            self._gauges["raysim_client_actors", "", ""] = there

    def died(self) -> None:
        """A client actor has died."""
        with self._lock:
            self._totals["raysim_client_actor_deaths", "", ""] += 1

    def publish(self) -> None:
        """Tell Ray, which must run, of all that is known."""
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
        return {"run": self._run, "algorithm": algorithm, "kind": kind}
