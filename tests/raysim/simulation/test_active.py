"""Runs whose clients are not always there, and what is refused in files about who takes part."""

from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.common.errors import InputError
from tests.kit.runs import metrics, quick_run

EXPERIMENT: dict[str, Any] = {
    "rounds": 6,
    "data": {"dataset": "digits", "sample": 0.2, "test": 0.1},
    "partition": {"scheme": "iid", "clients": 12},
    "model": {"name": "mlp", "hidden": [4], "norm": "batch"},
    "evaluate": {"every": 1},
    "devices": {"latency": 1.0, "compute": 1e9},
}
REDISTRIBUTED = {name: {"aggregate_every": 2} for name in ("radfed", "radfedi")}


@pytest.mark.parametrize(
    ("names", "measures"),
    [
        (["fedavg", "fedtan"], ["dl", "dc", "concordance"]),
        (["fedbn", "radfed", "radfedi", "fedbs", "static-bn", "fedmmb"], []),
    ],
)
def test_rounds_without_anybody(names: list[str], measures: list[str], tmp_path: Path) -> None:
    tables = [{"name": name, "cohort": 4, "active": 0.06, **REDISTRIBUTED.get(name, {})} for name in names]
    raw = {**EXPERIMENT, "algorithm": tables, "evaluate": {"every": 1, "measures": measures}}
    for result in quick_run(raw, tmp_path / "run", inline=True).results:
        updates = metrics(tmp_path / "run" / result.name)["updates"]
        assert 0 in updates and max(updates) > 0, result.name


def test_every_exchange_takes_its_latency(tmp_path: Path) -> None:
    wanted = {"fedavg": [1, 1], "fedtan": [4, 4], "radfedi": [2, 1]}
    tables = [{"name": name, **REDISTRIBUTED.get(name, {})} for name in wanted]
    for result in quick_run({**EXPERIMENT, "rounds": 2, "algorithm": tables}, tmp_path / "run", inline=True).results:
        exchanges, found = wanted[result.name], metrics(tmp_path / "run" / result.name)
        assert found["exchanges"] == exchanges
        assert found["simulated_seconds"] == pytest.approx(exchanges, abs=1e-3)
        assert result.simulated_seconds == pytest.approx(sum(exchanges), abs=1e-3)


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
            {"model": {"name": "deeplab_v3plus"}, "data": {"dataset": "digits", "channels": 3, "image_size": 64}},
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
