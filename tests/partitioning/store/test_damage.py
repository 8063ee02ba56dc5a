"""Damage of every kind to a population, and who notices it."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest

import partitioning
from partitioning import InputError, Population
from partitioning.common.sealing import sealed
from tests.kit.tables import rich_table

SHARD, TEST = "shard-00000.arrow", "test.arrow"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound") / "p"
    partitioning.make(rich_table(), folder, scheme="iid", clients=5, test=rich_table().slice(0, 30))
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "p")


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0b100
    path.write_bytes(content)


def edit(folder, change):
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_bytes(sealed(record))


def read_everything(folder):
    population = Population.open(folder)
    for client in range(len(population)):
        population.batch(client)
    for number in range(len(population.test_slices)):
        population.test_batch(number)


def test_a_sound_population_has_no_findings(folder):
    read_everything(folder)
    assert partitioning.verify(folder) == []


def test_a_flipped_bit_in_a_body_names_client_and_file(folder):
    section = Population.open(folder).table.section(2)
    flip(folder / SHARD, section.offset + section.length - 20)
    population = Population.open(folder)
    population.batch(1)
    with pytest.raises(InputError, match=f"{SHARD}: the checksum of client 2"):
        population.batch(2)
    findings = partitioning.verify(folder)
    assert len(findings) == 2
    assert "sha256" in findings[0]
    assert "client 2" in findings[1]


@pytest.mark.parametrize("name", [SHARD, TEST, "clients.parquet"])
def test_a_flipped_bit_anywhere_is_found(folder, name):
    for position in np.linspace(0, (folder / name).stat().st_size - 1, 60).astype(int):
        flip(folder / name, position)
        with pytest.raises(InputError, match=name):
            read_everything(folder)
        flip(folder / name, position)


@pytest.mark.parametrize("name", [SHARD, TEST, "clients.parquet"])
def test_a_short_or_missing_file_is_found_on_opening(folder, name):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-10])
    with pytest.raises(InputError, match=f"{name} has .* bytes but"):
        Population.open(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        Population.open(folder)


def test_another_file_of_the_same_size_is_found(folder):
    size = (folder / SHARD).stat().st_size
    (folder / SHARD).write_bytes(np.random.default_rng(0).bytes(size))
    with pytest.raises(InputError, match="schema or footer"):
        Population.open(folder).batch(0)
    with pytest.raises(InputError, match="schema or footer"):
        Population.open(folder).schema  # noqa: B018
    assert len(partitioning.verify(folder)) == 2  # two of the file, none for each client


def test_a_file_that_does_not_belong_is_found_by_verify(folder):
    (folder / "notes.txt").write_text("mine")
    assert "not part of the population" in partitioning.verify(folder)[0]


def test_wrong_class_counts_are_found_by_verify(folder):
    def swap(record):
        record["classes"][:2] = record["classes"][1::-1]

    edit(folder, swap)
    assert all("classes" in finding for finding in partitioning.verify(folder))
    assert len(partitioning.verify(folder)) >= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=4), "version 4 .* reads version 3: update"),
        (lambda m: m.update(version=2), "version 2 .* reads version 3: make the population again"),
        (lambda m: m.update(format="other"), "not of the format"),
        (lambda m: m.pop("seed"), "lacks 'seed'"),
        (lambda m: m.update(seed="x"), "seed = 'x'"),
        (lambda m: m["shards"][0].update(name="../shard.arrow"), "leaves the folder"),
        (lambda m: m["shards"][0].update(name="/etc/passwd"), "leaves the folder"),
        (lambda m: m["clients"].update(name="a/b.parquet"), "leaves the folder"),
        (lambda m: m["tests"][0]["file"].update(name=".."), "leaves the folder"),
        (lambda m: m["shards"][0].update(end=10**9), "byte range"),
        (lambda m: m["tests"][0]["slices"][0].update(offset=10**9), "outside its file"),
        (lambda m: m["tests"][0]["slices"][0].update(length=10**9), "outside its file"),
        (lambda m: m["tests"][0].update(slices=[]), "1 record batches and 0 slices"),
        (lambda m: m.update(tests=2 * m["tests"][:1]), "two test sets have one name"),
        (lambda m: m["rows"].update(name="../rows.parquet"), "leaves the folder"),
        (lambda m: m.update(features=[{"name": "x", "categories": None, "edges": None}]), "either categories or edges"),
        (lambda m: m.update(features=[{"name": "x", "categories": None, "edges": ["a"]}]), "features.0.edges.0 = 'a'"),
        (lambda m: m.update(features=[{"name": "x", "categories": ["a"], "edges": None}]), "count 1 categories"),
        (lambda m: m["splits"].pop("folds"), "lacks 'splits.folds'"),
        (lambda m: m.update(shards=[]), "not in the manifest"),
        (lambda m: m["counts"].update(samples=7), "unlike manifest.json"),
        (lambda m: m["counts"].update(clients=2**63), r"manifest\.json: the population has .* rows: at most MAX_ROWS"),
        (lambda m: m["columns"][0].update(type="int8"), "columns are not those"),
        (lambda m: m.update(classes=["ant"]), "does not count 1 classes"),
        (lambda m: m.update(counts=[]), "no population manifest"),
        (lambda m: m.update(dividing=["owner"]), "'owner', which divides the rows, is no column"),
    ],
)
def test_a_wrong_manifest_is_refused(folder, change, message):
    edit(folder, change)
    with pytest.raises(InputError, match=message) as caught:
        read_everything(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(dividing=["kind"]),
        lambda m: m.update(label="row"),
        lambda m: m["tests"][0].update(name="photo"),
        lambda m: m.update(tests=[]),
        lambda m: m.update(classes=m["classes"][::-1]),
    ],
)
def test_a_change_that_makes_another_population_is_refused(folder, change):
    path = folder / "manifest.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record))
    Population.open(folder)  # its layout is of no importance
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"manifest\.json: its content was changed"):
        Population.open(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null"])
def test_a_manifest_that_is_no_json_is_refused(folder, content):
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(InputError, match=r"manifest\.json is no"):
        Population.open(folder)


def test_a_folder_without_a_manifest_is_no_population(tmp_path):
    with pytest.raises(InputError, match="is no population"):
        Population.open(tmp_path)
    with pytest.raises(InputError, match="is no population"):
        Population.open(tmp_path / "missing")


def test_a_client_table_in_another_form_is_refused(folder):
    import hashlib

    import pyarrow.parquet as pq

    path = folder / "clients.parquet"
    table = pq.read_table(path)

    def store(changed, message):
        pq.write_table(changed, path)
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        edit(folder, lambda m: m["clients"].update(bytes=len(content), sha256=digest))
        with pytest.raises(InputError, match=message):
            Population.open(folder)

    def replaced(name, values):
        place = table.column_names.index(name)
        return table.set_column(place, name, pa.array(values, table.schema.field(name).type))

    store(table.drop_columns(["offset"]), "no column 'offset'")
    store(table.slice(0, 0), "has 0 clients, unlike")
    store(replaced("client", [0, 1, 2, 4, 3]), "number its clients")
    store(replaced("file", ["../x"] * 5), "not in the manifest")
    store(replaced("offset", [10**12] * 5), "wrong 'offset' for client 0")
    store(replaced("split", ["train", "dev", "train", "train", "train"]), "wrong 'split' for client 1")
    store(replaced("n", [None] * 5), "missing values in column 'n'")


@pytest.mark.parametrize("column", ["word", "label"])
def test_texts_beyond_the_file_are_refused_though_the_checksums_are_right(tmp_path, column):
    made = partitioning.make(
        pa.table({"word": ["a"] * 20, "label": ["a", "b"] * 10}), tmp_path / "p", scheme="iid", clients=2
    )

    def harm(batch, owner):
        if not batch.num_rows:
            return batch
        ends = pa.array([0, *[2**30] * (batch.num_rows - 1), 1], pa.int32()).buffers()[1]
        texts = pa.Array.from_buffers(pa.string(), batch.num_rows, [None, ends, pa.py_buffer(b"a")])
        return batch.set_column(batch.schema.get_field_index(column), column, texts)

    with pytest.raises(InputError, match=r"shard-00000\.arrow cannot be read .*: make the population again"):
        partitioning.rewrite(made, tmp_path / "q", harm).batch(0)
    assert all("cannot be read" in line for line in partitioning.verify(tmp_path / "q"))


def test_ids_outside_the_population_are_index_errors(folder):
    population = Population.open(folder)
    for client in (-1, 5):
        with pytest.raises(IndexError, match="its clients are 0 to 4"):
            population.batch(client)
    with pytest.raises(IndexError, match="it has 1 test slices"):
        population.test_batch(1)
