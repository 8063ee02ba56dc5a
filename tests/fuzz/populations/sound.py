"""Small populations of every form that raysim trains on, made of real digits, and an experiment on each."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import partitioning
import raysim
from partitioning import Population
from raysim.data.arrays import flat
from raysim.data.sources import load
from tests.kit.runs import quick_run

ROWS, TEST_ROWS = 150, 40


@dataclass(frozen=True)
class Sound:
    """A population without a fault.

    Args:
        name: what it has.
        folder: where it is.
        other: the same rows, partitioned by another seed: what is foreign to it, and often of the same size.
        experiment: what is run on it, the data apart.
    """

    name: str
    folder: Path
    other: Path
    experiment: dict[str, Any]


def make_all(root: Path) -> list[Sound]:
    """Make them."""
    return [Sound(name, root / name, root / f"{name}-other", experiment) for name, experiment in _made(root)]


def _made(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = load("digits").train.slice(0, ROWS + TEST_ROWS)
    for name, table, test, options, experiment in _kinds(rows):
        for folder, seed in ((root / name, 1), (root / f"{name}-other", 2)):
            partitioning.make(table, folder, seed=seed, test=test, dataset=name, **options)
        yield name, {**EXPERIMENT, **experiment}


EXPERIMENT: dict[str, Any] = {
    "seed": 5,
    "rounds": 2,
    "model": {"name": "mlp", "hidden": [6], "norm": "batch"},
    "local": {"lr": 0.1, "batch_size": 20},
    "evaluate": {"every": 1, "metrics": ["accuracy", "loss"]},
}


def _kinds(rows: pa.Table) -> Iterator[tuple[str, pa.Table, Any, dict[str, Any], dict[str, Any]]]:
    def split(table: pa.Table) -> tuple[pa.Table, pa.Table]:
        return table.slice(0, ROWS), table.slice(ROWS)

    drawn = {"scheme": "dirichlet", "label_alpha": 0.5, "clients": 7, "test_clients": 1, "local_test": 0.2}
    yield "arrays", *split(rows), drawn, {"algorithm": {"name": "radfed", "aggregate_every": 2}}
    options = {"scheme": "iid", "clients": 6, "folds": 3, "standardise": True, "features": ("x3", "label")}
    keys = {"algorithm": {"name": "fedbn"}, "data": {"standardise": "global", "fold": 1}}
    yield "numbers", split(numbers(rows))[0], None, options, keys
    table, test = split(words(rows))
    domains = {site: test.filter(pa.compute.equal(test["site"], site)) for site in ("mine", "moor")}
    options = {"scheme": "domains", "domain": "site", "clients_per_domain": 3, "validation_clients": 1}
    yield "words", table, domains, options, {"algorithm": {"name": "fedavg", "fraction": 0.6}}
    shards = {"scheme": "shards", "shards_per_client": 2, "clients": 5, "test_clients": 1}
    yield "images", *split(images(rows)), shards, {"algorithm": {"name": "fedasync"}}


def numbers(rows: pa.Table) -> pa.Table:
    """Digits as columns of numbers, of several types."""
    pixels = flat(rows["image"].combine_chunks()).to_numpy().reshape(len(rows), 64)
    kinds = (np.float32, np.float64, np.uint8, np.int32)
    columns = {f"x{i}": pixels[:, 8 + i].astype(kinds[i % 4]) for i in range(8)}
    return pa.table({**columns, "label": rows["label"]})


def words(rows: pa.Table) -> pa.Table:
    """Digits whose labels are words, and that belong to sites."""
    site = np.where(np.arange(len(rows)) % 3 == 0, "mine", "moor")
    label = [f"number {label}" for label in rows["label"].to_pylist()]
    table = numbers(rows).drop_columns("label").append_column("label", pa.array(label))
    return table.append_column("site", pa.array(site).dictionary_encode())


def images(rows: pa.Table) -> pa.Table:
    """Digits as PNG files."""
    pixels = flat(rows["image"].combine_chunks()).to_numpy().reshape(len(rows), 8, 8)
    encoded = []
    for image in (pixels / pixels.max() * 255).astype(np.uint8):
        with io.BytesIO() as file:
            Image.fromarray(image).save(file, "PNG")
            encoded.append({"bytes": file.getvalue(), "path": None})
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.table({"image": pa.array(encoded, kind), "label": rows["label"]})


def read(folder: Path) -> str:
    """Read all that the partitioner gives of a population; its digest."""
    population = Population.open(folder)
    digest = hashlib.sha256()
    columns = (population.sizes, population.test_sizes, population.splits, population.folds, population.row_numbers)
    for column in (*columns, population.class_counts, *population.feature_counts.values()):
        digest.update(np.ascontiguousarray(column).tobytes())
    words = [None if column is None else column.to_pylist() for column in (population.names, population.domains)]
    digest.update(repr((words, population.tests)).encode())
    if population.moments is not None:
        whole = population.moments.together(population.train_clients)
        digest.update(whole.mean.tobytes() + whole.std.tobytes() + population.moments.counts().tobytes())
    for client in range(len(population)):
        digest.update(_values(population.batch(client)))
    for name in population.tests:
        for number in range(len(population.slices_of(name))):
            digest.update(_values(population.test_batch(number, name)))
    return digest.hexdigest()


def _values(batch: pa.RecordBatch) -> bytes:
    # Not Arrow's own bytes: between values they have some that mean nothing.
    return repr((batch.schema.names, batch.to_pydict())).encode()


def run(folder: Path, experiment: dict[str, Any], out: Path) -> str:
    """Run an experiment on a population, in this process; a digest of its model and its metrics."""
    data = {**experiment.get("data", {}), "population": str(folder)}
    return digest_of(quick_run({**experiment, "data": data}, out, inline=True))


def digest_of(done: raysim.Run) -> str:
    """A digest of a run's model and its metrics."""
    files = done.folder / done.results[0].name
    digest = hashlib.sha256((files / "model.safetensors").read_bytes())
    metrics = pq.read_table(files / "metrics.parquet")
    for name in metrics.column_names:
        if not name.startswith(("seconds", "machine_")):
            digest.update(repr((name, metrics[name].to_pylist())).encode())
    return digest.hexdigest()
