"""Ray's endpoint for Prometheus tells of a run while it works, and listens on this machine alone."""

import os
import re
import signal
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

import psutil
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from raysim.fleet.prometheus import PrometheusLogger
from raysim.fleet.traffic import TRAFFIC
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

pytestmark = pytest.mark.usefixtures("own_ray")

EXPERIMENT = {
    "seed": 3,
    "data": {"dataset": "digits", "test": 0.8},
    "partition": {"scheme": "iid", "clients": 4},
    "model": {"hidden": [6]},
    "evaluate": {"every": 1, "metrics": ["accuracy"]},
    # Its models are redistributed, and the driver may hold none of them: it waits for an actor.
    "algorithm": {"name": "radfed", "aggregate_every": 3},
}
WAIT_SECONDS = 60.0

Found = dict[tuple[str, str, str], float]


def scraped(url: str) -> Found:
    """What the endpoint tells of runs: by metric, algorithm and kind."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples if "raysim" in sample.name]
    assert {sample.labels["run"] for sample in samples} <= {"run"}
    return {(each.name, each.labels["algorithm"], each.labels["kind"]): each.value for each in samples}


class Scrapes(Watcher):
    """Has an actor die after the first round, if asked to, and looks at the endpoint after the third."""

    def __init__(self, log: Path, kills: bool) -> None:
        self.found: Found = {}
        self.url = ""
        self._log, self._kills = log, kills

    def round(self, number: int, metrics: dict[str, float]) -> None:
        if number == 1 and self._kills:
            actors = [each for each in psutil.Process().children(recursive=True) if "ClientActor" in each.name()]
            os.kill(actors[0].pid, signal.SIGKILL)
        if number == 3:
            deadline = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < deadline and not self._all_there():
                self._look()
            # Once more: what is published together may come in two scrapes.
            time.sleep(1)
            self._look()

    def _all_there(self) -> bool:
        rounds = [self.found.get((f"ray_raysim_round{each}", "radfed", "")) for each in ("", "s_total")]
        return rounds == [3, 3] and (not self._kills or ("ray_raysim_client_actor_deaths_total", "", "") in self.found)

    def _look(self) -> None:
        time.sleep(0.1)
        if address := re.search(r"for Prometheus: (\S+)", self._log.read_text()):
            self.url = address[1]
            # A gauge is there once after each report, a counter always; and the agent may not listen yet.
            with suppress(URLError):
                self.found |= scraped(self.url)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True])
def test_the_endpoint_tells_of_rounds_and_actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: bool) -> None:
    monkeypatch.setenv("RAY_metrics_report_interval_ms", "300")
    monkeypatch.setattr("raysim.fleet.ray_runtime.PUBLISH_SECONDS", 0.3)
    monkeypatch.setattr("raysim.fleet.ray_fleet.DRIVER_BYTES", 0)
    scrapes = Scrapes(tmp_path / "run" / "run.log", kills)
    quick_run({**EXPERIMENT, "rounds": 3}, tmp_path / "run", actors=1, watcher=scrapes)
    found = scrapes.found
    assert scrapes.url.startswith("http://127.0.0.1:")
    assert found["ray_raysim_round", "radfed", ""] == found["ray_raysim_rounds_total", "radfed", ""] == 3
    assert found["ray_raysim_client_updates_total", "radfed", ""] == 12
    table = pq.read_table(tmp_path / "run" / "radfed" / "metrics.parquet").to_pylist()
    assert found["ray_raysim_protocol_bytes_total", "radfed", "up"] == sum(row["bytes_up"] for row in table)
    assert found["ray_raysim_metric", "radfed", "test_accuracy"] == table[-1]["test_accuracy"]
    seconds = sum(row["seconds_train"] for row in table)
    assert found["ray_raysim_stage_seconds_total", "radfed", "train"] == pytest.approx(seconds)
    assert found["ray_raysim_client_actors", "", ""] == 1
    assert found.get(("ray_raysim_client_actor_deaths_total", "", ""), 0) == int(kills)


def test_all_measured_bytes_are_counted() -> None:
    logger = PrometheusLogger()
    logger.round(1, {f"machine_bytes_{kind}": 1.0 for kind in TRAFFIC})
    assert {kind for name, _, kind in logger._totals if name == "raysim_measured_bytes"} == {*TRAFFIC}
