"""Data sets as Parquet files."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partitioning import InputError
from raysim.data.export import export
from raysim.data.sources import load
from tests.kit.images import write


def test_round_trip_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "digits.parquet"
    assert export("digits", path) == (path,)
    assert [entry.name for entry in tmp_path.iterdir()] == ["digits.parquet"]
    table = load(f"file:{path}").train
    assert table.equals(load("digits").train)
    assert table.schema.field("image").type == pa.list_(pa.list_(pa.list_(pa.float32(), 8), 8), 1)


def test_round_trip_of_real_mnist(real: Callable[[str], Path], tmp_path: Path) -> None:
    root = str(real("MNIST/raw").parents[1])
    train, test = export("mnist", tmp_path / "mnist.parquet", root)
    assert (train.name, test.name) == ("mnist.parquet", "mnist-test.parquet")
    source = load("mnist", root=root)
    assert pq.read_table(train).equals(source.train)
    assert pq.read_table(test).equals(source.test)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["mnist-test.parquet", "mnist.parquet"]


@pytest.mark.parametrize("name", ["drawn.parquet", "drawn-test.parquet"])
def test_a_file_that_is_there_stays(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for part in ("train", "test"):
        write(tmp_path / "images" / part / "cat" / "a.png")
    out.mkdir()
    (out / name).write_bytes(b"old")
    with pytest.raises(InputError, match=rf"/{name} exists: must be a new file; name another, or remove it$"):
        export(f"folder:{tmp_path}/images", out / "drawn.parquet")
    assert (out / name).read_bytes() == b"old" and [entry.name for entry in out.iterdir()] == [name]


def test_own_table_with_its_label(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "y": [2]}), tmp_path / "own.parquet")
    (copy,) = export(f"file:{tmp_path}/own.parquet", tmp_path / "copy.parquet", label="y")
    assert pq.read_table(copy).to_pydict() == {"x": [1.0], "y": [2]}


@pytest.mark.parametrize(
    ("dataset", "name", "message"),
    [
        ("digits", "digits.csv", "does not end in .parquet"),
        ("digits", "missing/digits.parquet", "is not a folder"),
        ("digits", "folder.parquet", "is a folder"),
        ("digit", "digits.parquet", "'digits'"),
    ],
)
def test_refusals_leave_nothing(dataset: str, name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(InputError, match=message):
        export(dataset, tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.parquet"]
