"""Bounds of data: refused by their names, before memory is taken."""

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partitioning import InputError, make
from partitioning.common import bounds
from partitioning.sources.opening import open_source


def test_a_number_above_its_bound_is_refused_by_name() -> None:
    bounds.check_row_count("x", bounds.MAX_ROWS)
    with pytest.raises(InputError, match=r"x has 268,435,457 rows: at most MAX_ROWS = 268,435,456 are read; split"):
        bounds.check_row_count("x", bounds.MAX_ROWS + 1)


def test_memory_is_compared_with_what_is_free() -> None:
    free = bounds.free_memory()
    assert free > 2**20
    bounds.check_memory("x", 1)
    with pytest.raises(InputError, match=r"x needs .* GB of memory: at most MEMORY_SHARE = 0.5 of the free"):
        bounds.check_memory("x", free + 1)


def test_rows_of_a_parquet_file_are_counted_by_its_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"label": np.arange(3000)}), path, row_group_size=1000)
    content = bytearray(path.read_bytes())
    pages = pq.ParquetFile(path).metadata.row_group(2).column(0)
    content[4 : pages.data_page_offset + 100] = bytes(pages.data_page_offset + 96)  # no page can be read
    path.write_bytes(content)
    monkeypatch.setattr(bounds, "MAX_ROWS", 2999)
    with pytest.raises(InputError, match=r"has 3,000 rows: at most MAX_ROWS = 2,999"):
        open_source(path)


@pytest.mark.parametrize(
    ("shape", "kind", "message"),
    [
        ((10**12,), "<f8", "MAX_ROWS"),
        ((3, 10**11), "<f8", "MAX_ROW_BYTES"),
        ((3,), "<U100000000", "MAX_ROW_BYTES"),
        ((-1,), "<f8", "give one entry per sample"),
    ],
)
def test_an_array_that_claims_too_much_is_refused(
    shape: tuple[int, ...], kind: str, message: str, tmp_path: Path
) -> None:
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("label.npy", b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    (tmp_path / "a.npz").write_bytes(content.getvalue())
    with pytest.raises(InputError, match=message):
        open_source(tmp_path / "a.npz")


@pytest.mark.parametrize("writer_of", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_packed_batch_is_bounded_by_its_header(
    writer_of: Callable[..., pa.RecordBatchStreamWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"label": np.zeros(2000, np.int64), "word": pa.array(["a", "b"] * 1000).dictionary_encode()})
    for codec in ("zstd", "lz4", None):
        path = tmp_path / f"{codec}.arrow"
        with writer_of(str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(table)
        assert next(open_source(path).batches()).num_rows == 2000
    monkeypatch.setattr(bounds, "MAX_BATCH_BYTES", 16_000)
    open_source(tmp_path / "None.arrow")  # its batch is a view on the file
    for codec in ("zstd", "lz4"):
        with pytest.raises(InputError, match="24,000 bytes: at most MAX_BATCH_BYTES = 16,000"):
            open_source(tmp_path / f"{codec}.arrow")


def test_a_file_that_decodes_to_far_more_than_its_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, texts = tmp_path / "a.parquet", pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["a" * 10**5])
    pq.write_table(pa.table({"x": texts, "label": np.arange(1000) % 2}), path, store_schema=False)
    source = open_source(path)
    assert sum(batch.num_rows for batch in source.batches()) == 1000  # 100 MB: within the free GiB
    monkeypatch.setattr(bounds, "ALWAYS_DECODED", 2**26)
    assert sum(batch.num_rows for batch in source.batches(["label"])) == 1000
    with pytest.raises(InputError, match=r"a.parquet has [\d,]+ decoded bytes for each byte .*MAX_EXPANSION = 4,096"):
        make(source, tmp_path / "made", scheme="iid", clients=2)
    assert [each.name for each in tmp_path.iterdir()] == ["a.parquet"]


def test_columns_are_counted_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("a," * 2**16 + "label\n" + "1," * 2**16 + "0\n")
    with pytest.raises(InputError, match=r"65,537 columns: at most MAX_COLUMNS"):
        open_source(path)
