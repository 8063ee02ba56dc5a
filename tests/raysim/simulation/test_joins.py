"""Clients that join in a later round, by their domain, name or number."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import partitioning
from raysim.common.errors import InputError
from raysim.data.sources import load
from raysim.fleet.census import joining
from tests.kit.runs import quick_run


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> partitioning.Population:
    users = np.repeat(["ann", "bob", "eve"], 20)
    rng = np.random.default_rng(0)
    columns = {"user": users, "label": rng.integers(0, 2, 60), "a": rng.normal(size=60), "b": rng.normal(size=60)}
    path = tmp_path_factory.mktemp("joins")
    return partitioning.make(pa.table(columns), path / "population", scheme="natural", column="user", seed=0)


def test_by_name_and_number(population: partitioning.Population) -> None:
    assert joining(population, {}) is None
    by_name, by_number = joining(population, {"eve": 4}), joining(population, {"2": 4})
    assert by_name is not None and by_number is not None
    assert by_name.tolist() == by_number.tolist() == [1, 1, 4]


def test_a_name_comes_before_a_number(tmp_path: Path) -> None:
    columns = {"user": np.repeat([1, 2, 7], 20), "label": np.tile([0, 1], 30), "a": np.arange(60.0)}
    made = partitioning.make(pa.table(columns), tmp_path / "population", scheme="natural", column="user", seed=0)
    for name, rounds in {"1": [4, 1, 1], "2": [1, 4, 1], "7": [1, 1, 4], "0": [4, 1, 1]}.items():
        found = joining(made, {name: 4})
        assert found is not None and found.tolist() == rounds


@pytest.mark.parametrize(
    ("joins", "message"),
    [({"evE": 4}, "algorithm.joins = 'evE'.*eve"), ({"ann": 2, "bob": 2, "eve": 2}, "must leave a client for round 1")],
)
def test_what_makes_no_sense_is_refused(
    population: partitioning.Population, joins: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        joining(population, joins)


def test_a_run(population: partitioning.Population, tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "rounds": 3,
        "data": {"population": str(population.path)},
        "model": {"name": "mlp", "hidden": [4], "norm": "batch"},
        "algorithm": {"name": "fedbn", "joins": {"eve": 3}},
    }
    quick_run(config, tmp_path / "run", inline=True)
    updates = pq.read_table(tmp_path / "run" / "fedbn" / "updates.parquet").to_pydict()
    assert [(r, c) for r, c in zip(updates["round"], updates["client"], strict=True) if c == 2] == [(3, 2)]


def test_a_domain_that_never_joins_is_tested_with_statistics_of_its_own(tmp_path: Path) -> None:
    """Of two slices, whose statistics are taken together; by hand from the run's files."""
    drawn = load("gaussians", dividing=["domain"])
    table, test = drawn.train.sort_by("domain"), drawn.test
    assert test is not None
    unknown = test.filter(pc.field("domain") == "combined")
    tests = {"combined": pa.concat_tables([unknown, unknown.slice(0, 500)]), "diagonal": test.slice(0, 10)}
    path = tmp_path / "population"
    partitioning.make(table, path, scheme="domains", domain="domain", seed=0, test=tests)
    config: dict[str, Any] = {
        "rounds": 2,
        "data": {"population": str(path)},
        "model": {"name": "mlp", "hidden": [4], "norm": "batch"},
        "local": {"lr": 0.1},
        "algorithm": [
            {"name": "fedbn", "joins": {"combined": 100}, "outsider": "own"},
            {"name": "fedbn", "joins": {"combined": 100}},
        ],
        "evaluate": {"metrics": ["loss"]},
    }
    own, average = (
        each.metrics["domain_combined_loss"] for each in quick_run(config, tmp_path / "run", inline=True).results
    )
    model = load_file(tmp_path / "run" / "fedbn" / "model.safetensors")
    personal = {
        name: value[0]
        for name, value in load_file(tmp_path / "run" / "fedbn" / "personal.safetensors").items()
        if value.ndim > 1
    }
    x = np.asarray(tests["combined"]["x"].to_pylist(), np.float32)
    y = np.asarray(tests["combined"]["label"])
    hidden = x @ model["linear1.weight"].T + model["linear1.bias"]
    normal = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-5)
    logits = (
        np.maximum(normal * personal["norm1.weight"] + personal["norm1.bias"], 0) @ model["output.weight"].T
        + model["output.bias"]
    )
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
    assert own == pytest.approx(losses.mean(), rel=1e-2)
    assert average != pytest.approx(own, rel=2e-2)
