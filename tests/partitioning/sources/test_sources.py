"""Every kind of source: what it reads, and how it refuses what it cannot."""

import io
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partitioning
from partitioning import InputError
from partitioning.sources import source as shared
from partitioning.sources.opening import open_source
from partitioning.sources.source import TableSource, read_columns
from tests.kit.tables import (
    WRITE,
    archive_columns,
    flat_table,
    rich_table,
    write,
    write_file,
    write_images,
)


@pytest.mark.parametrize("name", WRITE)
def test_a_source_gives_the_same_rows_again_in_bounded_batches(tmp_path, small_batches, name):
    source = write(tmp_path, name)
    table = read_columns(source)
    assert source.name == name
    assert table.schema.equals(source.schema, check_metadata=True)
    assert read_columns(source).equals(table)
    batches = list(source.batches())
    assert sum(batch.num_rows for batch in batches) == table.num_rows
    if not name.endswith(("csv", "tsv")):  # read in blocks, which are larger
        assert len(batches) > 3
        assert max(shared.record_bytes(batch) for batch in batches) < 6000  # padding and names are most of it


@pytest.mark.parametrize("name", WRITE)
def test_columns_are_read_alone_and_in_the_order_asked_for(tmp_path, name):
    source = write(tmp_path, name)
    names = source.schema.names[::-2]
    table = read_columns(source, names)
    assert table.column_names == names
    assert table.equals(read_columns(source).select(names))


def test_tables_keep_every_column_unchanged(tmp_path):
    for name in ("a.parquet", "b.pq", "c.arrow", "d.ipc", "e.feather"):
        table = read_columns(write(tmp_path, name))
        expected = rich_table().cast(table.schema)  # Parquet names a list's inner field "element"
        assert table.unify_dictionaries().equals(expected), name
    for name in ("f.csv", "g.tsv"):
        assert read_columns(write(tmp_path, name)).equals(flat_table())
    table = rich_table()
    assert read_columns(TableSource(table)).equals(table)


def test_values_in_quotes_may_have_line_breaks_at_the_end_of_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr("partitioning.sources.delimited._BLOCK", 4000)
    notes = ["line\n" * (100 + row) for row in range(9)]
    (tmp_path / "x.csv").write_text("note,label\n" + "".join(f'"{note}",{row}\n' for row, note in enumerate(notes)))
    table = read_columns(open_source(tmp_path / "x.csv"), ["note", "label"])
    assert table.to_pydict() == {"note": notes, "label": [*range(9)]}


@pytest.mark.parametrize("name", ["h.npz", "i.npz"])
def test_arrays_become_columns_of_their_shape(tmp_path, small_batches, name):
    source, arrays = write(tmp_path, name), archive_columns()
    kinds = dict(zip(source.schema.names, source.schema.types, strict=True))
    assert kinds["image"] == pa.list_(pa.list_(pa.uint8(), 4), 3)
    assert (kinds["columns"], kinds["big"]) == (pa.list_(pa.float32(), 5), pa.int32())
    assert (kinds["flag"], kinds["label"]) == (pa.bool_(), pa.string())
    table = read_columns(source)
    for column, array in arrays.items():
        assert table.column(column).to_pylist() == array.tolist(), column


def test_an_array_of_no_rows_is_an_empty_column(tmp_path):
    np.savez(tmp_path / "x.npz", label=np.zeros(0, np.int64), x=np.zeros((0, 2)))
    assert read_columns(open_source(tmp_path / "x.npz")).num_rows == 0


def test_images_come_by_class_and_name_with_their_bytes(tmp_path):
    source = write(tmp_path, "images")
    for clutter in (".DS_Store", "bee/Thumbs.db"):
        (tmp_path / "images" / clutter).write_bytes(b"of a file manager")
    rows = read_columns(source).to_pylist()
    assert [row["label"] for row in rows] == ["ant"] * 70 + ["bee"] * 30 + ["wasp"] * 40
    assert rows[71] == {"image": {"bytes": b"bee 1" * 40, "path": "bee/001.png"}, "label": "bee"}
    assert [row["image"]["path"] for row in rows] == sorted(row["image"]["path"] for row in rows)
    for path in (tmp_path / "images").rglob("*.png"):
        path.write_bytes(b"")
    assert read_columns(source, ["label"]).num_rows == 140  # without reading any image


def test_suffixes_are_read_in_any_case(tmp_path):
    folder = write_images(tmp_path / "images", {"a": 1})
    (folder / "a" / "000.png").rename(folder / "a" / "0.JPeG")
    assert read_columns(open_source(folder)).num_rows == 1
    pq.write_table(flat_table(), tmp_path / "X.PARQUET")
    assert read_columns(open_source(tmp_path / "X.PARQUET")).num_rows == 300


def test_a_column_whose_name_begins_another_is_read_alone(tmp_path):
    pq.write_table(pa.table({"a.b": [1], "a": [2], "label": [3]}), tmp_path / "x.parquet")
    assert read_columns(open_source(tmp_path / "x.parquet"), ["a"]).to_pydict() == {"a": [2]}


def read(path):
    return read_columns(open_source(path))


@pytest.mark.parametrize("name", [name for name in WRITE if "." in name])
@pytest.mark.parametrize("kind", ["missing", "empty", "noise", "folder"])
def test_what_is_no_such_file_is_refused(tmp_path, name, kind):
    path = tmp_path / name
    if kind == "empty":
        path.write_bytes(b"")
    if kind == "noise":
        path.write_bytes(np.random.default_rng(0).bytes(2000) + b"\n1,2\t3\n")
    if kind == "folder":
        path.mkdir()
    with pytest.raises(InputError, match=rf"{path} (cannot be read as|cannot be opened|is empty)") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.parquet", "c.arrow", "d.ipc", "e.feather", "f.csv", "g.tsv", "h.npz", "i.npz"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.999])
def test_a_truncated_file_is_refused(tmp_path, name, share):
    WRITE[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    cut = int(share * len(content))
    if name in ("f.csv", "g.tsv"):
        cut = content.rindex(b"sample", 0, cut)  # inside a line: text that ends between two looks whole
    (tmp_path / name).write_bytes(content[:cut])
    with pytest.raises(InputError, match=f"{name} cannot be read as"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.parquet", "c.arrow", "e.feather", "h.npz", "i.npz"])
def test_a_flipped_bit_is_refused_or_harmless_but_never_another_error(tmp_path, name):
    WRITE[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    tried, harmless = 75, 0
    for position in np.linspace(0, len(content) - 1, tried).astype(int):
        changed = bytearray(content)
        changed[position] ^= 0b1000
        (tmp_path / name).write_bytes(changed)
        with suppress(InputError):
            read(tmp_path / name)
            harmless += 1
    assert harmless < tried


def test_an_archive_notices_every_flipped_bit_of_its_values(tmp_path):
    np.savez(tmp_path / "x.npz", label=np.arange(1000))
    content = (tmp_path / "x.npz").read_bytes()
    start = content.index(np.arange(1000).tobytes())
    for position in range(start, start + 8000, 97):
        changed = bytearray(content)
        changed[position] ^= 1
        (tmp_path / "x.npz").write_bytes(changed)
        with pytest.raises(InputError, match="Bad CRC-32"):
            read(tmp_path / "x.npz")


def test_arrow_values_are_validated(tmp_path):
    offsets = pa.array([0, 9, 3], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abcdefghi")])
    write_file(pa.table({"text": broken, "label": [1, 2]}), tmp_path / "x.arrow")
    with pytest.raises(InputError, match="cannot be read as Arrow"):
        read(tmp_path / "x.arrow")


def test_texts_inside_structs_are_utf8(tmp_path):
    paths = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    )
    images = pa.StructArray.from_arrays([pa.array([b"x", b"y"]), paths], ["bytes", "path"])
    pq.write_table(pa.table({"image": images, "label": [0, 1]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"x.parquet: column 'image' has a value that is damaged, or no text in UTF-8"):
        partitioning.make(tmp_path / "x.parquet", tmp_path / "p", scheme="iid", clients=2)
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,label\n1,2\n3\n", "delimited text .*Expected 2 columns, got 1: 3"),
        ("x,label\n1,2\n3,4,5\n", "Expected 2 columns, got 3"),
        (
            "x,label\n" + "1,2\n" * 3000 + "one,2\n",
            "value in column 'x' that is no int64.*'one'.*save the table as Parq",
        ),
        ("x,label\n" + "1,2\n" * 3000 + "1,b\n", "value in column 'label' that is no int64.*'b'"),
    ],
)
def test_ragged_and_mixed_text_is_refused(tmp_path, monkeypatch, text, message):
    monkeypatch.setattr("partitioning.sources.delimited._BLOCK", 4000)
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "x.csv")
    if "'label'" in message:
        with pytest.raises(InputError, match=message):
            read_columns(open_source(tmp_path / "x.csv"), ["label"])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(3), "label": np.zeros(4)}, r"different lengths \('x' 3, 'label' 4\)"),
        ({"x": np.array([1, "a", None], object)}, "array 'x' of .* is of type object: save numbers"),
        ({"x": np.zeros(3, complex)}, "of type complex128"),
        ({"x": np.zeros(3, [("a", "i4")])}, "array 'x' of .* is of type"),
        ({"x": np.float64(3)}, r"has the shape \[\]"),
        ({"x": np.zeros((3, 0))}, r"has the shape \[3, 0\]"),
        ({"x": np.zeros(3, "M8[Y]")}, "cannot be read as NumPy's"),
    ],
)
def test_arrays_that_are_no_columns_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "x.npz")


def test_an_archive_of_other_files_or_of_wrong_lengths_is_refused(tmp_path):
    stored = io.BytesIO()
    np.save(stored, np.arange(10))
    members = {"notes.txt": b"mine", "short.npy": stored.getvalue()[:-8], "long.npy": stored.getvalue() + b"\0"}
    for name, content in members.items():
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr(name, content)
        with pytest.raises(InputError, match=r"is no array|ends too early|longer than it says"):
            read(tmp_path / "x.npz")


DESCR = "{'descr': %s, 'fortran_order': False, 'shape': %s}"
HEADERS = ["{'descr': (((", "{[]: 1}", "{1: 2}", "(" * 9000, DESCR % ("()", "(3,)"), DESCR % ("[[]]", "(3,)")]
HEADERS += [DESCR % ("'<U0'", f"(0, {10**10})"), DESCR % ("'<f4'", "('3',)")]


@pytest.mark.parametrize("header", HEADERS)
def test_an_array_whose_header_makes_no_sense_is_refused(tmp_path, header):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("label.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(InputError, match=r"x\.npz cannot be read as NumPy's .npz") as caught:
        read(tmp_path / "x.npz")
    assert "\n" not in str(caught.value)


def test_no_memory_is_taken_for_a_header_that_is_too_long(tmp_path):
    long = 2**26
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("label.npy", b"\x93NUMPY\x02\x00" + long.to_bytes(4, "little") + b" " * long)
    tracemalloc.start()
    with pytest.raises(InputError, match="cannot be read as NumPy's"):
        read(tmp_path / "x.npz")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**22


def test_a_damaged_archive_of_another_packing_is_refused(tmp_path):
    values = io.BytesIO()
    np.save(values, np.random.default_rng(0).normal(size=1000))
    for packing in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", packing) as archive:
            archive.writestr("label.npy", values.getvalue())
        content = bytearray((tmp_path / "x.npz").read_bytes())
        content[60:2000] = bytes(1940)
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(InputError, match="cannot be read as NumPy's"):
            read(tmp_path / "x.npz")


def test_odd_image_folders_are_refused_by_the_name_of_what_is_odd(tmp_path):
    folder = write_images(tmp_path / "images", {"a": 2, "b": 1})

    def refused(path, message):
        with pytest.raises(InputError, match=f"{path}.* {message}"):
            open_source(folder)

    odd = folder / "a" / "notes.txt"
    odd.write_text("mine")
    refused(odd, "is no image: keep only files that end in .png")
    odd.unlink()
    (folder / "a" / "inner.png").mkdir()
    refused(folder / "a" / "inner.png", "is no image")
    (folder / "a" / "inner.png").rmdir()
    (folder / "a" / "gone.png").symlink_to(folder / "missing")
    refused(folder / "a" / "gone.png", "is no image")
    (folder / "a" / "gone.png").unlink()
    (folder / "top.png").write_bytes(b"image")
    refused(folder / "top.png", "is in no class")
    (folder / "top.png").unlink()
    (folder / "c").mkdir()
    refused(folder / "c", "is empty: give a folder")
    (folder / "c" / "0.png").write_bytes(b"")
    refused(folder / "c" / "0.png", "is empty: restore")
    (folder / "c" / "0.png").rename(folder / "c" / "a\nb.png")
    refused("'.*", "rename it")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="none is empty"):
        open_source(tmp_path / "none")


def test_an_image_that_vanishes_is_refused(tmp_path):
    source = write(tmp_path, "images")
    (tmp_path / "images" / "bee" / "003.png").unlink()
    with pytest.raises(InputError, match=r"images cannot be read as a folder of images .*003\.png"):
        read_columns(source)


@pytest.mark.parametrize("text", ["", "x" * 256, "a\0b.csv"], ids=["empty", "long", "zero byte"])
def test_a_text_that_is_no_path_is_refused(text):
    with pytest.raises(InputError, match=r"^source = .*: must be a path, and .*; correct it$"):
        open_source(text)


def test_an_unknown_kind_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(InputError, match=r"x\.json is of an unknown kind: give a folder .*\.parquet.*\.npz"):
        open_source(tmp_path / "x.json")
