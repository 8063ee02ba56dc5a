"""Standardisation: moments by hand, of which clients, and who is standardised by which."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import partitioning
from partitioning import Population
from partitioning.sources.arrays import nested
from raysim.data.decoding import decode_population
from raysim.data.images import ImageFormat
from raysim.data.shards import Shards
from raysim.data.standardise import MeanAndStd, Standardisation, global_scale, moment_of, standardisation


def numbers(n: int = 60) -> pa.Table:
    rng = np.random.default_rng(0)
    client = np.arange(n) % 5
    columns = {
        "a": rng.normal(3000, 40, n) + 100 * client,
        "constant": np.full(n, 7.1),
        "b": rng.integers(0, 9, n),
        "user": client,
        "label": rng.integers(0, 2, n),
    }
    return pa.table(columns)


def images(channels: int = 3) -> pa.Table:
    values = np.random.default_rng(1).integers(0, 256, (40, channels, 2, 3)).astype(np.uint8)
    return pa.table({"image": nested(values), "label": np.arange(40) % 2})


def made(folder: Path, table: pa.Table, *, standardise: bool = False) -> Population:
    how = {"scheme": "natural", "column": "user"} if "user" in table.column_names else {"scheme": "iid", "clients": 5}
    return partitioning.make(
        table, folder, test=table.slice(0, 9), test_clients=2, local_test=0.25, standardise=standardise, **how
    )


def trained(shards: Shards, population: Population) -> torch.Tensor:
    return torch.cat([shards.samples(int(client), "train")[0] for client in population.train_clients])


def test_moments_by_hand() -> None:
    vectors = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    assert (moment_of(vectors).mean.tolist(), moment_of(vectors).std.tolist()) == ([2, 5], [1, 0])
    pixels = torch.tensor([[[[0.0, 1.0]], [[4.0, 4.0]]], [[[1.0, 2.0]], [[4.0, 4.0]]]])  # [2, 2, 1, 2]
    moment = moment_of(pixels)
    assert moment.mean.tolist() == [1, 4]
    np.testing.assert_allclose(moment.std, [np.sqrt(0.5), 0], rtol=1e-12)
    assert MeanAndStd.of(moment)(pixels)[:, 1].tolist() == [[[0, 0]], [[0, 0]]]


def test_moments_in_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(50, 3, 4, 4)
    whole = moment_of(x)
    monkeypatch.setattr("raysim.data.standardise.VALUES_AT_ONCE", 100)
    parts = moment_of(x)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.std, whole.std, rtol=1e-12)
    assert (moment_of(x[:0]).n, moment_of(x[:0]).mean.tolist()) == (0, [0, 0, 0])


@pytest.mark.parametrize("table", [numbers(), images()], ids=["numbers", "images"])
def test_global_moments_are_of_the_training_rows_of_training_clients(table: pa.Table, tmp_path: Path) -> None:
    population = made(tmp_path / "p", table)
    plain, scale = Shards(population.path), global_scale(population, population.path)
    x = trained(plain, population).double()
    axes = (0, 2, 3) if x.dim() == 4 else 0
    np.testing.assert_allclose(scale.mean, x.mean(axes), rtol=1e-9)
    std = x.std(axes, correction=0).numpy()
    np.testing.assert_allclose(scale.std, np.where(std > 1e-5, std, 1), rtol=1e-6)
    shards = Shards(population.path, standardise=Standardisation(scale))
    for client in range(5):
        assert torch.equal(shards.samples(client, "all")[0], scale(plain.samples(client, "all")[0]))
    assert torch.equal(shards.test_slice(0)[0], scale(plain.test_slice(0)[0]))
    done = trained(shards, population).double()
    assert done.mean(axes).abs().max() < 1e-4


@pytest.mark.parametrize("table", [numbers(), images(), images(1)], ids=["numbers", "colour", "grey"])
def test_moments_that_the_population_was_made_with_are_the_same(table: pa.Table, tmp_path: Path) -> None:
    with_moments, without = made(tmp_path / "a", table, standardise=True), made(tmp_path / "b", table)
    assert with_moments.moments is not None and without.moments is None
    stored, computed = (global_scale(each, each.path) for each in (with_moments, without))
    np.testing.assert_allclose(stored.mean, computed.mean, rtol=1e-6)
    np.testing.assert_allclose(stored.std, computed.std, rtol=1e-6)


def test_moments_are_of_the_fold_s_training_clients(tmp_path: Path) -> None:
    partitioning.make(numbers(), tmp_path / "p", scheme="natural", column="user", folds=5)
    scales = [global_scale(Population.open(tmp_path / "p", fold), tmp_path / "p") for fold in range(5)]
    assert len({scale.mean[0] for scale in scales}) == 5


def test_every_client_by_its_own_moments_held_out_ones_too(tmp_path: Path) -> None:
    population = made(tmp_path / "p", numbers())
    own = standardisation("client", population, population.path)
    assert own == Standardisation(global_scale(population, population.path), per_client=True)
    plain, shards = Shards(population.path), Shards(population.path, standardise=own)
    assert len(population.test_clients) == 2
    for client in range(5):
        train, whole = plain.samples(client, "train")[0].double(), plain.samples(client, "all")[0].double()
        std = train.std(0, correction=0)
        expected = (whole - train.mean(0)) / torch.where(std > 1e-3, std, 1)
        # Values of 3000 have few digits behind the point in float32.
        torch.testing.assert_close(shards.samples(client, "all")[0].double(), expected, atol=2e-5, rtol=0)
        assert shards.samples(client, "train")[0][:, 1].abs().max() == 0  # the constant column is only centred
    assert torch.equal(shards.test_slice(0)[0], own.scale(plain.test_slice(0)[0]))


def test_columns_without_stored_moments_are_measured(tmp_path: Path) -> None:
    population = made(tmp_path / "p", numbers(), standardise=True)

    def add(batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        return batch.append_column("new", batch["a"])

    rewritten = partitioning.rewrite(population, tmp_path / "q", add)
    before, after = (global_scale(each, each.path) for each in (population, rewritten))
    np.testing.assert_allclose(after.mean, [*before.mean, before.mean[0]], rtol=1e-6)


def test_moments_of_other_values_are_not_carried_over(tmp_path: Path) -> None:
    population = made(tmp_path / "p", numbers(), standardise=True)

    def scale(batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        factor = 100 if owner == "client 3" else 1
        return batch.set_column(batch.schema.names.index("a"), "a", pa.array(batch["a"].to_numpy() * factor))

    rewritten = partitioning.rewrite(population, tmp_path / "q", scale)
    assert population.moments is not None and rewritten.moments is None
    assert partitioning.verify(rewritten.path) == [] and not (rewritten.path / "moments.parquet").exists()
    x = trained(Shards(rewritten.path), rewritten).double()
    np.testing.assert_allclose(global_scale(rewritten, rewritten.path).mean, x.mean(0), rtol=1e-6)


def test_stored_moments_are_not_those_of_resized_images(tmp_path: Path) -> None:
    population = made(tmp_path / "p", images(), standardise=True)
    decoded = decode_population(population, picture=ImageFormat((3, 2)))
    x = trained(Shards(decoded), population).double()
    scale = global_scale(population, decoded)
    np.testing.assert_allclose(scale.std, x.std((0, 2, 3), correction=0), rtol=1e-9)
    assert not np.allclose(scale.std, global_scale(population, population.path).std, rtol=1e-3)
