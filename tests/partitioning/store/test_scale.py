"""What a large population rests on: compact columns, read in parts, and one call for many clients."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partitioning
from partitioning import InputError, Parts, Population
from partitioning.common.sealing import sealed
from partitioning.making import dealing
from partitioning.store import reading, verification, writing
from partitioning.store.clients import LOCATIONS, ClientTable
from partitioning.store.files import StoredFile
from partitioning.store.reading import parse_clients
from tests.kit.tables import rich_table

SHARDS = tuple(StoredFile(f"shard-{number:05d}.arrow", 900, "", 50, 100, 800, 0) for number in range(2))


@st.composite
def tables(draw):
    clients, classes = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    counts = random.integers(0, draw(st.sampled_from([2, 128, 129, 2**15, 2**31 + 1, 2**40])), (clients, classes))
    n = counts.sum(axis=1)
    words = pa.array(random.choice(["ant", "bee", None], clients), pa.string())
    locations = np.empty(clients, LOCATIONS)
    bounds = {"shard": (0, 2), "batch": (0, 50), "checksum": (0, 2**32), "offset": (100, 400), "length": (0, 400)}
    for name, (low, high) in bounds.items():
        locations[name] = random.integers(low, high, clients)
    return ClientTable(
        split=random.integers(0, 3, clients),
        fold=random.integers(-1, 5, clients),
        names=words if words.null_count < clients else None,
        domains=draw(st.sampled_from([None, pa.array(["zoo"] * clients)])),
        n=n,
        n_test=n // 3,
        class_counts=counts,
        feature_counts=np.stack([n // 2, n - n // 2], axis=1)[:, : draw(st.sampled_from([0, 2]))],
        locations=draw(st.sampled_from([locations, None])),
    )


@settings(max_examples=50)
@given(table=tables(), rows=st.integers(1, 31))
def test_a_table_read_in_parts_is_the_one_that_was_written(table, rows):
    shards = () if table.locations is None else SHARDS
    written = table.to_arrow(shards)
    features = [2] if table.feature_counts.size else []
    read = parse_clients(written.to_batches(max_chunksize=rows), shards, table.class_counts.shape[1], features)
    assert read.to_arrow(shards).equals(written)
    assert [read.names is None, read.domains is None] == [table.names is None, table.domains is None]
    for name in ("split", "fold", "n", "n_test", "class_counts", "feature_counts"):
        assert np.array_equal(getattr(read, name), getattr(table, name)), name
    for counts in (read.class_counts, read.feature_counts):
        assert counts.dtype.kind == "i"
        assert counts.itemsize <= max(1, *(np.min_scalar_type(-1 - n).itemsize for n in table.n))


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    options = {"scheme": "dirichlet", "clients": 8, "label_alpha": 0.3, "seed": 4, "test_clients": 3}
    folder = tmp_path_factory.mktemp("sound") / "p"
    test = rich_table().slice(0, 40)
    partitioning.make(rich_table(), folder, test=test, local_test=0.2, validation_clients=1, **options)
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "p")


def test_wrong_values_are_found_in_any_part_and_named_by_client(folder):
    opened = Population.open(folder)
    table = opened.table.to_arrow(opened.manifest.shards)
    place, shards = table.column_names.index("n_test"), opened.manifest.shards
    for wrong in range(8):
        n_test = np.where(np.arange(8) == wrong, -1, opened.test_sizes)
        changed = table.set_column(place, "n_test", pa.array(n_test))
        with pytest.raises(InputError, match=f"wrong 'n_test' for client {wrong}$"):
            parse_clients(changed.to_batches(max_chunksize=3), shards, 3)
    swapped = table.take([0, 1, 2, 3, 4, 6, 5, 7])
    with pytest.raises(InputError, match="number its clients"):
        parse_clients(swapped.to_batches(max_chunksize=3), shards, 3)


def test_a_table_may_have_no_batches():
    assert parse_clients([], SHARDS, 3).class_counts.shape == (0, 3)


def test_opening_in_parts_is_opening_at_once(folder, monkeypatch):
    whole = Population.open(folder)
    monkeypatch.setattr(reading, "READ_COUNTS", 7)  # two clients of three classes
    parts = Population.open(folder)
    for name in ("sizes", "test_sizes", "splits", "class_counts", "train_clients", "test_clients"):
        ours, theirs = getattr(parts, name), getattr(whole, name)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    assert all(parts.batch(client).equals(whole.batch(client)) for client in range(8))


def test_what_every_round_asks_for_is_kept_and_cannot_be_changed(folder):
    opened = Population.open(folder)
    for name in ("sizes", "test_sizes", "splits", "folds", "train_clients", "test_clients", "row_numbers"):
        column = getattr(opened, name)
        assert np.shares_memory(column, getattr(opened, name)), name
        with pytest.raises(ValueError, match="read-only"):
            column[:] = column[::-1]
    assert set(opened.splits) == {"train", "validation", "test"}
    assert opened.splits.dtype.kind == "U"
    assert np.array_equal(np.flatnonzero(opened.splits == "test"), opened.test_clients)
    assert opened.class_counts.dtype == np.int64
    opened.class_counts[:] = 0
    assert opened.class_counts.sum() == 200


def test_bytes_are_checked_at_the_first_read_only(folder, monkeypatch):
    opened = Population.open(folder)
    opened.batch(2)
    opened.test_batch(0)
    file = opened._files["shard-00000.arrow"]
    assert [client for client in range(8) if file._checked[client]] == [2]
    monkeypatch.setattr(type(file), "_check", lambda *_: pytest.fail("checked again"))
    opened.batch(2)
    opened.test_batch(0)


@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=12), unused=st.integers(0, 5), seed=st.integers(0, 99))
def test_all_clients_at_once_are_the_clients_one_by_one(sizes, unused, seed):
    samples = sum(sizes) + unused
    random = np.random.default_rng(seed)
    rows, ranks = random.permutation(samples)[: sum(sizes)], random.permutation(samples)
    codes = random.integers(0, 3, samples)
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    shuffled = dealing._shuffle(Parts(parts), ranks)
    assert shuffled.tolist() == [row for part in parts for row in part[np.argsort(ranks[part])]]
    none, classes = np.zeros(len(parts), np.int64), [0, 1, 2]
    deal = dealing.Assignment(shuffled, none, Parts(parts), {}, [], classes, codes, classes, codes[shuffled], (), [])
    counts = deal.count(deal.codes, 3)
    assert counts.tolist() == [np.bincount(codes[part], minlength=3).tolist() for part in parts]


def test_a_shard_is_what_plain_arrow_writes_of_the_clients(folder):
    # a client taken out of a larger batch as a slice would have its neighbours' bytes in the padding
    opened, table = Population.open(folder), rich_table()
    with pa.ipc.new_file(str(folder.parent / "plain.arrow"), opened.schema) as writer:
        for client in range(8):
            rows = opened.batch(client).column("row").to_numpy()
            writer.write_batch(table.to_batches()[0].take(pa.array(rows)))
    assert (folder.parent / "plain.arrow").read_bytes() == (folder / "shard-00000.arrow").read_bytes()


@pytest.mark.parametrize("rows", [1, 60, 2**16])
def test_verify_finds_the_same_in_blocks_of_any_size(folder, monkeypatch, rows):
    monkeypatch.setattr(verification, "_ROWS", rows)
    assert partitioning.verify(folder) == []
    manifest = folder / "manifest.json"
    manifest.write_bytes(sealed(json.loads(manifest.read_text().replace('"ant"', '"auk"'))))
    ants = Population.open(folder).class_counts[:, 0] > 0
    findings = partitioning.verify(folder)
    assert findings[:-1] == [
        f"{folder}: client {client} does not have the classes that clients.parquet says"
        for client in np.flatnonzero(ants)
    ]
    assert "test slice 0 has labels that are no class" in findings[-1]


@pytest.mark.parametrize("label", ["kind", "label", "row"])
def test_verify_counts_labels_of_any_type_across_files(tmp_path, monkeypatch, label):
    monkeypatch.setattr(writing, "SHARD_BYTES", 4000)
    partitioning.make(rich_table(), tmp_path / "p", scheme="iid", clients=9, label=label)
    assert len(Population.open(tmp_path / "p").manifest.shards) > 1
    assert partitioning.verify(tmp_path / "p") == []


@pytest.mark.slow
def test_a_million_clients_open_in_half_a_gigabyte(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, 2_000_000 * 16, dtype=np.uint8)
    table = pa.table(
        {
            "image": pa.FixedSizeListArray.from_arrays(pa.array(pixels), 16),
            "label": np.random.default_rng(1).integers(0, 10, 2_000_000),
            "weight": np.random.default_rng(2).random(2_000_000),
        }
    )
    options = {"folds": 10, "stratify": True, "features": ("label", "weight")}
    made = partitioning.make(table, tmp_path / "p", scheme="iid", clients=1_000_000, **options)
    assert made.sizes.tolist() == [2] * 1_000_000
    code = r"""
import pathlib, re, resource, sys, time
import partitioning
def peak():
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = pathlib.Path("/proc/self/status").read_text()  # ru_maxrss begins with that of the parent
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024
before, start = peak(), time.perf_counter()
population = partitioning.Population.open(sys.argv[1])
grown, seconds = peak() - before, time.perf_counter() - start
assert (len(population), len(population.train_clients)) == (1_000_000, 800_000)
assert population.batch(999_999).num_rows == 2
assert grown < 500e6, grown
assert seconds < 20, seconds  # below 5 on an idle machine
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code, tmp_path / "p"], check=True)
