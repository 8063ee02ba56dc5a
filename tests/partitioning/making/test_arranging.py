"""Streaming gives the bytes of the path in memory, for every kind of source and any amount of memory."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partitioning
from partitioning import InputError
from partitioning.making import arranging
from partitioning.making.arranging import arrange_samples
from partitioning.sources.opening import open_source
from partitioning.sources.source import TableSource, read_columns
from tests.kit.tables import WRITE, rich_table, write, write_file

OPTIONS = {"scheme": "quantity", "clients": 9, "size_alpha": 0.5, "min_size": 0, "seed": 4}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", WRITE)
def test_a_streamed_source_is_written_as_the_same_table_in_memory(tmp_path, small_batches, name):
    source = write(tmp_path, name)
    partitioning.make(read_columns(source), tmp_path / "held", dataset=name, local_test=0.2, **OPTIONS)
    assert partitioning.verify(tmp_path / "held") == []
    for memory in (1, 3000, 2**28):
        made = partitioning.make(source, tmp_path / f"{memory}", memory=memory, local_test=0.2, **OPTIONS)
        assert content(made.path) == content(tmp_path / "held")
        assert made.manifest.dataset == name


class Chunks:
    """A source that is a table's chunks, given as from a file."""

    name = "chunks"

    def __init__(self, table):
        self.table, self.schema = table, table.schema

    def batches(self, columns=None):
        yield from self.table.select(self.schema.names if columns is None else columns).to_batches()


@st.composite
def deals(draw):
    """A table in chunks, and some of its rows for clients of all sizes."""
    samples, clients = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    table = rich_table().slice(draw(st.integers(0, 100)), samples)
    cuts = [0, *sorted(random.integers(0, samples, draw(st.integers(0, 4)))), samples]
    parts = [table.slice(start, end - start) for start, end in itertools.pairwise(cuts)]
    rows = random.permutation(samples)[: random.integers(1, samples + 1)]
    owners = np.sort(random.choice(clients, rows.size, p=random.dirichlet(np.full(clients, 0.3))))
    return pa.concat_tables(parts), rows, np.bincount(owners, minlength=clients)


@settings(max_examples=60)
@given(deal=deals(), memory=st.sampled_from([1, 500, 5000, 2**28]))
def test_any_rows_of_any_clients_are_arranged_as_in_memory(tmp_path_factory, deal, memory):
    table, rows, sizes = deal
    scratch = tmp_path_factory.mktemp("arranged") / "scratch"
    held = list(arrange_samples(TableSource(table), rows, sizes, scratch=scratch))
    streamed = list(arrange_samples(Chunks(table), rows, sizes, scratch=scratch, memory=memory))
    assert [batch.num_rows for batch in streamed] == sizes.tolist()
    for ours, theirs in zip(streamed, held, strict=True):
        assert ours.serialize() == theirs.serialize()
        assert ours.column("kind").dictionary.equals(theirs.column("kind").dictionary)
    assert not scratch.exists()


def dictionaries():
    # a dictionary of its own in every chunk, plain and nested, with values that no row has
    chunks = []
    for start in range(0, 60, 20):
        words = pa.DictionaryArray.from_arrays(
            pa.array(np.arange(20) % 7, pa.int8()), [f"word {start + number}" for number in range(19, -1, -2)]
        )
        pairs = pa.ListArray.from_arrays(pa.array(range(21), pa.int32()), words)
        chunks.append(pa.table({"words": words, "pairs": pairs, "label": [0, 1] * 10}))
    return pa.concat_tables(chunks)


def test_dictionaries_of_many_batches_become_one(tmp_path):
    table = dictionaries()
    with pa.ipc.new_stream(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    made = partitioning.make(open_source(tmp_path / "x.arrow"), tmp_path / "p", memory=1000, scheme="iid", clients=6)
    partitioning.make(table, tmp_path / "held", dataset="x.arrow", scheme="iid", clients=6)
    assert content(tmp_path / "p") == content(tmp_path / "held")
    dictionary = made.batch(0).column("words").dictionary
    assert dictionary.to_pylist()[:11] == [*(f"word {number}" for number in range(19, -1, -2)), "word 39"]
    rows = [row for client in range(6) for row in made.batch(client).to_pylist()]
    assert sorted(row["words"] for row in rows) == sorted(table.column("words").to_pylist())


def test_dictionaries_that_cannot_be_one_are_refused(tmp_path):
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), [str(first + number) for number in range(100)])
        for first in (0, 50)
    ]
    table = pa.table({"words": pa.chunked_array(chunks), "label": [0, 1]})
    for source in (table, Chunks(table)):
        with pytest.raises(InputError, match=r"larger index type.*decode their column"):
            partitioning.make(source, tmp_path / "p", scheme="iid", clients=2)
    assert list(tmp_path.iterdir()) == []


def test_columns_that_arrow_cannot_pick_rows_of_are_refused(tmp_path):
    table = pa.table({"text": pa.array(["a", "b"], pa.string_view()), "label": [0, 1]})
    with pytest.raises(InputError, match=r"column 'text' of table is of type string_view.*cast it"):
        partitioning.make(table, tmp_path / "p", scheme="iid", clients=2)


def test_a_missing_value_far_into_the_source_leaves_nothing(tmp_path):
    values = pa.array([*range(399), None])
    pq.write_table(pa.table({"x": values, "label": [0, 1] * 200}), tmp_path / "x.parquet", row_group_size=100)
    with pytest.raises(InputError, match=r"x\.parquet has missing values in column 'x'"):
        partitioning.make(open_source(tmp_path / "x.parquet"), tmp_path / "p", scheme="iid", clients=4)
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_damage_that_only_the_second_pass_meets_leaves_nothing(tmp_path):
    table = pa.table({"label": [0, 1] * 5000, "x": np.random.default_rng(0).normal(size=10_000)})
    pq.write_table(table, tmp_path / "x.parquet", compression="none", use_dictionary=["label"])
    changed = bytearray((tmp_path / "x.parquet").read_bytes())
    start = pq.ParquetFile(tmp_path / "x.parquet").metadata.row_group(0).column(1).data_page_offset
    changed[start : start + 8] = b"\xff" * 8
    (tmp_path / "x.parquet").write_bytes(changed)
    with pytest.raises(InputError, match=r"x\.parquet cannot be read as Parquet"):
        partitioning.make(open_source(tmp_path / "x.parquet"), tmp_path / "p", scheme="iid", clients=4)
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_a_source_that_shrinks_between_the_passes_is_refused(tmp_path):
    class Shrinking(Chunks):
        def batches(self, columns=None):
            yield from super().batches(columns)
            self.table = self.table.slice(0, self.table.num_rows // 2)

    with pytest.raises(InputError, match="changed while it was read"):
        partitioning.make(Shrinking(rich_table()), tmp_path / "p", scheme="iid", clients=4)
    assert list(tmp_path.iterdir()) == []


def held_at_once(monkeypatch, source, rows, sizes, scratch, memory):
    held, files = [], []
    gathered, distribute = arranging.gather_batches, arranging._distribute
    monkeypatch.setattr(
        arranging, "gather_batches", lambda table, *rest: held.append(table.nbytes) or gathered(table, *rest)
    )
    monkeypatch.setattr(
        arranging, "_distribute", lambda source, runs: files.append(len(runs)) or distribute(source, runs)
    )
    list(arrange_samples(source, rows, sizes, scratch=scratch, memory=memory))
    return held, files


def test_runs_hold_what_they_may_where_first_rows_are_small_and_later_ones_large(tmp_path, monkeypatch):
    texts = ["x" * (10 if row < 500 else 2000) for row in range(1000)]
    table = pa.table({"text": texts, "label": [0] * 1000})
    write_file(table, tmp_path / "x.arrow")
    source, sizes = open_source(tmp_path / "x.arrow"), np.full(500, 2)
    held, files = held_at_once(monkeypatch, source, np.arange(1000), sizes, tmp_path / "scratch", memory=100_000)
    assert max(held) <= 100_000
    assert len(files) > 1  # a run turned out too large, and was streamed again
    assert sum(held) >= table.nbytes


def test_the_number_of_open_files_is_bounded(tmp_path, monkeypatch):
    write_file(pa.table({"x": np.arange(2500), "label": [0] * 2500}), tmp_path / "x.arrow")
    source, rows = open_source(tmp_path / "x.arrow"), np.random.default_rng(0).permutation(2500)
    held, files = held_at_once(monkeypatch, source, rows, np.full(250, 10), tmp_path / "scratch", memory=1000)
    assert max(files) <= 2 * arranging._FILES + 1
    assert len(held) > 90


def test_a_client_larger_than_memory_is_held_alone(tmp_path, monkeypatch):
    table = pa.table({"x": np.arange(5000), "label": [0] * 5000})
    write_file(table, tmp_path / "x.arrow")
    source, sizes = open_source(tmp_path / "x.arrow"), np.array([100, 0, 4000, 0, 0, 900])
    held, _ = held_at_once(monkeypatch, source, np.arange(5000), sizes, tmp_path / "scratch", memory=20_000)
    assert sorted(held) == [1600, 14400, 64000]
