"""A user's own table: the forms it may have, and the one line it gets otherwise."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather

from partitioning import InputError
from raysim.data.sources import load

TENSOR = pa.fixed_shape_tensor(pa.uint8(), (2, 3))
HUB = pa.struct({"bytes": pa.binary(), "path": pa.string()})

ALLOWED = {
    "numbers": pa.table({"b": [1.5, 2.0], "label": [3, 7], "a": pa.array([1, 2], pa.int8()), "c": [True, False]}),
    "one array": pa.table({"label": [0, 1], "x": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2))}),
    "nested arrays": pa.table({"x": pa.array([[[1], [2]]], pa.list_(pa.list_(pa.int16(), 1), 2)), "label": [0]}),
    "tensors": pa.table(
        {
            "x": pa.ExtensionArray.from_storage(TENSOR, pa.array([range(6)], pa.list_(pa.uint8(), 6))),
            "label": pa.array([0], pa.uint8()),
        }
    ),
    "hub images": pa.table({"image": pa.array([{"bytes": b"x", "path": None}], HUB), "label": [0]}),
    "plain images": pa.table({"image": pa.array([b"x"], pa.binary()), "label": [0]}),
}

REFUSED: dict[str, tuple[pa.Table, str]] = {
    "no rows": (pa.table({"x": pa.array([], pa.float32()), "label": pa.array([], pa.int64())}), "no rows"),
    "no label": (pa.table({"x": [1.0], "labels": [0]}), "'labels'"),
    "only a label": (pa.table({"label": [0]}), "no column but the label"),
    "labels that are float arrays": (
        pa.table({"x": [1.0], "label": pa.array([[[0.0]]], pa.list_(pa.list_(pa.float64(), 1), 1))}),
        "'label' is fixed_size_list<",
    ),
    "byte labels": (
        pa.table({"x": [1.0], "label": [b"cat"]}),
        "'label' is binary, but must hold whole numbers or strings",
    ),
    "null labels": (pa.table({"x": [1.0, 2.0], "label": [0, None]}), "'label' has nulls (1 rows)"),
    "null numbers": (pa.table({"x": [1.0, None], "label": [0, 1]}), "'x' has nulls"),
    "nan": (pa.table({"x": [1.0, float("nan")], "label": [0, 1]}), "'x' has nulls (1 rows)"),
    "beyond float32": (pa.table({"x": [1.0, -1e39], "label": [0, 1]}), "beyond 3.4e+38"),
    "nan in arrays": (
        pa.table({"x": pa.array([[1.0, float("inf")]], pa.list_(pa.float32(), 2)), "label": [0]}),
        "infinite, not a number, or beyond",
    ),
    "null arrays": (
        pa.table({"x": pa.array([[1.0], None], pa.list_(pa.float32(), 1)), "label": [0, 1]}),
        "'x' has nulls",
    ),
    "null in arrays": (
        pa.table({"x": pa.array([[1.0, None]], pa.list_(pa.float32(), 2)), "label": [0]}),
        "'x' has nulls",
    ),
    "null images": (pa.table({"x": pa.array([{"bytes": None, "path": "1.png"}], HUB), "label": [0]}), "'x' has nulls"),
    "text": (pa.table({"x": [1.0], "name": ["a"], "label": [0]}), "'name' is string"),
    "dictionary": (pa.table({"x": pa.array(["a"]).dictionary_encode(), "label": [0]}), "'x' is a dictionary of string"),
    "lists that vary": (
        pa.table({"x": [[1.0], [1.0, 2.0]], "label": [0, 1]}),
        "its lists may vary in length: cast it to",
    ),
    "lists inside": (
        pa.table({"x": pa.array([[[1.0], [1.0, 2.0]]], pa.list_(pa.list_(pa.float32()), 2)), "label": [0]}),
        "vary",
    ),
    "arrays of text": (pa.table({"x": pa.array([["a"]], pa.list_(pa.string(), 1)), "label": [0]}), "'x' is fixed_size"),
    "times": (pa.table({"x": pa.array([0], pa.timestamp("s")), "label": [0]}), "'x' is timestamp"),
    "two arrays": (
        pa.table({"x": ALLOWED["one array"]["x"], "z": ALLOWED["one array"]["x"], "label": [0, 1]}),
        "do not go together",
    ),
    "an array and a number": (ALLOWED["one array"].append_column("id", [[1, 2]]), "'id' (int64) do not go together"),
    "a pandas index": (pa.table({"x": [1.0], "label": [0], "__index_level_0__": [4]}), "index=False"),
    "a name twice": (pa.table([[1.0], [2.0], [0]], names=["x", "x", "label"]), "2 columns named 'x'"),
}


def _line(path: Path, label: str | None = None) -> str:
    with pytest.raises(InputError) as error:
        load(f"file:{path}", label=label)
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("form", ALLOWED)
def test_columns_stay_as_they_are(form: str, tmp_path: Path) -> None:
    pq.write_table(ALLOWED[form], tmp_path / "own.parquet")
    table = load(f"file:{tmp_path}/own.parquet").train
    assert table.equals(ALLOWED[form])
    assert table.schema.types == ALLOWED[form].schema.types


@pytest.mark.parametrize("case", REFUSED)
def test_table_that_cannot_be_trained_on(case: str, tmp_path: Path) -> None:
    table, message = REFUSED[case]
    pq.write_table(table, tmp_path / "own.parquet")
    assert message in _line(tmp_path / "own.parquet")


def test_label_is_named_with_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "Cover_Type": [1]}), tmp_path / "own.parquet")
    line = _line(tmp_path / "own.parquet", label="cover_type")
    assert "'Cover_Type'" in line
    assert "x, Cover_Type" in line


def test_many_columns_are_not_all_listed(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"x{i}": [1.0] for i in range(1000)}), tmp_path / "own.parquet")
    assert len(_line(tmp_path / "own.parquet")) < 300


def test_file_that_is_not_there(tmp_path: Path) -> None:
    assert "missing" in _line(tmp_path / "own.parquet")
    assert "a folder" in _line(tmp_path)


@pytest.mark.parametrize("size", [0, 7, 2000, -1])
def test_truncated_file(size: int, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"x": np.random.default_rng(0).random(1000), "label": range(1000)}), tmp_path / "own.parquet"
    )
    (tmp_path / "own.parquet").write_bytes((tmp_path / "own.parquet").read_bytes()[:size])
    assert "not a whole Parquet file" in _line(tmp_path / "own.parquet")


def test_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    pq.write_table(
        pa.table({"x": np.random.default_rng(0).random(1000), "label": range(1000)}), path, compression="zstd"
    )
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    assert "not a whole Parquet file" in _line(path)


def test_folder_named_like_a_column(tmp_path: Path) -> None:
    (tmp_path / "fold=1").mkdir()
    pq.write_table(ALLOWED["numbers"], tmp_path / "fold=1" / "own.parquet")
    assert load(f"file:{tmp_path}/fold=1/own.parquet").train.schema.names == ["b", "label", "a", "c"]


NUMBERS = pa.table({"a": [1.5, 2.0, 3.0], "b": [1, 2, 3], "label": ["x", "y", "x"]})


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".arrow", ".npz", ".parquet"])
def test_every_kind_of_file_is_the_same_table(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"own{suffix}"
    if suffix == ".npz":
        np.savez(path, **{name: np.array(NUMBERS[name].to_pylist()) for name in NUMBERS.schema.names})
    elif suffix == ".arrow":
        feather.write_feather(NUMBERS, str(path), compression="uncompressed")
    elif suffix == ".parquet":
        pq.write_table(NUMBERS, path)
    else:
        csv.write_csv(NUMBERS, path, csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ","))
    assert load(f"file:{path}").train.to_pydict() == NUMBERS.to_pydict()


def test_a_csv_file_is_judged_by_all_of_its_values(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = "".join(f"{number},0\n" for number in range(400_000))
    path.write_text(f"a,label\n{rows}0.5,1\n")  # beyond the first block of Arrow's reader
    assert load(f"file:{path}").train.schema.field("a").type == pa.float64()
    for content, line in (
        ("a,label\n1,2,3\n", "cannot be read as delimited text"),
        ("a,label\n1,ill\n2,\n", "'label' has no label in 1 rows"),
        ("a,label\n1,0\n,1\n", "'a' has nulls (1 rows)"),
        ("a,label\nred,0\n", "'a' is string"),
        ("a,a,label\n1,2,3\n", "2 columns named 'a'"),
    ):
        path.write_text(content)
        assert line in _line(path)


def test_a_csv_file_of_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "header.csv").write_text("a,label\n")
    with pytest.raises(InputError, match=r"header\.csv has no rows: give at least one sample"):
        load(f"file:{tmp_path / 'header.csv'}")


def test_a_damaged_name_of_a_column_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    pq.write_table(pa.table({"amount": [1.0, 2.0], "label": [0, 1]}), path)
    path.write_bytes(path.read_bytes().replace(b"amount", b"\xe5mount"))
    assert "is not a whole Parquet file ('utf-8' codec can't decode" in _line(path)


def test_an_archive_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, x=np.zeros((3, 2)), y=np.zeros(3, int))
    assert "data.label = 'label'" in _line(path) and load(f"file:{path}", label="y").train.num_rows == 3
    np.savez(path, x=np.zeros((3, 2)), label=np.zeros(2, int))
    assert "different lengths" in _line(path)
    path.write_bytes(b"PK")
    assert "cannot be read as NumPy's .npz" in _line(path)


def test_lists_of_one_length_are_arrays_and_bytes_are_images(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    bytes_, doubles = pa.list_(pa.list_(pa.uint8())), pa.list_(pa.list_(pa.float64()))
    for values, kind, shape in (
        (pixels, bytes_, (1, 3, 4)),
        (pixels.reshape(2, 2, 2, 3), pa.list_(bytes_), (3, 2, 2)),
        (pixels / 2, doubles, (3, 4)),
    ):
        pq.write_table(pa.table({"x": pa.array(values.tolist(), kind), "label": [0, 1]}), path)
        read = load(f"file:{path}").train["x"]
        assert np.array(read.to_pylist()).shape == (2, *shape) and pa.types.is_fixed_size_list(read.type)
    assert np.array_equal(np.array(read.to_pylist()), pixels / 2)
