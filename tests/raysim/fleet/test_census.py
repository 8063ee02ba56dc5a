"""Columns of the clients that options read, and edges by them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partitioning
from raysim.fleet.census import client_facts_of
from tests.kit.runs import quick_run


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> partitioning.Population:
    """Clients ann, bob and eve, whose most frequent classes are 1, 0 and 2."""
    users, labels = np.repeat(["ann", "bob", "eve"], 20), np.concatenate([[1] * 15 + [0] * 5, [0] * 20, [2] * 19 + [1]])
    columns = {"user": users, "label": labels, "a": np.random.default_rng(0).normal(size=60)}
    path = tmp_path_factory.mktemp("facts") / "population"
    return partitioning.make(pa.table(columns), path, scheme="natural", column="user", seed=0)


def test_facts_that_there_are(population: partitioning.Population) -> None:
    assert client_facts_of(population, ()) == {}
    assert list(client_facts_of(population, ("domain",))) == []
    assert client_facts_of(population, ("label", "domain"))["label"].tolist() == [1, 0, 2]


def test_edges_of_domains(tmp_path: Path) -> None:
    config = {
        "rounds": 2,
        "data": {"dataset": "shifted:digits", "shifts": ["none", "invert", "blur"], "test": 0.1},
        "partition": {"scheme": "domains", "domain": "domain", "clients_per_domain": 2},
        "model": {"hidden": [4]},
        "algorithm": {"name": "hierfavg", "edges": {"by": "domain", "cloud_every": 2}},
    }
    quick_run(config, tmp_path / "run", inline=True)
    clients = pq.read_table(tmp_path / "run" / "hierfavg" / "clients.parquet").to_pydict()
    by_domain = dict(zip(clients["domain"], clients["edge"], strict=True))
    assert by_domain == {"blur": 0, "invert": 1, "none": 2}
    assert clients["edge"] == [by_domain[domain] for domain in clients["domain"]]
