from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import partitioning
from partitioning import Population
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.data.shards import Shards
from raysim.data.sources import load
from raysim.data.tensors import decoder_of
from raysim.simulation.population import population_of
from raysim.simulation.samples import prepare_samples
from tests.kit.runs import quick_run

BASE = {"partition": {"clients": 4}}


def rows(batches: list[pa.RecordBatch]) -> list[str]:
    return [str(row) for batch in batches for row in batch.to_pylist()]


def test_a_share_of_the_rows_becomes_the_global_test_set(tmp_path) -> None:
    experiment = Experiment.of({**BASE, "data": {"dataset": "digits", "test": 0.2}})
    population = population_of(experiment, tmp_path / "population")
    test = rows([population.test_batch(i) for i in range(len(population.test_slices))])
    train = rows([population.batch(client) for client in range(4)])
    assert len(test) == 359
    assert sorted(test + train) == sorted(rows(load("digits").train.to_batches()))


def test_a_share_that_is_smaller_in_binary_is_not_a_row_short(tmp_path) -> None:
    pq.write_table(pa.table({"x": np.arange(100.0), "label": [0, 1] * 50}), tmp_path / "t.parquet")
    data = {"dataset": f"file:{tmp_path / 't.parquet'}", "test": 0.29}
    population = population_of(Experiment.of({**BASE, "data": data}), tmp_path / "population")
    assert (sum(population.test_slices), population.sizes.sum()) == (29, 71)


def test_a_second_table_may_be_the_global_test_set(tmp_path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(load("digits").train.slice(0, 50), tmp_path / "t.parquet")
    experiment = Experiment.of({**BASE, "data": {"dataset": "digits", "test": f"file:{tmp_path / 't.parquet'}"}})
    population = population_of(experiment, tmp_path / "population")
    assert sum(population.test_slices) == 50 and population.sizes.sum() == 1797


def wards(rows: int, seed: int, names: str = "abc") -> pa.Table:
    rng = np.random.default_rng(seed)
    ward = np.array([names[row % len(names)] for row in range(rows)])
    return pa.table({"x": rng.normal(size=rows), "ward": ward, "label": rng.integers(0, 2, rows)})


def split_wards(folder: Path, test: pa.Table, **partition: Any) -> Experiment:
    pq.write_table(wards(60, 0), folder / "train.parquet")
    pq.write_table(test, folder / "test.parquet")
    data = {"dataset": f"file:{folder / 'train.parquet'}", "test": f"file:{folder / 'test.parquet'}"}
    natural = {"scheme": "natural", "column": "ward", "local_test": "data.test"}
    return Experiment.of({"rounds": 2, "data": data, "partition": natural | partition, "model": {"name": "logistic"}})


def test_the_rows_of_a_global_test_set_may_be_their_owners_own_test_parts(tmp_path) -> None:
    test = wards(21, 1)
    population = population_of(split_wards(tmp_path, test), tmp_path / "population")
    assert population.test_sizes.tolist() == [7] * 3 and not population.tests
    own = test.filter(pc.equal(test["ward"], "b"))["x"].to_pylist()
    assert sorted(population.batch(1)["x"].to_pylist()[-7:]) == sorted(own)
    done = quick_run(split_wards(tmp_path, test).to_toml(), tmp_path / "run", inline=True)
    clients = pq.read_table(done.folder / "fedavg" / "clients.parquet")
    mean = done.results[0].metrics["local_mean_accuracy"]
    assert mean == pytest.approx(np.mean(clients["test_accuracy"].to_pylist()), abs=1e-12)


@pytest.mark.parametrize(
    ("test", "partition", "message"),
    [
        (
            wards(8, 1, "abcd"),
            {"scheme": "natural"},
            "'d' of column 'ward' has rows in the global test set and none for training",
        ),
        (
            wards(9, 1).rename_columns(["z", "ward", "label"]),
            {"scheme": "natural"},
            "the test set of .* has the column 'z' and lacks 'x', unlike the samples",
        ),
        (wards(9, 1), {"scheme": "iid"}, 'local_test = "data.test" with partition.scheme = "iid"'),
    ],
)
def test_test_rows_without_a_client_are_refused(tmp_path, test, partition, message) -> None:
    changed = split_wards(tmp_path, test).to_toml()
    if partition["scheme"] == "iid":
        changed["data"]["without"] = ["ward"]
    else:
        partition = {**partition, "column": "ward"}
    changed["partition"] = {**partition, "local_test": "data.test"}
    with pytest.raises(InputError, match=message):
        population_of(Experiment.of(changed), tmp_path / "population")


def test_own_test_parts_of_a_test_set_need_one(tmp_path) -> None:
    changed = split_wards(tmp_path, wards(9, 1)).to_toml()
    del changed["data"]["test"]
    with pytest.raises(InputError, match="without a global test set: must have one"):
        population_of(Experiment.of(changed), tmp_path / "population")


@pytest.mark.parametrize("standardise", ["global", "client"])
def test_a_column_of_a_population_may_be_left_out(tmp_path: Path, standardise: str) -> None:
    whole = wards(60, 0).add_column(0, "note", pa.array([f"text {row}" for row in range(60)]))
    options = {"scheme": "natural", "column": "ward", "folds": 3, "local_test": 0.2, "standardise": True}
    runs = []
    for name, table, without in (("whole", whole, ["note"]), ("bare", whole.drop_columns("note"), [])):
        partitioning.make(table.append_column("z", table["x"]), tmp_path / name, **options)
        data = {"population": str(tmp_path / name), "fold": 1, "standardise": standardise, "without": without}
        given = {"rounds": 2, "data": data, "model": {"name": "logistic"}}
        runs.append(quick_run(given, tmp_path / f"{name}-run", inline=True))
    one, two = ((run.folder / "fedavg" / "model.safetensors").read_bytes() for run in runs)
    assert one == two and runs[0].results[0].metrics == runs[1].results[0].metrics
    assert "note" in Population.open(tmp_path / "whole").schema.names
    for without, message in (
        (["not"], "whole without 'not': column 'note' is string, which is not a feature"),
        (["note", "nothing"], "unknown column 'nothing' of data.without"),
        (["x"], rf"^{tmp_path}/whole without 'x': column 'note' is string, which is not a feature"),
    ):
        data = {"population": str(tmp_path / "whole"), "without": without}
        with pytest.raises(InputError, match=message) as refused:
            quick_run({"data": data, "model": {"name": "logistic"}}, tmp_path / "wrong", inline=True)
        assert "decoded" not in str(refused.value) and not (tmp_path / "wrong").exists()


def test_a_fold_is_a_view_of_the_population_whether_made_or_opened(tmp_path) -> None:
    partition = {"clients": 7, "folds": 3, "fold": 2, "stratify": True}
    made = population_of(Experiment.of({"partition": partition, "data": {"dataset": "digits"}}), tmp_path / "made")
    whole = Population.open(made.path)
    assert made.test_clients.tolist() == [int(c) for c in range(7) if whole.folds[c] == 2]
    assert made.validation_clients.tolist() == [int(c) for c in range(7) if whole.folds[c] == 0]
    elsewhere = Experiment.of({"data": {"population": str(made.path), "fold": 2}})
    assert population_of(elsewhere, tmp_path / "unused").fingerprint == made.fingerprint != whole.fingerprint


def test_validation_clients_are_held_out_too(tmp_path) -> None:
    partition = {"clients": 6, "test_clients": 1, "validation_clients": 2}
    made = population_of(Experiment.of({"partition": partition, "data": {"dataset": "digits"}}), tmp_path / "made")
    assert [len(made.train_clients), len(made.validation_clients), len(made.test_clients)] == [3, 2, 1]


def test_a_made_population_is_opened_where_it_is(tmp_path) -> None:
    made = population_of(Experiment.of({**BASE, "data": {"dataset": "digits"}}), tmp_path / "made")
    again = population_of(Experiment.of({"data": {"population": str(made.path)}}), tmp_path / "unused")
    assert isinstance(again, Population) and again.path == made.path
    with pytest.raises(InputError):
        population_of(Experiment.of({"data": {"population": str(tmp_path / "nosuch")}}), tmp_path / "unused")


def test_an_opened_population_has_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors may have another working folder, and so may a resume."""
    monkeypatch.chdir(tmp_path)
    made = Experiment.of({**BASE, "data": {"dataset": "digits"}})
    named = Experiment.of({"data": {"population": "made"}})
    paths = [population_of(each, Path("made")).path for each in (made, made, named)]
    assert paths == [tmp_path / "made"] * 3


def test_a_population_may_be_where_a_uri_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("raysim.watching.progress.PATIENCE", (0, 0))
    made = population_of(Experiment.of({**BASE, "data": {"dataset": "digits"}}), tmp_path / "made")
    elsewhere = Experiment.of({"data": {"population": made.path.as_uri()}})
    told: list[str] = []
    opened = population_of(elsewhere, tmp_path / "unused", told.append)
    assert opened.fingerprint == made.fingerprint and opened.path == tmp_path / "cache" / "populations" / made.digest
    assert told[0].startswith(f"fetching {made.path.as_uri()}: 0 of")
    # The resolved file says where it came from, and what is there is not fetched again.
    assert Experiment.of(elsewhere.to_toml()) == elsewhere
    told.clear()
    assert population_of(elsewhere, tmp_path / "unused", told.append).path == opened.path and not told


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("partition.column", {"partition": {"scheme": "natural", "column": "hospitl"}}),
        ("partition.domain", {"partition": {"scheme": "domains", "domain": "hospitl"}}),
        ("partition.site", {"partition": {"scheme": "iid", "clients": 4, "site": "hospitl"}}),
        ("partition.features", {"partition": {"scheme": "iid", "clients": 4, "features": ["hospitl"]}}),
        ("partition.by", {"partition": {"scheme": "shards", "clients": 4, "by": "hospitl"}}),
    ],
)
def test_a_missing_column_is_named_before_any_column_of_text(key: str, keys: dict[str, Any], tmp_path: Path) -> None:
    table = {"x": [0.5] * 40, "hospital": ["a", "b", "c", "d"] * 10, "label": [0, 1] * 20}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    experiment = Experiment.of({"data": {"dataset": f"file:{tmp_path / 't.parquet'}"}, **keys})
    with pytest.raises(InputError) as refused:
        population_of(experiment, tmp_path / "population")
    said = (
        f"unknown column {key} = 'hospitl': did you mean 'hospital'? It must be one of x, hospital, label; use one of "
        "them"
    )
    assert str(refused.value) == said


@pytest.mark.parametrize("hospital", [[1, 2, 3], ["a", "b", "c"]])
def test_the_column_that_names_the_client_is_no_input(tmp_path: Path, hospital: list[int] | list[str]) -> None:
    table = pa.table({"age": [1.0, 2.0, 3.0] * 8, "hospital": hospital * 8, "label": [0, 1, 1] * 8})
    pq.write_table(table, tmp_path / "t.parquet")
    experiment = Experiment.of(
        {
            "data": {"dataset": f"file:{tmp_path / 't.parquet'}"},
            "partition": {"scheme": "natural", "column": "hospital"},
            "algorithm": {"name": "fedavg"},
        }
    )
    population = population_of(experiment, tmp_path / "population")
    assert len(population) == 3
    assert decoder_of(population).shape == (1,)
    assert Shards(population.path).samples(1, "all")[0].tolist() == [[2.0]] * 8


def test_the_column_that_names_the_site_is_no_input(tmp_path: Path) -> None:
    table = pa.table({"age": [1.0, 2.0] * 8, "ward": [0, 1, 2, 3] * 4, "town": [1, 2] * 8, "label": [0, 1] * 8})
    pq.write_table(table, tmp_path / "t.parquet")
    experiment = Experiment.of(
        {
            "data": {"dataset": f"file:{tmp_path / 't.parquet'}"},
            "partition": {"scheme": "natural", "column": "ward", "site": "town"},
        }
    )
    population = population_of(experiment, tmp_path / "population")
    assert population.sites is not None and population.sites.to_pylist() == ["1", "1", "2", "2"]
    assert decoder_of(population).shape == (1,)
    (population.path / population.manifest.shards[0].name).unlink()
    assert Shards(population.path, sites=("2",)).samples(2, "all")[0].tolist() == [[2.0]] * 4


@pytest.mark.parametrize(
    ("made", "data", "told"),
    [
        pytest.param({"standardise": True}, {"standardise": "global"}, None, id="moments are there"),
        pytest.param({}, {}, None, id="nothing is asked for"),
        pytest.param({}, {"standardise": "global"}, "read at that site; with fleet.pinned = true", id="moments"),
        pytest.param({}, {"image_size": 4}, "read at that site; with fleet.pinned = true", id="pictures"),
    ],
)
def test_a_driver_prepares_a_pinned_population_without_its_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, Any], data: dict[str, Any], told: str | None
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    digits = load("digits").train
    towns = pa.array(["bath" if row % 2 else "york" for row in range(len(digits))])
    table = digits.append_column("town", towns)
    partitioning.make(table, tmp_path / "p", scheme="domains", domain="town", clients_per_domain=2, site="town", **made)
    for shard in (tmp_path / "p").glob("shard-*"):
        shard.unlink()
    raw = {"data": {"population": str(tmp_path / "p"), **data}, "fleet": {"pinned": True}}
    experiment = Experiment.of(raw)
    population = population_of(experiment, tmp_path / "unused")
    if told is None:
        assert prepare_samples(population, experiment.data).shape == (1, 8, 8)
    else:
        with pytest.raises(InputError, match=told):
            prepare_samples(population, experiment.data)


def test_a_pinned_population_is_not_fetched(tmp_path: Path) -> None:
    raw = {"data": {"population": "s3://bucket/p"}, "fleet": {"pinned": True}}
    with pytest.raises(InputError, match="must be a folder in which each node has the samples of its own site; give"):
        population_of(Experiment.of(raw), tmp_path / "unused")


def drawn(tmp_path: Path, name: str, seed: int = 0, **data: Any) -> Population:
    raw = {**BASE, "seed": seed, "data": {"dataset": "digits", **data}}
    return population_of(Experiment.of(raw), tmp_path / name)


@pytest.mark.parametrize(("sample", "rows"), [(0.1, (144, 36)), (144, (144, 36)), (4, (4, 1)), (1438, (1438, 359))])
def test_a_sample_is_drawn_of_the_training_rows_and_the_same_share_of_the_test_rows(
    tmp_path: Path, sample: float, rows: tuple[int, int]
) -> None:
    population = drawn(tmp_path, "own", test=0.2, sample=sample)
    counts = population.manifest.counts
    assert (counts.samples, counts.test_rows) == rows


def test_a_sample_depends_on_the_seed_alone_and_has_rows_of_the_whole(tmp_path: Path) -> None:
    own = [drawn(tmp_path, name, seed, sample=50) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    found = [sorted(rows([each.batch(client) for client in range(4)])) for each in own]
    assert found[0] == found[1] != found[2]
    assert set(found[0]) <= set(rows(load("digits").train.to_batches()))


def test_a_sample_may_lack_a_class_of_the_test_set(tmp_path: Path) -> None:
    population = drawn(tmp_path, "own", test=0.5, sample=5)
    assert population.manifest.counts.samples == 5
    with pytest.raises(InputError, match=r"data.sample = 1798: must be at most 1797, the number of training rows"):
        drawn(tmp_path, "large", sample=1798)
