"""Data sets by name."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partitioning import InputError
from raysim.data import DATASETS, load


def test_digits() -> None:
    source = load("digits")
    assert source.name == "digits"
    assert source.label == "label"
    assert source.test is None
    assert source.train.num_rows == 1797
    image = pa.list_(pa.list_(pa.list_(pa.float32(), 8), 8), 1)
    assert source.train.schema == pa.schema({"image": image, "label": pa.int64()})
    pixels = np.asarray(source.train["image"].to_pylist())
    assert pixels.shape == (1797, 1, 8, 8)
    assert pixels.min() == 0
    assert pixels.max() == 1
    assert np.bincount(source.train["label"].to_numpy()).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]


def test_every_data_set_has_a_line() -> None:
    assert list(DATASETS) == ["digits", "mnist", "fashion-mnist", "cifar10"]
    assert all(entry.description and "\n" not in entry.description for entry in DATASETS.values())


@pytest.mark.parametrize(
    ("dataset", "label", "message"),
    [
        ("digit", None, "'digits'"),
        ("imagenet", None, "digits, mnist, fashion-mnist, cifar10"),
        ("imagenet", None, "file:PATH.parquet"),
        ("digits", "labels", "'label'"),
    ],
)
def test_unknown_names(dataset: str, label: str | None, message: str) -> None:
    with pytest.raises(InputError) as error:
        load(dataset, label=label)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_file_starts_at_root(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "y": [3]}), tmp_path / "own.parquet")
    assert load("file:own.parquet", root=str(tmp_path), label="y").train.num_rows == 1
    source = load(f"file:{tmp_path}/own.parquet", root="elsewhere", label="y")
    assert source.name == f"file:{tmp_path}/own.parquet"
    assert source.test is None
