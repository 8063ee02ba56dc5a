"""Runs whose clients are not always there, and what is refused in files about who takes part."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import raysim
from raysim.common.errors import InputError
from tests.kit.runs import quick_run

EXPERIMENT: dict[str, Any] = {
    "rounds": 6,
    "data": {"dataset": "digits", "test": 0.1},
    "partition": {"scheme": "iid", "clients": 12},
    "model": {"name": "mlp", "hidden": [4], "norm": "batch"},
    "evaluate": {"every": 1},
    "devices": {"latency": 1.0, "compute": 1e9},
}


@pytest.mark.parametrize("name", ["fedavg", "fedtan", "fedbn", "radfed", "radfedi", "fedbs", "static-bn", "fedmmb"])
def test_rounds_without_anybody(name: str, tmp_path: Path) -> None:
    own = {"aggregate_every": 2} if name.startswith("radfed") else {}
    measures = ["dl", "dc", "concordance"] if name in ("fedavg", "fedtan") else []
    raw = {**EXPERIMENT, "algorithm": {"name": name, "cohort": 4, "active": 0.06, **own}}
    quick_run({**raw, "evaluate": {"every": 1, "measures": measures}}, tmp_path / "run", inline=True)
    updates = pq.read_table(tmp_path / "run" / name / "metrics.parquet")["updates"].to_pylist()
    assert 0 in updates and max(updates) > 0


def test_every_exchange_takes_its_latency(tmp_path: Path) -> None:
    algorithms = [{"name": "fedavg"}, {"name": "fedtan"}, {"name": "radfedi", "aggregate_every": 2}]
    run = raysim.run({**EXPERIMENT, "rounds": 2, "algorithm": algorithms}, tmp_path / "run", inline=True)
    totals = {result.name: result.simulated_seconds for result in run.results}
    assert totals == {
        name: pytest.approx(seconds, abs=1e-3) for name, seconds in (("fedavg", 2), ("fedtan", 8), ("radfedi", 3))
    }
    assert "Simulated time" in run.report.read_text()
    found = {
        each["name"]: pq.read_table(tmp_path / "run" / each["name"] / "metrics.parquet").to_pydict()
        for each in algorithms
    }
    for name, exchanges in (("fedavg", [1, 1]), ("fedtan", [4, 4]), ("radfedi", [2, 1])):
        assert found[name]["exchanges"] == exchanges
        assert found[name]["simulated_seconds"] == pytest.approx(exchanges, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": {"spread": 1000.0}}, r"devices.spread = 1000.0: must be in \[0, 10\]"),
        ({"algorithm": {"name": "centralized", "active": 0.5}}, "left out for united data"),
        ({"algorithm": {"name": "centralized", "sampling": "size"}}, "left out for united data"),
        ({"algorithm": {"name": "centralized", "joins": {"3": 2}}}, "algorithm.joins with centralized"),
        ({"algorithm": {"name": "fedasync", "joins": {"3": 2}}}, "algorithm.joins with an asynchronous algorithm"),
        ({"algorithm": {"name": "fedasync"}, "evaluate": {"measures": ["dl"]}}, "'dl' with an asynchronous algorithm"),
        ({"algorithm": {"name": "singleset"}, "evaluate": {"measures": ["dl"]}}, "'dl' without shared parameters"),
        ({"algorithm": {"name": "fedbn"}, "evaluate": {"measures": ["bn"]}}, "'bn' without tracked and shared"),
        ({"algorithm": {"name": "static-bn"}, "evaluate": {"measures": ["bn"]}}, "'bn' without tracked and shared"),
        ({"evaluate": {"measures": ["dl", "dl"]}}, r"\['dl', 'dl'\]: should name each only once"),
        ({"algorithm": {"name": "scaffold", "joins": {"3": 2}}}, "algorithm.joins with scaffold"),
        (
            {
                "model": {"name": "deeplab_v3plus"},
                "data": {"dataset": "digits", "channels": 3, "image_size": 64},
            },
            "model.name = 'deeplab_v3plus': must return .* it must have 10 logits a sample",
        ),
        ({"server": {"rule": "os:getcwd"}}, "server.rule = 'os:getcwd': must be a class whose instances take"),
        ({"algorithm": {"name": "fedavg", "maintained_momentum": "local"}}, "local.momentum = 0.0: must have momentum"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        raysim.run({**EXPERIMENT, **changes}, tmp_path / "run", inline=True)
    assert not (tmp_path / "run").exists()
