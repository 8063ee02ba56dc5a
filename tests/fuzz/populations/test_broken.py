"""Tables that hold what no model can train on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import partitioning
import raysim
from partitioning import InputError, Population
from partitioning.common.sealing import sealed
from raysim.data.sources import load
from tests.fuzz.populations.sound import EXPERIMENT, numbers
from tests.kit.runs import quick_run


def small(tmp_path: Path, **columns: Any) -> Path:
    """A population of four clients, some columns of its table replaced."""
    table = numbers(load("digits").train.slice(0, 80))
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values(table[name].to_numpy())))
    partitioning.make(table, tmp_path / "p", scheme="iid", clients=4, test_clients=1, local_test=0.2)
    return tmp_path / "p"


def train(folder: Path, tmp_path: Path, **keys: Any) -> raysim.Run:
    return quick_run({**EXPERIMENT, "data": {"population": str(folder)}, **keys}, tmp_path / "run", inline=True)


def with_last(value: Any) -> Any:
    return lambda values: [*values[:-1].tolist(), value]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x1": with_last(np.nan)}, r"client \d: the features have values that are infinite in float32"),
        ({"x1": with_last(-np.inf)}, r"client \d: the features have values that are infinite in float32"),
        ({"x1": with_last(1e300)}, r"client \d: the features have values that are infinite in float32"),
        ({"x1": lambda values: [str(value) for value in values]}, "column 'x1' is string, which is not a feature"),
        ({"label": lambda values: values / 2}, "'accuracy' with labels that are numbers"),
    ],
)
def test_what_is_no_number_is_refused_with_its_owner(columns: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        train(small(tmp_path, **columns), tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 11], r"client \d: label 9 is not one of the classes 0, .*, 8, 11"),
        ([0, 1, 2, 3, 4], "does not count 5 classes"),
        ([f"{i}" for i in range(10)], "holds whole numbers, and the classes are"),
    ],
)
def test_labels_out_of_range_are_refused(classes: list[Any], message: str, tmp_path: Path) -> None:
    folder = small(tmp_path)
    record = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_bytes(sealed({**record, "classes": classes}))
    with pytest.raises(InputError, match=message) as caught:
        train(folder, tmp_path)
    assert "clients.parquet" in str(caught.value) or str(folder) in str(caught.value)


def test_clients_without_samples_and_with_one_do_no_harm(tmp_path: Path) -> None:
    """Under batch norm a batch of one is no step, so both take none, weigh nothing, and are evaluated."""
    sizes = [0, 1, 21, 30, 28]
    table = numbers(load("digits").train)
    table = table.filter(pa.compute.less(table["label"], 2))
    counts = [[(size + 1) // 2, size // 2] for size in sizes]
    partitioning.make(table, tmp_path / "p", scheme="counts", table=counts)
    assert Population.open(tmp_path / "p").sizes.tolist() == sizes
    done = train(tmp_path / "p", tmp_path, evaluate={"every": 1})
    updates = pq.read_table(done.folder / "fedavg" / "updates.parquet").to_pylist()
    taken = {row["client"]: (row["steps"] > 0, row["weight"] > 0) for row in updates}
    assert taken == {0: (False, False), 1: (False, False), **dict.fromkeys((2, 3, 4), (True, True))}
