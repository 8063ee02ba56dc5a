"""Clients that join in a later round, by their domain, name or number."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partitioning
import raysim
from raysim.errors import InputError
from raysim.fleet.bench import joining


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


@pytest.mark.parametrize(
    ("joins", "message"),
    [
        ({"evE": 4}, "algorithm.joins = 'evE'.*eve"),
        ({"ann": 2, "bob": 2, "eve": 2}, "must leave a client that is there from the first round"),
    ],
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
    raysim.run(config, tmp_path / "run", inline=True)
    visits = pq.read_table(tmp_path / "run" / "fedbn" / "visits.parquet").to_pydict()
    assert [(r, c) for r, c in zip(visits["round"], visits["client"], strict=True) if c == 2] == [(3, 2)]
