"""Whole runs on the bundled digits, and their output files."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tomli_w
from safetensors.numpy import load_file

import raysim
from partitioning import Population
from raysim.common.errors import InputError
from tests.kit.ray import SharedRay
from tests.kit.runs import Breaks, metrics, quick_run

OWN: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("fedavg", "fedbn", "fedasync", "static-bn", "fedtan")},
    "radfed": {"aggregate_every": 3},
    "centralized": {"fraction": 1.0},
}
"""Algorithms that differ in what they write; the matrix runs all of them."""

EXPERIMENT: dict[str, Any] = {
    "seed": 3,
    "rounds": 5,
    "data": {"dataset": "digits", "sample": 0.3, "test": 0.1},
    "partition": {"scheme": "dirichlet-qp", "clients": 12, "label_alpha": 0.1, "test_clients": 2, "local_test": 0.25},
    "model": {"name": "mlp", "hidden": [24], "norm": "batch"},
    "algorithm": [{"name": name, "fraction": 0.6, **own} for name, own in OWN.items()],
    "fleet": {"block": 4},
    "devices": {"compute": 500.0, "spread": 0.5, "down": 1e6, "up": 1e5, "latency": 0.05},
    "evaluate": {"every": 2, "metrics": ["accuracy", "loss"]},
}

TARGETS = ("test", "held_out", "held_out_mean", "local", "local_mean", "local_finetuned", "held_out_finetuned_mean")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the experiment's run."""
    return quick_run(EXPERIMENT, tmp_path_factory.mktemp("runs") / "all", inline=True).folder


@pytest.fixture(scope="module")
def on_actors(tmp_path_factory: pytest.TempPathFactory, shared_ray: SharedRay) -> Path:
    """Return the folder of a run on two actors."""
    small = {**EXPERIMENT, "algorithm": {"name": "fedavg"}, "partition": {"scheme": "iid", "clients": 6}, "rounds": 2}
    return quick_run(small, tmp_path_factory.mktemp("runs") / "two", fleet=shared_ray.actors(2)).folder


def test_a_run_says_that_a_change_replaces_the_other_key_of_its_length(tmp_path: Path) -> None:
    watcher = Breaks(after=1)
    (tmp_path / "used").touch()
    with pytest.raises(InputError, match="must be a new folder"):
        raysim.run(EXPERIMENT, tmp_path, changes=iter(["epochs=2"]), watcher=watcher)
    assert [text.partition(":")[0] for text in watcher.notices] == ["changes 'epochs=2' replaces rounds = 5"]


def test_every_metric_is_measured_on_every_target(tmp_path: Path) -> None:
    metric_names = ["accuracy", "loss", "macro_f1", "weighted_f1", "auc"]
    changes = {"algorithm": {"name": "fedavg"}, "rounds": 1, "evaluate": {"metrics": metric_names, "finetune": {}}}
    quick_run({**EXPERIMENT, **changes}, tmp_path / "run", inline=True)
    table = metrics(tmp_path / "run" / "fedavg")
    assert all(table[f"{target}_{metric}"][-1] >= 0 for target in TARGETS for metric in metric_names)


def test_aggregates_and_the_bytes_of_the_protocol(run: Path) -> None:
    assert metrics(run / "radfed")["aggregated"] == [False, False, True, False, True]
    parameters, norm = 64 * 24 + 24 + 24 * 10 + 10, 4 * 24
    assert metrics(run / "fedavg")["bytes_up"] == [6 * (4 * (parameters + norm) + 8)] * 5
    assert metrics(run / "radfed")["bytes_down"] == [6 * (4 * (parameters + norm) + 8)] * 5
    assert metrics(run / "fedbn")["bytes_up"] == [6 * 4 * parameters] * 5


def test_asynchronous_rounds_are_arrivals_in_virtual_time(run: Path) -> None:
    table, updates = (pq.read_table(run / "fedasync" / f"{kind}.parquet") for kind in ("metrics", "updates"))
    each = metrics(run / "fedavg")["bytes_up"][0] // 6
    assert table["bytes_up"].to_pylist() == [6 * each] * 5
    assert table["bytes_down"].to_pylist() == [12 * each, *[6 * each] * 4]
    staleness = updates["staleness"].to_pylist()
    assert staleness[0] == 0 and max(staleness) > 1
    clients = updates["client"].to_pylist()
    assert any(clients[start : start + 6] != sorted(clients[start : start + 6]) for start in range(0, 30, 6))
    plain = pq.read_table(run / "fedavg" / "updates.parquet")
    assert plain["staleness"].null_count == plain.num_rows
    # As many clients are under way as a cohort has: whoever is quick need not wait for the slowest.
    virtual = metrics(run / "fedavg")["simulated_seconds"]
    assert 0 < sum(table["simulated_seconds"].to_pylist()) < sum(virtual)


def test_the_model_that_is_written_is_the_one_that_was_evaluated(run: Path) -> None:
    written = load_file(run / "static-bn" / "model.safetensors")
    assert written["norm1.running_mean"].any() and written["norm1.num_batches_tracked"] == 1
    parameters = 64 * 24 + 24 + 24 * 10 + 10 + 2 * 24
    assert metrics(run / "static-bn")["bytes_up"] == [6 * 4 * parameters] * 5
    exchanges = {name: metrics(run / name)["exchanges"] for name in ("fedavg", "fedtan", "centralized")}
    assert exchanges == {"fedavg": [1] * 5, "fedtan": [4] * 5, "centralized": [0] * 5}


def check_stages(run: Path) -> None:
    table = pq.read_table(run / "fedavg" / "metrics.parquet").to_pydict()
    stages = [table[f"seconds_{stage}"] for stage in ("sample", "send", "train", "sum", "aggregate")]
    np.testing.assert_allclose(np.sum(stages, axis=0), table["seconds"])
    assert np.min(stages) >= 0


def test_the_stages_of_a_round_add_up(run: Path, on_actors: Path) -> None:
    check_stages(run)
    check_stages(on_actors)


def test_a_run_trains_on_the_folds_that_are_left(tmp_path: Path) -> None:
    partition = {"clients": 8, "folds": 4, "fold": 2, "stratify": True}
    experiment = {"rounds": 1, "data": {"dataset": "digits"}, "partition": partition, "algorithm": {"name": "fedavg"}}
    quick_run(experiment, tmp_path / "run", inline=True)
    view = Population.open(tmp_path / "run" / "population", fold=2)
    updates = pq.read_table(tmp_path / "run" / "fedavg" / "updates.parquet").to_pydict()
    assert updates["client"] == view.train_clients.tolist() and len(updates["client"]) == 4
    found = metrics(tmp_path / "run" / "fedavg")
    assert {"held_out_accuracy", "held_out_mean_loss", "validation_accuracy", "validation_mean_loss"} <= set(found)


def test_the_config_names_the_execution_that_ran(run: Path) -> None:
    raw = tomllib.loads((run / "config.toml").read_text())
    assert {table["local"]["execution"] for table in raw["algorithm"]} == {"sequential"}


def test_the_run_folder(run: Path) -> None:
    assert tomllib.loads((run / "config.toml").read_text())["partition"]["clients"] == 12
    assert len(Population.open(run / "population")) == 12
    assert "round 5" in (run / "run.log").read_text()
    files = {path.name for path in (run / "fedbn").iterdir()}
    tables, models = {f"{name}.parquet" for name in ("metrics", "updates", "clients")}, {"model", "personal"}
    assert files == tables | {f"{name}.safetensors" for name in models} | {"summary.json"}
    assert json.loads((run / "fedbn" / "summary.json").read_text())["algorithm"].startswith("Algorithm(")
    personal = load_file(run / "fedbn" / "personal.safetensors")
    assert personal["norm1.running_mean"].shape == (len(personal["clients"]), 24)
    assert set(load_file(run / "fedbn" / "model.safetensors")) >= {"norm1.running_mean", "linear1.weight"}


def test_a_resolved_config_repeats_the_run(run: Path, tmp_path: Path) -> None:
    resolved = tomllib.loads((run / "config.toml").read_text())
    resolved["algorithm"] = [table for table in resolved["algorithm"] if table["name"] == "radfed"]
    (tmp_path / "resolved.toml").write_text(tomli_w.dumps(resolved))
    quick_run(tmp_path / "resolved.toml", tmp_path / "again", inline=True)
    again = tmp_path / "again" / "radfed" / "model.safetensors"
    assert again.read_bytes() == (run / "radfed" / "model.safetensors").read_bytes()


def test_a_population_that_was_made_before(run: Path, tmp_path: Path) -> None:
    raw = {key: value for key, value in EXPERIMENT.items() if key != "partition"}
    raw |= {"data": {"population": str(run / "population")}}
    raw["algorithm"] = [table for table in EXPERIMENT["algorithm"] if table["name"] == "fedbn"]
    quick_run(raw, tmp_path / "again", inline=True)
    again = tmp_path / "again" / "fedbn" / "personal.safetensors"
    assert again.read_bytes() == (run / "fedbn" / "personal.safetensors").read_bytes()
    assert not (tmp_path / "again" / "population").exists()


def test_no_rounds_write_the_initial_model(tmp_path: Path) -> None:
    run = quick_run(
        {**EXPERIMENT, "rounds": 0, "algorithm": [{"name": "fedavg"}, {"name": "fedavg"}]},
        tmp_path / "run",
        inline=True,
    )
    assert [result.name for result in run.results] == ["fedavg", "fedavg-2"]
    first = (tmp_path / "run" / "fedavg" / "model.safetensors").read_bytes()
    assert first == (tmp_path / "run" / "fedavg-2" / "model.safetensors").read_bytes()
    assert pq.read_table(tmp_path / "run" / "fedavg" / "metrics.parquet").num_rows == 0


def test_the_seed_keys_the_initial_model_and_the_clients(tmp_path: Path) -> None:
    small = {**EXPERIMENT, "rounds": 0, "algorithm": {"name": "fedavg"}}
    for seed in (1, 2):
        quick_run({**small, "seed": seed}, tmp_path / str(seed), inline=True)
    for file in ("fedavg/model.safetensors", "population/clients.parquet"):
        assert (tmp_path / "1" / file).read_bytes() != (tmp_path / "2" / file).read_bytes()


def test_one_client_with_all_the_data_is_centralised_sgd(tmp_path: Path) -> None:
    one = {**EXPERIMENT, "rounds": 3, "partition": {"scheme": "iid", "clients": 1}}
    names: list[dict[str, Any]] = [{"name": "fedavg"}, {"name": "fedprox", "proximal": 0}, {"name": "centralized"}]
    names.append({"name": "radfed", "aggregate_every": 2})
    quick_run({**one, "algorithm": names}, tmp_path / "run", inline=True)
    bytes_of = {(tmp_path / "run" / table["name"] / "model.safetensors").read_bytes() for table in names}
    assert len(bytes_of) == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"partition": {"scheme": "dirichlet-qp", "clients": 2000}}, "2000"),
    ({"partition": {"scheme": "iid", "clients": 5, "test_clients": 5}}, "test_clients"),
    ({"model": {"name": "mlp", "hidden": [8]}, "algorithm": {"name": "fedbn"}}, "no batch-norm layer"),
    *(
        ({"model": {"name": "logistic"}, "algorithm": {"name": name}}, f"{name}: .*no batch-norm layer")
        for name in ("fedbn", "fixbn", "static-bn", "fedtan")
    ),
    ({"model": {"name": "logistic", "norm": "batch"}}, "norm"),
    ({"model": {"name": "mlp", "hidden": [0]}}, "hidden"),
    ({"algorithm": {"name": "fedavg", "cohort": 11}}, "at most 10"),
    ({"algorithm": {"name": "fedasync", "concurrency": 11}}, "algorithm.concurrency = 11: must be at most 10"),
    ({"devices": {"compute": 0.0}}, "devices.compute = 0.0"),
    ({"devices": {"bandwidth": 5.0}}, "bandwidth"),
    ({"algorithm": {"name": "centralized", "fraction": 0.5}}, "fraction = 0.5: must be 1 for united data"),
    ({"algorithm": {"name": "centralized", "cohort": 3}}, "cohort = 3: must be left out for united data"),
    (
        {"algorithm": {"name": "centralized"}, "server": {"rule": "mix", "alpha": 0.5}},
        "must be 'assign' if no models are aggregated",
    ),
    ({"evaluate": {"on": ["test"]}, "data": {"dataset": "digits"}}, "evaluate.on = 'test'"),
    ({"data": {"dataset": "digitss"}}, "digits"),
    ({"data": {"dataset": "file:nosuch.parquet"}}, "nosuch.parquet"),
    ({"data": {"dataset": "digits", "label": "nosuch"}}, "label"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_input_leaves_nothing(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        raysim.run({**EXPERIMENT, **change}, tmp_path / "deep" / "run", inline=True)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_image_model_on_a_table_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.normal(size=60), "b": rng.normal(size=60), "label": rng.integers(0, 2, 60)})
    pq.write_table(table, tmp_path / "t.parquet")
    raw = {"data": {"dataset": f"file:{tmp_path / 't.parquet'}"}, "partition": {"clients": 3}, "model": {"name": "cnn"}}
    with pytest.raises(InputError, match="shape"):
        raysim.run(raw, tmp_path / "run", inline=True)
    done = quick_run({**raw, "model": {"name": "logistic"}, "rounds": 1}, tmp_path / "run", inline=True)
    assert done.results[0].rounds == 1


def test_a_folder_that_is_not_new_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    with pytest.raises(InputError, match="already holds a run"):
        raysim.run(EXPERIMENT, tmp_path / "run", inline=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.toml"]


def test_a_shard_whose_bytes_changed_is_named(on_actors: Path, tmp_path: Path, two_actors: raysim.Actors) -> None:
    import shutil

    shutil.copytree(on_actors / "population", tmp_path / "population")
    shard = tmp_path / "population" / "shard-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    raw = {key: value for key, value in EXPERIMENT.items() if key != "partition"}
    raw["data"] = {"population": str(tmp_path / "population")}
    # All clients train at once, so that no round is done before.
    raw["algorithm"] = [{"name": "fedavg"}]
    for actors in (None, two_actors):
        with pytest.raises(InputError, match=r"shard-00000.arrow"):
            raysim.run(raw, tmp_path / "run", inline=actors is None, fleet=actors)
        assert not (tmp_path / "run").exists()
