"""Populations of data sets that have domains, speakers or classes named by folders."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from partitioning import Population
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.simulation.population import population_of
from tests.kit.runs import quick_run

DOMAINS = {"scheme": "domains", "domain": "domain"}


def made(data: dict[str, Any], partition: dict[str, Any], folder: Path, seed: int = 0) -> Population:
    experiment = Experiment.of({"seed": seed, "data": data, "partition": partition})
    return population_of(experiment, folder / f"population-{len(list(folder.iterdir()))}")


def test_every_domain_has_clients_and_a_test_set(tmp_path: Path) -> None:
    population = made({"dataset": "gaussians"}, DOMAINS, tmp_path)
    assert population.domains is not None
    assert population.domains.to_pylist() == ["combined", "diagonal"]
    assert population.sizes.tolist() == [1000, 1000]
    assert {name: sum(population.slices_of(name)) for name in population.tests} == {"combined": 1000, "diagonal": 1000}


def test_without_clients_of_domains_their_rows_are_one_set(tmp_path: Path) -> None:
    population = made({"dataset": "gaussians"}, {"clients": 4}, tmp_path)
    assert population.schema.names == ["x", "label"]
    assert list(population.tests) == [None] and sum(population.test_slices) == 2000


def test_a_share_of_the_rows_tests_each_domain(tmp_path: Path) -> None:
    data = {"dataset": "shifted:digits", "shifts": ["none", "invert", "blur"], "test": 0.1}
    population = made(data, {**DOMAINS, "clients_per_domain": 2}, tmp_path)
    assert sorted(str(name) for name in population.tests) == ["blur", "invert", "none"]
    assert population.sizes.sum() == 1797 - 179
    assert sum(sum(population.slices_of(str(name))) for name in population.tests) == 179


def test_so_many_rows_of_each_domain(tmp_path: Path) -> None:
    first, again, other = (
        made({"dataset": "gaussians", "per_domain": 62}, DOMAINS, tmp_path, seed) for seed in (1, 1, 2)
    )
    assert first.sizes.tolist() == [62, 62]
    assert {sum(first.slices_of(str(name))) for name in first.tests} == {1000}
    rows = [[batch.to_pylist() for batch in map(each.batch, range(2))] for each in (first, again, other)]
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize(
    ("data", "partition", "message"),
    [
        ({"dataset": "gaussians", "per_domain": 1001}, DOMAINS, "data.per_domain = 1001: must be at most 1000"),
        ({"dataset": "gaussians", "per_domain": 5}, {"clients": 2}, 'set partition.scheme = "domains"'),
        ({"dataset": "gaussians"}, {**DOMAINS, "domain": "site"}, "site"),
        ({"dataset": "digits", "shifts": ["none"]}, {"clients": 2}, "shifted:digits"),
    ],
)
def test_refusals(data: dict[str, Any], partition: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        made(data, partition, tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_second_table_without_a_class(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1.0, 2.0], "label": [0, 2]}), tmp_path / "t.parquet")
    data = {"dataset": "file:a.parquet", "root": str(tmp_path), "test": "file:t.parquet"}
    with pytest.raises(InputError, match=r"class 2 of column 'label' is in the test set of file:.*t\.parquet"):
        made(data, {"clients": 1}, tmp_path)


def test_a_speaker_is_a_client(tmp_path: Path) -> None:
    words = "What light through yonder window breaks? It is the east, and Juliet is the sun. "
    (tmp_path / "shakespeare.txt").write_text(f"Romeo:\n{words}{words}\n\nNurse:\n{words}Ay me.\n\nPeter:\nNo.\n")
    partition = {"scheme": "natural", "column": "speaker"}
    population = made({"dataset": "shakespeare", "root": str(tmp_path)}, partition, tmp_path)
    assert population.names is not None
    assert population.names.to_pylist() == ["Nurse", "Romeo"]
    assert population.sizes.tolist() == [len(words) + 6 - 80, 2 * len(words) - 80]


def test_folders_of_domains_are_trained_on(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for part, copies in (("train", 6), ("test", 2)):
        for domain in ("bright", "dark"):
            for place, name in enumerate(("left", "right")):
                folder = tmp_path / "own" / part / domain / name
                folder.mkdir(parents=True)
                for i in range(copies):
                    image = draw.integers(0, 40, (4, 4), dtype=np.uint8) + (100 if domain == "bright" else 0)
                    image[:, 2 * place : 2 * place + 2] += 90
                    Image.fromarray(image.astype(np.uint8)).save(folder / f"{i}.png")
    experiment = {
        "rounds": 20,
        "data": {"dataset": "folder:own", "root": str(tmp_path)},
        "partition": DOMAINS,
        "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
        "algorithm": {"name": "fedbn", "fraction": 1.0},
        "local": {"epochs": 1, "batch_size": 6, "lr": 0.1},
        "evaluate": {"on": ["domains"], "metrics": ["accuracy"]},
    }
    done = quick_run(experiment, tmp_path / "run", inline=True)
    manifest = Population.open(tmp_path / "run" / "population").manifest
    assert list(manifest.classes) == ["left", "right"]
    metrics = done.results[0].metrics
    assert {"domain_bright_accuracy", "domain_dark_accuracy", "domains_accuracy"} <= set(metrics)
    assert metrics["domains_accuracy"] == 1.0


def test_copies_are_of_the_rows_that_were_drawn(tmp_path: Path) -> None:
    data = {"dataset": "shifted:digits", "shifts": ["none", "invert"], "per_domain": 100}
    population = made({**data, "augment": "append"}, DOMAINS, tmp_path)
    assert population.sizes.tolist() == [200, 200]
