"""Runs with robust aggregation and attackers: what they say, and what the driver holds of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import partitioning
import raysim
from algorithms import Attack, GeometricMedian, Krum, Local, Median, Participation, Robust, begin, fedavg, next_round
from algorithms.options import gathered
from raysim.common.errors import InputError
from raysim.data.sources import load
from raysim.fleet.inline import InlineWorkplace
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan
from raysim.watching.progress import Watcher
from tests.kit.ray import SharedRay
from tests.kit.runs import SMALL, quick_run

ATTACKED: dict[str, Any] = {
    **SMALL,
    "partition": {"scheme": "iid", "clients": 10, "local_test": 0.2},
    "attack": {"share": 0.4, "kind": "little-is-enough"},
    "algorithm": [
        {"name": "fedavg", "cohort": 6, "server": {"aggregate": "median"}},
        {"name": "fedbn", "cohort": 6, "server": {"aggregate": "multi-krum", "byzantine": 2}},
    ],
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("robust") / "run"
    quick_run(ATTACKED, folder, inline=True)
    return folder


def test_attackers_are_named_and_left_out_of_the_evaluation(whole: Path) -> None:
    clients = partitioning.Population.open(whole / "population").train_clients
    attackers = set(Attack(0.4).attackers(clients, 3).tolist())
    assert len(attackers) == 4
    for name in ("fedavg", "fedbn"):
        rows = pq.read_table(whole / name / "updates.parquet").to_pydict()
        assert [client in attackers for client in rows["client"]] == rows["attacker"] and any(rows["attacker"])
    population = partitioning.Population.open(whole / "population")
    honest = raysim.measures.evaluate.Targets.of(population, ["local"], excluded=sorted(attackers)).targets[0]
    assert honest.owners.tolist() == [client for client in clients.tolist() if client not in attackers]


def test_without_an_attack_there_is_no_column(tmp_path: Path) -> None:
    plain = {key: value for key, value in ATTACKED.items() if key != "attack"}
    quick_run({**plain, "rounds": 1, "algorithm": {"name": "fedavg"}}, tmp_path / "run", inline=True)
    assert "attacker" not in pq.read_schema(tmp_path / "run" / "fedavg" / "updates.parquet").names


def test_a_label_flip_changes_what_is_learnt(tmp_path: Path) -> None:
    config = {**SMALL, "algorithm": {"name": "fedavg"}, "rounds": 4, "local": {"batch_size": 10, "lr": 0.4}}
    kinds = {"honest": {}, "flipped": {"attack": {"share": 1.0, "kind": "label-flip"}}}
    on = {"evaluate": {"on": ["test"], "metrics": ["accuracy"]}}
    found = {key: quick_run({**config, **each, **on}, tmp_path / key, inline=True) for key, each in kinds.items()}
    values = {key: run.results[0].metrics["test_accuracy"] for key, run in found.items()}
    # All clients learn 9 - y, and 9 - y is never y.
    assert values["flipped"] < 0.2 < 0.5 < values["honest"]


def test_labels_that_are_no_classes_cannot_be_flipped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    config = {
        "data": {"dataset": (x, y)},
        "partition": {"clients": 4},
        "model": {"name": "mlp", "hidden": [4]},
        "local": {"loss": "mse"},
        "algorithm": {"name": "fedavg"},
        "attack": {"kind": "label-flip"},
        "rounds": 1,
    }
    with pytest.raises(InputError, match="label-flip"):
        raysim.run(config, tmp_path / "run", inline=True)


def test_the_bytes_are_those_of_two_actors_and_the_driver_holds_one_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_ray: SharedRay
) -> None:
    monkeypatch.setattr(gathered, "MOST", 2**16)
    monkeypatch.setattr(gathered, "LEAST", 2**15)
    partitioning.make(load("digits").train, tmp_path / "population", scheme="iid", clients=12)
    participation, local = Participation(cohort=8), Local(lr=0.1, batch_size=16)
    found: dict[str, set[bytes]] = {}
    for place in (InlineWorkplace(), shared_ray.place(2)):
        with place:
            for rule in (Median(), Krum(2), GeometricMedian()):
                algorithm = fedavg(participation, local).having(Robust(rule), Attack(0.3, "inner-product"))
                model = ModelPlan("mlp", {"hidden": (1000,)}, (1, 8, 8), 10, seed=1)
                plan = WorkerPlan(tmp_path / "population", model, algorithm, tmp_path / "personal", 2).resolved()
                fleet = place.fleet(plan)
                state = begin(plan.module(), fleet, 0)
                for _ in range(2):
                    state = next_round(state, plan.algorithm, fleet)
                found.setdefault(repr(rule), set()).add(state.model.floats.tobytes())
                if not isinstance(place, InlineWorkplace):
                    one = 4 * fleet.layouts.shared.floats
                    # In each of two rounds it puts the model twice, and gets an aggregate in float64.
                    assert fleet.traffic.driver < 2 * (2 * one + 2 * one) + 10_000 and fleet.traffic.inlined == 0
                fleet.close()
    assert [len(each) for each in found.values()] == [1, 1, 1]


@pytest.mark.parametrize(("trim", "expected"), [(0.1, 1), (0.2, 0), (0.0, 0)])
def test_a_trimmed_mean_that_trims_nobody_is_told(trim: float, expected: int, tmp_path: Path) -> None:
    told: list[str] = []

    class Telling(Watcher):
        def notice(self, text: str) -> None:
            told.append(text)

    algorithm = {"name": "fedavg", "cohort": 5, "server": {"aggregate": "trimmed-mean", "trim": trim}}
    quick_run({**SMALL, "rounds": 1, "algorithm": algorithm}, tmp_path / "run", inline=True, watcher=Telling())
    found = [text for text in told if "trims none" in text]
    assert len(found) == expected and all("server.trim = 0.1 of 5 models" in text for text in found)
