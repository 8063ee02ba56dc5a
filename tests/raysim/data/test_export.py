"""Data sets as Parquet files."""

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from PIL import Image

from partitioning import InputError
from raysim.cli.commands import cli
from raysim.data.export import export
from raysim.data.sources import load
from tests.kit.images import write
from tests.kit.runs import quick_run


def test_round_trip_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "digits.parquet"
    assert export("digits", path) == (path,)
    assert [entry.name for entry in tmp_path.iterdir()] == ["digits.parquet"]
    table = load(f"file:{path}").train
    assert table.equals(load("digits").train)
    assert table.schema.field("image").type == pa.list_(pa.list_(pa.list_(pa.float32(), 8), 8), 1)


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


def test_test_rows_appear_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("train", "test"):
        write(tmp_path / "images" / part / "cat" / "a.png")
    replace = Path.replace

    def stop(path: Path, target: Path) -> None:
        replace(path, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        export(f"folder:{tmp_path}/images", tmp_path / "drawn.parquet")
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["drawn-test.parquet"]


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


def test_an_exported_table_trains_the_model_of_the_encoded_images(real: Callable[[str], Path], tmp_path: Path) -> None:
    encoded = real("fashion-mnist-train.parquet")
    table = pq.ParquetFile(encoded).read_row_group(0).slice(0, 300)
    pq.write_table(table.slice(0, 200), tmp_path / "encoded.parquet")
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.stack([np.array(Image.open(io.BytesIO(each["bytes"]))) for each in table["image"].to_pylist()])
    labels = table["label"].to_numpy().astype(np.uint8)
    for part in ("train", "t10k"):
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
            with gzip.open(raw / f"{part}-{kind}-ubyte.gz", "wb") as file:
                file.write(head + values.astype(np.uint8).tobytes())
    made = tmp_path / "fashion-mnist-train.parquet"
    asked = ["export", "fashion-mnist", str(made), "--root", str(tmp_path), "--rows", "200"]
    done = CliRunner().invoke(cli, asked)
    assert done.output.splitlines() == [str(made), str(tmp_path / "fashion-mnist-test.parquet")]
    models = []
    for file in (made, tmp_path / "encoded.parquet"):
        config = {
            "rounds": 2,
            "data": {"dataset": f"file:{file}", "test": 0.2},
            "partition": {"scheme": "dirichlet", "clients": 4},
            "model": {"hidden": [8]},
            "algorithm": {"name": "fedavg"},
        }
        quick_run(config, tmp_path / file.stem / "run", inline=True)
        models.append((tmp_path / file.stem / "run" / "fedavg" / "model.safetensors").read_bytes())
    assert models[0] == models[1]


def test_a_number_of_rows_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^rows = 0: must be at least 1; leave it out for all$"):
        export("digits", tmp_path / "digits.parquet", rows=0)
    assert list(tmp_path.iterdir()) == []
