"""What a population holds beside its samples: folds, source rows, names, test sets, counted features."""

import json
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partitioning
from partitioning import InputError, Population, rewrite
from partitioning.common.sealing import sealed
from partitioning.sources.source import TableSource
from partitioning.store.splits import SPLITS
from tests.kit.tables import edit_table, rich_table, with_column

OPTIONS = {"scheme": "dirichlet-qp", "clients": 11, "label_alpha": 0.3, "min_size": 0, "seed": 4}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    table = rich_table()
    return partitioning.make(
        table,
        tmp_path_factory.mktemp("sound") / "p",
        folds=4,
        stratify=True,
        local_test=0.2,
        features=("kind", "row"),
        standardise=True,
        test={"photo": table.slice(0, 30), "clip art": table.slice(30, 1500), None: table.slice(9, 4)},
        **OPTIONS,
    )


@pytest.fixture
def folded(sound, tmp_path):
    return Population.open(shutil.copytree(sound.path, tmp_path / "p"))


def test_a_view_of_each_fold_tests_its_clients_once(folded):
    views = [folded.fold(number) for number in range(4)]
    assert sorted(np.concatenate([view.test_clients for view in views]).tolist()) == list(range(11))
    for number, view in enumerate(views):
        assert np.array_equal(view.test_clients, np.flatnonzero(folded.folds == number))
        assert np.array_equal(view.validation_clients, np.flatnonzero(folded.folds == (number + 1) % 4))
        assert sorted([*view.train_clients, *view.validation_clients, *view.test_clients]) == list(range(11))
        assert np.array_equal(view.splits == "test", folded.folds == number)
        assert view.batch(3).equals(folded.batch(3))
    assert np.array_equal(folded.splits, views[0].splits)
    assert np.array_equal(folded.fold(0, validation=3).validation_clients, views[3].test_clients)
    assert np.array_equal(views[2].fold(1).splits, views[1].splits)


def test_views_pickle_as_themselves_and_have_their_own_fingerprints(folded):
    views = [folded, folded.fold(1), folded.fold(1, validation=3), folded.fold(2)]
    assert len({view.fingerprint for view in views}) == 4
    assert len({view.digest for view in views}) == 1
    for view in views:
        again = pickle.loads(pickle.dumps(view))
        assert again.fingerprint == view.fingerprint
        assert np.array_equal(again.splits, view.splits)
    assert Population.open(folded.path, fold=1, validation=3).fingerprint == views[2].fingerprint


@pytest.mark.parametrize(
    ("number", "validation", "message"),
    [
        (4, None, "fold is 4 and validation is 1"),
        (-1, None, "fold is -1"),
        (1, 1, "two different folds from 0 to 3"),
        (1.0, None, "fold is 1.0"),
    ],
)
def test_wrong_folds_are_refused(folded, number, validation, message):
    with pytest.raises(InputError, match=message):
        folded.fold(number, validation)


def test_a_population_without_folds_says_how_to_get_them(tmp_path, table):
    population = partitioning.make(table, tmp_path / "p", scheme="iid", clients=3)
    assert population.folds.tolist() == [-1] * 3
    with pytest.raises(InputError, match="has no folds: make it again with folds of 3 or more"):
        population.fold(0)


def test_every_sample_is_traced_to_its_source(folded):
    for client in range(11):
        assert folded.rows(client).tolist() == folded.batch(client).column("row").to_pylist()
    assert sorted(folded.row_numbers.tolist()) == list(range(200))
    assert pq.read_table(folded.path / "rows.parquet")["row"].to_pylist() == folded.row_numbers.tolist()
    with pytest.raises(IndexError, match="its clients are 0 to 10"):
        folded.rows(11)


def test_features_are_counted_on_every_client(folded, table):
    kind, row = folded.manifest.features
    assert (kind.categories, kind.edges, row.categories) == (["ant", "bee", "cat"], None, None)
    assert np.array_equal(folded.feature_counts["kind"], folded.class_counts)
    for client, counts in enumerate(folded.feature_counts["row"].tolist()):
        places = np.searchsorted(row.edges, folded.rows(client), side="right")
        assert counts == np.bincount(places, minlength=4).tolist()
    stored = pq.read_table(folded.path / "clients.parquet")["feature_counts"].to_pylist()
    assert [len(counts) for counts in stored] == [7] * 11


def test_test_sets_are_kept_by_domain(folded, table):
    assert folded.tests == ("photo", "clip art", None)
    assert (folded.test_slices, folded.slices_of("photo"), folded.slices_of("none")) == ((4,), (30,), ())
    assert pa.Table.from_batches([folded.test_batch(0)]).equals(table.slice(9, 4))
    assert folded.slices_of("clip art") == (170,)
    assert pa.Table.from_batches([folded.test_batch(0, domain="clip art")]).equals(table.slice(30))
    assert {path.name for path in folded.path.glob("test*")} == {
        "test.arrow",
        "test-photo.arrow",
        "test-clip-art.arrow",
    }
    assert folded.manifest.counts.test_rows == 4
    for number, domain in ((1, "photo"), (0, "sketch")):
        with pytest.raises(IndexError, match=f"test slice {number} of '{domain}' is not"):
            folded.test_batch(number, domain)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a b", "a-b"], "'a b' and 'a-b', whose files are both test-a-b.arrow"),
        (["A", "a"], "'A' and 'a', whose files"),
        ([""], "names the test set ''"),
        (["x" * 101], "1 to 100 characters"),
        ([3], "names the test set 3"),
        (["\udcff"], "is not UTF-8"),
    ],
)
def test_names_of_test_sets_that_are_no_files_are_refused(tmp_path, table, names, message):
    with pytest.raises(InputError, match=message):
        partitioning.make(table, tmp_path / "p", test=dict.fromkeys(names, table), **OPTIONS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../out", "/etc/passwd", "..", "é/\\:*"])
def test_names_of_test_sets_never_leave_the_folder(tmp_path, table, name):
    population = partitioning.make(table, tmp_path / "p", test={name: table.slice(0, 5)}, **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    assert population.tests == (name,)
    assert population.test_batch(0, name).num_rows == 5
    assert partitioning.verify(tmp_path / "p") == []


def test_an_index_has_rows_and_no_samples(tmp_path, table):
    whole = partitioning.make(table, tmp_path / "whole", features=("row",), test_clients=3, **OPTIONS)
    index = partitioning.make(
        table, tmp_path / "index", features=("row",), test_clients=3, index_only=True, test=table.slice(0, 7), **OPTIONS
    )
    assert index.manifest.shards == ()
    assert not list(index.path.glob("shard*"))
    assert np.array_equal(index.row_numbers, whole.row_numbers)
    for name in ("sizes", "class_counts", "splits"):
        assert np.array_equal(getattr(index, name), getattr(whole, name))
    for ask in (lambda: index.batch(0), lambda: index.schema, lambda: index.shard(0)):
        with pytest.raises(InputError, match=r"index-only and holds no samples: take `rows\(client\)`"):
            ask()
    stored = pq.read_table(index.path / "clients.parquet")
    assert stored["file"].null_count == 11
    assert not any(stored[name].to_numpy().any() for name in ("batch", "offset", "length", "checksum"))
    assert index.test_batch(0).num_rows == 7
    assert partitioning.verify(index.path) == []


def test_rows_that_a_scheme_leaves_out_are_counted(tmp_path, table):
    made = partitioning.make(table, tmp_path / "p", scheme="counts", table=[[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert (made.manifest.counts.samples, made.manifest.counts.source_rows) == (3, 200)
    assert made.sizes.tolist() == [2, 0, 1]
    assert made.class_counts.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert partitioning.verify(tmp_path / "p") == []


def test_clients_may_have_names_and_domains(folded, tmp_path):
    assert folded.names is None and folded.domains is None
    names = ["ann", None, *"cdefghijk"]
    domains = ["photo"] * 6 + ["clip art"] * 5
    edit_table(folded.path, "clients.parquet", with_column("name", names))
    edit_table(folded.path, "clients.parquet", with_column("domain", domains))
    named = Population.open(folded.path)
    for population in (named, named.fold(1), rewrite(named, tmp_path / "q", lambda batch, _: batch)):
        assert population.names.to_pylist() == names
        assert population.domains.to_pylist() == domains
    assert partitioning.verify(tmp_path / "q") == []


def test_what_a_scheme_knows_of_its_clients_is_theirs(table, tmp_path):
    made = partitioning.make(table, tmp_path / "p", scheme="natural", column="kind")
    assert made.names.to_pylist() == ["ant", "bee", "cat"]
    sources = [TableSource(table.slice(0, 120), "photo.arrow"), TableSource(table.slice(120), "clip art")]
    made = partitioning.make(sources, tmp_path / "q", scheme="domains", clients_per_domain=2)
    assert made.domains.to_pylist() == ["clip art"] * 2 + ["photo"] * 2
    assert [set(made.rows(client) >= 120) for client in range(4)] == [{True}, {True}, {False}, {False}]


def test_a_rewritten_population_has_all_that_the_first_had(folded, tmp_path):
    def keep(batch, owner):
        return batch.drop_columns(["image", "row"])

    for source in (folded, folded.fold(2)):
        again = rewrite(source, tmp_path / f"q-{source.fingerprint[:8]}", keep)
        assert np.array_equal(again.splits, folded.splits)
        assert np.array_equal(again.fold(2).splits, folded.fold(2).splits)
        assert np.array_equal(again.row_numbers, folded.row_numbers)
        assert np.array_equal(again.feature_counts["row"], folded.feature_counts["row"])
        assert again.tests == folded.tests
        assert again.test_batch(0, "photo").equals(keep(folded.test_batch(0, "photo"), ""))
        assert np.array_equal(again.moments.client(3).mean, folded.moments.client(3).mean)
        assert partitioning.verify(again.path) == []


@pytest.mark.parametrize(("rows", "calls"), [(1, 9), (70, 3), (1000, 1)])
def test_clients_are_converted_together_up_to_a_number_of_rows(rows, calls, tmp_path):
    table = pa.table({"x": np.arange(200.0), "odd": [None, True, False, True] * 50, "label": [0, 1] * 100})
    made = partitioning.make(table, tmp_path / "p", scheme="iid", clients=9, missing=["odd"], test=table.slice(0, 5))
    owners = []

    def double(batch, owner):
        owners.append(owner)
        return batch.set_column(0, "x", pa.array(batch["x"].to_numpy() * 2))

    alone = rewrite(made, tmp_path / "alone", double)
    owners.clear()
    again = rewrite(made, tmp_path / "q", double, rows_at_once=rows)
    assert len(owners) == 1 + calls + 1 and partitioning.verify(again.path) == []
    assert again.digest == alone.digest  # also the bits behind a client's last row
    assert owners[1] == ("client 0" if rows == 1 else f"clients 0 to {2 if rows == 70 else 8}")
    with pytest.raises(ValueError, match="convert returns"):
        rewrite(made, tmp_path / "r", lambda batch, owner: batch.slice(0, 1), rows_at_once=rows)


def test_only_labels_and_classes_must_stay_in_a_rewritten_population(tmp_path):
    rows = pa.table({"label": np.arange(40) / 3, "kind": [0, 1] * 20, "test": [True, False, False, False] * 10})
    made = partitioning.make(rows, tmp_path / "p", scheme="iid", clients=3, by="kind", local_test="test")
    again = rewrite(made, tmp_path / "q", lambda batch, owner: batch.drop_columns(["test"]))
    assert (made.manifest.dividing, again.manifest.dividing) == (["kind", "test"], ["kind"])
    assert partitioning.verify(again.path) == []
    for name in ("kind", "label"):
        with pytest.raises(InputError, match=f"convert drops '{name}': must keep the columns of labels and classes"):
            rewrite(made, tmp_path / "r", lambda batch, owner, name=name: batch.drop_columns([name]))
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("name", "change", "finding"),
    [
        ("rows.parquet", lambda t: t.take([1, *range(1, 200)]), "stands 2 times"),
        ("rows.parquet", with_column("row", [*range(199), 200]), "row 200 is not of the source, which has 200"),
        ("rows.parquet", with_column("row", [*range(199), -1]), "row -1 is not of the source"),
        ("rows.parquet", lambda t: t.slice(1), "does not have a row number for every sample"),
        ("moments.parquet", with_column("n", [3] * 11), "its moments are not of the clients' training rows"),
        ("clients.parquet", with_column("fold", [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 4]), "in none of the folds 0 to 3"),
        ("clients.parquet", with_column("fold", [0] * 11), "nearly equal numbers of clients"),
        ("clients.parquet", with_column("split", ["train"] * 11), "its splits are not those of fold 0"),
    ],
)
def test_verify_finds_what_no_longer_belongs_together(folded, name, change, finding):
    edit_table(folded.path, name, change)
    assert any(finding in line for line in partitioning.verify(folded.path))


def test_verify_counts_features_again(folded):
    def swap(table):
        counts = [[b, a, *rest] for a, b, *rest in table["feature_counts"].to_pylist()]
        return with_column("feature_counts", counts)(table)

    uneven = np.flatnonzero(np.diff(folded.feature_counts["kind"][:, :2], axis=1)[:, 0])
    edit_table(folded.path, "clients.parquet", swap)
    assert partitioning.verify(folded.path) == [
        f"{folded.path}: client {client} does not have the counts of 'kind' that clients.parquet says"
        for client in uneven
    ]


def test_wrong_feature_counts_are_found_on_opening(folded):
    rows = pq.read_table(folded.path / "clients.parquet")["feature_counts"].to_pylist()
    rows[5][0] += 1
    edit_table(folded.path, "clients.parquet", with_column("feature_counts", rows))
    with pytest.raises(InputError, match="wrong 'feature_counts' for client 5"):
        Population.open(folded.path)


@pytest.mark.parametrize("name", ["rows.parquet", "moments.parquet"])
def test_a_flipped_bit_of_a_table_is_found_when_it_is_read(folded, name):
    path = folded.path / name
    for position in np.linspace(0, path.stat().st_size - 1, 20).astype(int):
        content = bytearray(path.read_bytes())
        content[position] ^= 4
        path.write_bytes(content)
        population = Population.open(folded.path)
        with pytest.raises(InputError, match=f"{name}: its sha256"):
            population.rows(0) if name == "rows.parquet" else population.moments
        content[position] ^= 4
        path.write_bytes(content)
    assert partitioning.verify(folded.path) == []


def test_verify_counts_the_held_out_clients(tmp_path, table):
    made = partitioning.make(table, tmp_path / "p", test_clients=2, validation_clients=3, **OPTIONS)
    assert [len(getattr(made, f"{split}_clients")) for split in SPLITS] == [6, 3, 2]
    assert partitioning.verify(made.path) == []
    path = made.path / "manifest.json"
    path.write_bytes(sealed(json.loads(path.read_text().replace('"validation_clients": 3', '"validation_clients": 2'))))
    assert partitioning.verify(made.path) == [
        f"{made.path}: 3 clients are held out for validation but manifest.json has 2"
    ]
