"""Parquet files: batches of bounded memory, and footers that are damaged."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partitioning.common.bounds import free_memory
from partitioning.sources import source as shared
from partitioning.sources.opening import open_source
from partitioning.sources.parquet import decoded_bytes


@pytest.mark.parametrize("stored", [True, False])
def test_long_values_that_stand_often_are_decoded_in_small_batches(tmp_path, stored):
    """A dictionary of one text makes 6 GB of 240 KB: the footer does not tell."""
    count = 60_000
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["a" * 100_000]))
    table = pa.table({"x": text, "inner": pa.StructArray.from_arrays([text], ["bytes"]), "label": range(count)})
    pq.write_table(table, tmp_path / "data.parquet", store_schema=stored)
    source = open_source(tmp_path / "data.parquet")
    rows = 0
    for batch, _ in zip(source.batches(), range(20), strict=False):
        assert batch.nbytes < 2 * shared.BATCH_BYTES and batch.schema.equals(source.schema)
        assert batch["label"].to_pylist() == list(range(rows, rows + len(batch)))
        rows += len(batch)
    assert rows > 1000


@pytest.mark.parametrize("options", [{"row_group_size": 500}, {"dictionary_pagesize_limit": 100_000}])
def test_images_with_dictionaries_may_stand_in_several_row_groups(tmp_path, options):
    images = [index.to_bytes(2, "little") * 2500 for index in range(1000)]
    encoded = pa.StructArray.from_arrays([pa.array(images), pa.array([None] * 1000, pa.string())], ["bytes", "path"])
    table = pa.table({"image": encoded, "label": range(1000)})
    pq.write_table(table, tmp_path / "data.parquet", **options)
    source = open_source(tmp_path / "data.parquet")
    assert pa.Table.from_batches(list(source.batches())).equals(table)


@pytest.mark.skipif(free_memory() < 2**33, reason="a page of Parquet may need 2 GiB")
def test_a_column_chunk_may_be_larger_than_the_memory():
    """Pages are read one by one, so a file of one row group needs little memory."""
    chunk = SimpleNamespace(total_uncompressed_size=2**46, num_values=2**27)
    column = SimpleNamespace(length=0, physical_type="BYTE_ARRAY")
    footer = SimpleNamespace(
        num_rows=2**27,
        num_columns=1,
        num_row_groups=1,
        row_group=lambda group: SimpleNamespace(column=lambda number: chunk),
        schema=SimpleNamespace(column=lambda number: column),
    )
    file = SimpleNamespace(metadata=footer, reader=SimpleNamespace(iter_batches=lambda *_, **__: iter(())))
    assert decoded_bytes(Path("data.parquet"), file) > 2**46


@pytest.mark.parametrize("names", [["label", "x"], []])
def test_no_bit_of_a_footer_ends_the_process(tmp_path, names):
    """Arrow ends it if a column has a wrong number of levels, or if there is none; therefore in another process."""
    table = pa.table({"label": [0, 1], "x": [[1.0], [2.0]]}).select(names)
    pq.write_table(table, file := tmp_path / "data.parquet")
    code = """
import sys
from pathlib import Path
from partitioning.common.errors import InputError
from partitioning.sources.parquet import open_parquet

path, refused = Path(sys.argv[1]), 0
assert open_parquet(path).schema.names == sys.argv[2:]
sound = path.read_bytes()
first = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
for bit in range(8 * first, 8 * len(sound), 8):
    path.write_bytes(sound[: bit // 8] + bytes([sound[bit // 8] ^ 1 << bit % 8]) + sound[bit // 8 + 1 :])
    try:
        open_parquet(path)
    except InputError:
        refused += 1
print(refused)
"""
    done = subprocess.run([sys.executable, "-c", code, file, *names], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50
