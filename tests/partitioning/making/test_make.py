import hashlib
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partitioning
from partitioning import InputError, Population
from partitioning.making import arranging
from partitioning.schemes.registry import parameters
from partitioning.store import writing
from partitioning.store.splits import Splits
from tests.kit.tables import LABELS

OPTIONS = {"scheme": "dirichlet-qp", "clients": 8, "label_alpha": 0.3, "seed": 4}


@pytest.fixture
def split_shards(monkeypatch):
    monkeypatch.setattr(writing, "SHARD_BYTES", 4000)  # so that a small table fills several files


def read_all(population):
    return pa.Table.from_batches([population.batch(client) for client in range(len(population))])


def test_a_population_holds_every_row_once_and_unchanged(tmp_path, table, split_shards):
    made = partitioning.make(table, tmp_path / "p", test=table.slice(5, 50), local_test=0.2, **OPTIONS)
    population = Population.open(str(tmp_path / "p"))
    assert len(population) == len(made) == 8
    assert len(population.manifest.shards) > 1
    assert population.schema.equals(table.schema, check_metadata=True)
    rows = read_all(population)
    order = rows.column("row").to_numpy()
    assert np.array_equal(np.sort(order), np.arange(200))
    assert rows.equals(table.take(pa.array(order)).unify_dictionaries())
    assert [population.batch(client).num_rows for client in range(8)] == population.sizes.tolist()
    assert population.test_slices == (50,)
    assert pa.Table.from_batches([population.test_batch(0)]).equals(table.slice(5, 50))


def test_clients_are_those_of_the_scheme_and_rows_are_shuffled(tmp_path, table):
    population = partitioning.make(table, tmp_path / "p", **OPTIONS)
    parts = partitioning.dirichlet_qp(LABELS, clients=8, label_alpha=0.3, seed=4)
    for client, part in enumerate(parts):
        rows = population.batch(client).column("row").to_numpy()
        assert np.array_equal(np.sort(rows), part)
        counts = [np.count_nonzero(LABELS[part] == name) for name in population.manifest.classes]
        assert population.class_counts[client].tolist() == counts
    assert any(not np.array_equal(np.sort(rows), rows) for rows in [read_all(population)["row"].to_numpy()[:50]])


def test_the_manifest_says_where_it_came_from(tmp_path, table):
    population = partitioning.make(table, tmp_path / "p", dataset="zoo", test_clients=0.3, **OPTIONS)
    manifest = population.manifest
    assert (manifest.dataset, manifest.label, manifest.classes) == ("zoo", "label", ["ant", "bee", "cat"])
    assert manifest.parameters.keys() == parameters("dirichlet-qp").keys()
    assert [manifest.parameters[name] for name in ("size_alpha", "label_alpha", "solver")] == [1.0, 0.3, "auto"]
    assert manifest.report["solver"] == "clarabel"
    assert (manifest.scheme, manifest.seed, manifest.splits) == ("dirichlet-qp", 4, Splits(2, 0, 0, False))
    shapes = {column.name: column.shape for column in manifest.columns}
    assert shapes == {"image": (3, 4), "tensor": (2, 3), "encoded": (), "kind": (), "label": (), "row": ()}
    content = (tmp_path / "p" / "manifest.json").read_bytes()
    assert population.fingerprint == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(("asked", "held_out"), [(0, 0), (0.01, 1), (0.25, 2), (3, 3), (7.0, 7)])
def test_test_clients_are_a_share_or_a_number(tmp_path, table, asked, held_out):
    population = partitioning.make(table, tmp_path / "p", test_clients=asked, **OPTIONS)
    assert len(population.test_clients) == held_out
    assert sorted([*population.train_clients, *population.test_clients]) == list(range(8))


def test_a_clients_own_test_part_is_the_floor_of_its_share(tmp_path, table):
    population = partitioning.make(table, tmp_path / "p", local_test=0.29, scheme="iid", clients=2)
    assert population.sizes.tolist() == [100, 100]
    assert population.test_sizes.tolist() == [29, 29]


@pytest.mark.parametrize("as_flags", [False, True])
def test_a_column_names_the_rows_of_the_own_test_parts(tmp_path, table, as_flags):
    is_test = np.random.default_rng(7).random(200) < 0.3
    split = pa.array(is_test) if as_flags else pa.array(np.where(is_test, "test", "train"))
    given = table.append_column("split", split)
    made = partitioning.make(given, tmp_path / "p", local_test="split", **OPTIONS)
    plain = partitioning.make(given, tmp_path / "q", **OPTIONS)
    assert (made.manifest.local_test, made.manifest.dividing) == ("split", ["split"])
    assert partitioning.verify(made.path) == []
    for client in range(8):
        batch, cut = made.batch(client), int(made.sizes[client] - made.test_sizes[client])
        rows = made.rows(client)
        assert is_test[rows].tolist() == [False] * cut + [True] * int(made.test_sizes[client])
        # Both parts keep the random order that they have without the column.
        assert sorted(rows, key=lambda row: is_test[row]) == sorted(plain.rows(client), key=lambda row: is_test[row])
        assert batch.column("row").to_pylist() == rows.tolist()
        labels = batch["label"].to_pylist()
        assert [labels.count(label) for label in made.manifest.classes] == made.class_counts[client].tolist()


def test_verify_finds_a_test_part_with_other_rows(tmp_path, table):
    split = pa.array(["train", "test"] * 100)
    made = partitioning.make(table.append_column("split", split), tmp_path / "p", local_test="split", **OPTIONS)

    def swap(batch, owner):
        place = batch.schema.get_field_index("split")
        other = ["train" if value == "test" else "test" for value in batch["split"].to_pylist()]
        return batch.set_column(place, "split", pa.array(other, pa.string())) if owner == "client 3" else batch

    changed = partitioning.rewrite(made, tmp_path / "q", swap)
    assert partitioning.verify(changed.path) == [
        f"{changed.path}: client 3 does not have the test rows that column 'split' names"
    ]


def test_the_same_call_writes_the_same_bytes(tmp_path, table, split_shards):
    chunked = pa.concat_tables([table.slice(0, 70), table.slice(70)])
    for name, source in (("a", table), ("b", table), ("c", chunked)):
        partitioning.make(source, tmp_path / name, test=table.slice(0, 20), test_clients=2, **OPTIONS)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files[-1] == "test.arrow"
    for name in files:
        content = (tmp_path / "a" / name).read_bytes()
        assert content == (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


def test_a_slice_of_a_table_is_partitioned_as_its_copy(tmp_path, table):
    # Arrow's take returns wrong rows of nested fixed-size lists in a slice
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(range(200 * 4)), 2)
    wrapped = pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(pixels, 2)], ["pixels"])
    inner = pa.FixedSizeListArray.from_arrays(pixels.slice(100, 300), 3)
    for name, part in {
        "a": table.append_column("wrapped", wrapped).slice(7, 90),
        "b": table.slice(7, 90).append_column("inner", inner.slice(5, 90)),
    }.items():
        population = partitioning.make(part, tmp_path / name, test=part, **OPTIONS)
        assert pa.Table.from_batches([population.test_batch(0)]).equals(part)
        rows = read_all(population)
        by_row = {row["row"]: row for row in part.to_pylist()}
        assert all(row == by_row[row["row"]] for row in rows.to_pylist())


def test_rows_may_come_from_several_batches():
    table = pa.table({"row": np.arange(30)})
    source = [batch for start in (0, 10, 20) for batch in table.slice(start, 10).to_batches()]
    for rows in ([], [25, 3, 3, 14], list(range(29, -1, -1))):
        taken = arranging._take(source, np.array([0, 10, 20, 30]), np.array(rows, dtype=np.int64))
        assert taken.column("row").to_pylist() == rows


def test_plain_pyarrow_reads_the_shards(tmp_path, table, split_shards):
    import pyarrow.parquet as pq

    population = partitioning.make(table, tmp_path / "p", **OPTIONS)
    clients = pq.read_table(tmp_path / "p" / "clients.parquet").to_pylist()
    for row in clients:
        with pa.memory_map(str(tmp_path / "p" / row["file"])) as source:
            batch = pa.ipc.open_file(source).get_batch(row["batch"])
            assert batch.equals(population.batch(row["client"]))
            assert batch.num_rows == row["n"] == sum(row["class_counts"])
    assert clients[0]["site"] is None


def test_batches_are_views_and_empty_clients_are_allowed(tmp_path, table):
    options = OPTIONS | {"size_alpha": 1e-3, "min_size": 0}
    population = partitioning.make(table, tmp_path / "p", **options)
    assert population.sizes.min() == 0
    empty = int(np.argmin(population.sizes))
    assert population.batch(empty).num_rows == 0
    before = pa.total_allocated_bytes()
    values = population.batch(int(np.argmax(population.sizes))).column("image").flatten().flatten()
    values.to_numpy(zero_copy_only=True)
    assert pa.total_allocated_bytes() == before


def test_pickling_sends_the_path(tmp_path, table):
    population = partitioning.make(table, tmp_path / "p", **OPTIONS)
    population.batch(0)
    content = pickle.dumps(population)
    assert len(content) < 500
    assert pickle.loads(content).batch(3).equals(population.batch(3))


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tmp_path, table):
    (tmp_path / "p").mkdir()
    partitioning.make(table, tmp_path / "p", **OPTIONS)
    with pytest.raises(InputError, match="exists already"):
        partitioning.make(table, tmp_path / "p", **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_nothing_is_left_behind_when_writing_fails(tmp_path, table):
    def fail(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        partitioning.make(table, tmp_path / "new" / "p", progress=fail, **OPTIONS)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        partitioning.make(table, tmp_path / "file" / "p", **OPTIONS)


def test_folders_of_another_process_stay_and_hide_no_error(tmp_path, table):
    def stop(done: int, total: int) -> None:
        (tmp_path / "new" / "other").mkdir(exist_ok=True)
        raise InputError("stopped")

    def finish(done: int, total: int) -> None:
        (tmp_path / "new" / "p" / "x").mkdir(parents=True, exist_ok=True)

    for progress, message in ((stop, "^stopped$"), (finish, "new/p cannot be made .*not empty.: give another folder")):
        with pytest.raises(InputError, match=message):
            partitioning.make(table, tmp_path / "new" / "p", progress=progress, **OPTIONS)
    assert sorted(path.name for path in (tmp_path / "new").rglob("*")) == ["other", "p", "x"]


def nulls_inside():
    numbers = pa.FixedSizeListArray.from_arrays(pa.array([1.0, None, 3.0, 4.0]), 2)
    return pa.table({"x": numbers, "label": [0, 1]})


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (pa.table({"label": pa.array([], pa.int64())}), {}, "table has no rows"),
        (pa.table({"labels": [1, 2]}), {}, "no column 'label'.*did you mean 'labels'"),
        (pa.table({"label": [1, None]}), {}, "missing values in column 'label'"),
        (nulls_inside(), {}, "missing values in column 'x'"),
        (pa.table({"label": [[0.5], [1.5]]}), {}, "'label' of table is of type list<"),
        (pa.table([[1], [2]], names=["label", "label"]), {}, "several columns named 'label'"),
        (pa.table({"label": [1, 2]}), {"clients": 3}, "3 clients of at least 1 need 3 samples"),
        (pa.table({"label": [1, 2]}), {"test_clients": 1.5}, "test_clients is 1.5"),
        (pa.table({"label": [1, 2]}), {"local_test": 1}, "local_test is 1"),
        (pa.table({"label": [1, 2]}), {"local_test": "split"}, "has no column 'split'"),
        (pa.table({"label": [1, 2], "s": ["train", "val"]}), {"local_test": "s"}, "'s', which has 'val': must hold"),
        (pa.table({"label": [1, 2], "s": [0.5, 1.0]}), {"local_test": "s"}, "'s', which is of type double"),
        (pa.table({"label": [1, 2], "s": ["test"] * 2}), {"local_test": "s"}, "'s', which makes all 2 rows test rows"),
        (pa.table({"label": [1, 2]}), {"memory": 0}, "memory is 0: give a whole number from 1 to"),
        (pa.table({"label": [1, 2]}), {"test": pa.table({"label": ["a"]})}, "'label' of the test set of table is str"),
        (pa.table({"label": [1, 2]}), {"label_alpha": 1.0}, "does not take 'label_alpha'"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(tmp_path, source, options, message):
    with pytest.raises(InputError, match=message):
        partitioning.make(source, tmp_path / "p", **({"scheme": "iid", "clients": 2} | options))
    assert list(tmp_path.iterdir()) == []


def test_a_scheme_must_be_named(tmp_path, table):
    with pytest.raises(InputError, match="scheme is missing: choose 'iid', "):
        partitioning.make(table, tmp_path / "p", clients=2)


def test_a_class_that_only_the_test_set_has_is_a_class(tmp_path):
    population = partitioning.make(
        pa.table({"label": [1, 2, 1]}), tmp_path / "p", scheme="iid", clients=1, test=pa.table({"label": [0]})
    )
    assert population.manifest.classes == [0, 1, 2]
    assert population.class_counts.tolist() == [[0, 2, 1]]
    assert partitioning.verify(tmp_path / "p") == []


def labelled_by_images(kind):
    """Seven rows in three cities, whose labels are encoded images, or arrays."""
    encoded = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    files = pa.array([{"bytes": bytes([row]), "path": None} for row in range(7)], encoded)
    arrays = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(np.arange(42, dtype=np.uint8), 3), 2)
    labels = files if kind == "encoded" else arrays
    field = pa.field("mask", labels.type, metadata={"classes": "42"})
    schema = pa.schema([("image", encoded), field, ("city", pa.string())])
    return pa.table([files, labels, pa.array(list("aabbbcc"))], schema=schema)


@pytest.mark.parametrize("kind", ["encoded", "arrays"])
def test_labels_that_are_images_are_of_one_class(kind, tmp_path):
    table = labelled_by_images(kind)
    made = partitioning.make(
        table,
        tmp_path / "p",
        scheme="natural",
        column="city",
        label="mask",
        test=pa.concat_tables([table] * 3),
        local_test=0.5,
    )
    assert made.test_slices == (16, 5)
    assert made.class_counts.tolist() == [[2], [3], [2]] and made.manifest.classes == ["mask"]
    assert made.schema.equals(table.schema, check_metadata=True) and partitioning.verify(made.path) == []
    assert read_all(made)["mask"].to_pylist() == table.take(pa.array(made.row_numbers))["mask"].to_pylist()
    pq.write_table(table, tmp_path / "streamed.parquet")
    streamed = partitioning.make(tmp_path / "streamed.parquet", tmp_path / "q", scheme="iid", clients=2, label="mask")
    assert streamed.sizes.tolist() == [4, 3] and partitioning.verify(streamed.path) == []


def test_labels_that_are_images_have_no_classes_to_divide_by(tmp_path):
    for scheme in set(partitioning.SCHEMES) - {"iid", "quantity", "natural", "domains"}:
        given = {"table": [[7]]} if scheme == "counts" else {"clients": 2}
        with pytest.raises(InputError) as error:
            partitioning.make(labelled_by_images("encoded"), tmp_path / "p", scheme=scheme, label="mask", **given)
        assert f"scheme {scheme!r} divides by classes, and the label 'mask' of table holds images" in str(error.value)
        assert "\n" not in str(error.value) and not list(tmp_path.iterdir())
