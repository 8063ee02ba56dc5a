"""Data sets by name."""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from partitioning import InputError
from partitioning.sources.arrays import nested
from raysim.data.catalogue import DATASETS
from raysim.data.columns import PLAIN, ColumnRules
from raysim.data.images import pixels
from raysim.data.reading import fetch
from raysim.data.sets import small_images
from raysim.data.sets.synthetic import covariance
from raysim.data.sources import check_classes, load


def test_digits_are_those_of_scikit_learn() -> None:
    source, theirs = load("digits"), load_digits()
    assert (source.name, source.label, source.test, source.train.num_rows) == ("digits", "label", None, 1797)
    image = pa.list_(pa.list_(pa.list_(pa.float32(), 8), 8), 1)
    assert source.train.schema == pa.schema({"image": image, "label": pa.int64()})
    images = np.asarray(source.train["image"].to_pylist(), np.float32)
    assert images.tobytes() == (theirs.images / 16).astype(np.float32).tobytes()
    assert source.train["label"].to_numpy().tolist() == theirs.target.tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "pip install --force-reinstall scikit-learn"),
        (b"1,2\n3,4\n", "2 values in a row"),
        (b"1,\n3,4\n", "damaged .*invalid value ''"),
        (b"1,true\n1,true\n", "damaged .*invalid value 'true'"),
        (b"x", "damaged"),
    ],
)
def test_digits_without_their_file_are_refused(
    rows: bytes | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "digits.csv.gz"
    if rows is not None:
        path.write_bytes(gzip.compress(rows) if message != "damaged" else rows)
    monkeypatch.setattr(small_images, "DIGITS_FILE", str(path))
    with pytest.raises(InputError, match=message):
        load("digits")


def test_every_data_set_has_a_line_and_a_reader() -> None:
    assert all(entry.description and "\n" not in entry.description for entry in DATASETS.values())
    assert all(callable(resolve_name(entry.reader)) for entry in DATASETS.values())


@pytest.mark.parametrize(
    ("dataset", "label", "message"),
    [
        ("image-net", None, "digits, mnist, fashion-mnist, cifar10"),
        ("digits", "labels", "'label'"),
        ("digits,digits", None, "names 'digits' twice"),
        ("digits,digit", None, "'digit'"),
        ("folder:nowhere", None, "nowhere is missing"),
        ("folder:nowhere", "y", "folders name the classes"),
    ],
)
def test_unknown_names(dataset: str, label: str | None, message: str) -> None:
    with pytest.raises(InputError) as error:
        load(dataset, label=label)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dataset", [name for name, entry in DATASETS.items() if "your" in entry.description])
def test_files_that_nobody_downloads_are_named(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load(dataset, root=str(tmp_path))
    message = str(error.value)
    assert f"not found in {tmp_path}" in message
    assert "get the files (" in message and "data.root" in message
    assert "\n" not in message


def test_a_failed_download_names_the_missing_folder_or_the_first_missing_file(tmp_path: Path) -> None:
    def download(stage: str) -> None:
        raise OSError("no network")

    for root, says in (
        (tmp_path / "no", f"a and 2 more not found in {tmp_path / 'no'}, which does not exist"),
        (tmp_path, f"a and 2 more not found in {tmp_path}"),
    ):
        with pytest.raises(InputError) as error:
            fetch(download, root, ["a", "b", "c"])
        assert str(error.value).startswith(
            f"{says}, and the data set could not be downloaded (no network): put the files"
        )


def test_file_starts_at_root(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "y": [3]}), tmp_path / "own.parquet")
    assert load("file:own.parquet", root=str(tmp_path), label="y").train.num_rows == 1
    source = load(f"file:{tmp_path}/own.parquet", root="elsewhere", label="y")
    assert source.name == f"file:{tmp_path}/own.parquet"
    assert source.test is None


def _write(path: Path, **columns: object) -> None:
    pq.write_table(pa.table(columns), path)


def test_columns_are_left_out(tmp_path: Path) -> None:
    part = pa.array(["a", "b"]).dictionary_encode()
    pq.write_table(pa.table({"x": [0.0, 1.0], "part": part, "label": [0, 1]}), tmp_path / "own.parquet")
    with pytest.raises(InputError, match="'part'"):
        load("file:own.parquet", root=str(tmp_path))
    assert load("file:own.parquet", root=str(tmp_path), without=["part"]).train.schema.names == ["x", "label"]
    for name in ("y", "label"):
        with pytest.raises(InputError, match=f"column '{name}' of data.without"):
            load("file:own.parquet", root=str(tmp_path), without=["part", name])


def test_several_files_are_domains(tmp_path: Path) -> None:
    _write(tmp_path / "a-train.parquet", x=[1.0, 2.0], label=pa.array([0, 1], pa.int8()))
    _write(tmp_path / "b.parquet", x=[3.0], label=[1])
    source = load("file:a-train.parquet, b.parquet", root=str(tmp_path), dividing=["domain"])
    assert source.train.to_pydict() == {"x": [1.0, 2.0, 3.0], "label": [0, 1, 1], "domain": ["a", "a", "b"]}
    assert source.dividing == ("domain",)
    assert load("file:a-train.parquet,b.parquet", root=str(tmp_path)).train.schema.names == ["x", "label"]


def _two_files(folder: Path, first: str, second: str, rules: ColumnRules = PLAIN) -> pa.Table:
    for name, text in (("a", first), ("b", second)):
        (folder / f"{name}.csv").write_text(text)
    return load("file:a.csv,b.csv", root=str(folder), label="y", dividing=["domain"], rules=rules).train


def test_files_may_differ_in_the_order_of_columns_and_have_whole_numbers_or_fractions(tmp_path: Path) -> None:
    whole, fractions = "x,z,y\n1,5,0\n", "z,y,x\n6,1,2.5\n"
    wanted = {"x": [1.0, 2.5], "z": [5, 6], "y": [0, 1], "domain": ["a", "b"]}
    assert _two_files(tmp_path, whole, fractions).to_pydict() == wanted
    turned = _two_files(tmp_path, fractions, whole)
    assert turned.schema.names == ["z", "y", "x", "domain"] and turned["x"].to_pylist() == [2.5, 1.0]
    with pytest.raises(InputError, match=r"b has the column 'x' as bool instead of int64, unlike a: give all the same"):
        _two_files(tmp_path, "x,y\n1,0\n", "x,y\ntrue,1\n")


@pytest.mark.parametrize(
    ("rules", "values", "found"),
    [
        (ColumnRules(categories=("z",)), "uv", ["u", "v"]),
        (ColumnRules(categories=("z",)), ["u", "07"], ["u", "07"]),
        (ColumnRules(impute="mean", na_values=("?",)), ["?", "2"], ["?", "2"]),
        (ColumnRules(dates=("z",)), ["2020-01-02", "2020-01-03"], [date(2020, 1, 2), date(2020, 1, 3)]),
        (ColumnRules(dates=("z",)), ["2020-01-02", ""], [date(2020, 1, 2), None]),
    ],
)
def test_rules_for_columns_hold_for_several_files(
    tmp_path: Path, rules: ColumnRules, values: Sequence[str], found: list[object]
) -> None:
    rules = replace(rules, impute="most_frequent")
    first, second = (f"x,z,y\n1,{value},0\n2,{values[0]},1\n" for value in values)
    table = _two_files(tmp_path, first, second, rules)
    assert table["z"].to_pylist() == [found[0], found[0], found[1], found[0]]
    assert _two_files(tmp_path, second, first, rules)["z"].to_pylist() == [found[1], found[0], found[0], found[0]]


@pytest.mark.parametrize(
    ("rules", "value", "found"),
    [
        (ColumnRules(impute="mean"), "1.5", [1.5, None, None]),
        (ColumnRules(categories=("z",), impute="mean"), "u", ["u", "", ""]),
        (ColumnRules(dates=("z",), impute="mean"), "2020-01-02", [date(2020, 1, 2), None, None]),
    ],
)
def test_a_column_without_a_value_in_one_file_has_the_type_of_the_others(
    tmp_path: Path, rules: ColumnRules, value: str, found: list[object]
) -> None:
    known, empty = f"x,z,y\n1,{value},0\n", "x,z,y\n2,,1\n3,,0\n"
    assert _two_files(tmp_path, known, empty, rules)["z"].to_pylist() == found
    assert _two_files(tmp_path, empty, known, rules)["z"].to_pylist() == [*found[1:], found[0]]


def test_a_text_among_numbers_is_refused_in_its_file(tmp_path: Path) -> None:
    numbers, text = "x,y\n1,0\n2,1\n", "x,y\n1,0\ntypo,1\n"
    with pytest.raises(InputError, match=r"b\.csv: 'x' is string"):
        _two_files(tmp_path, numbers, text)


def test_a_column_without_a_value_is_refused_with_its_remedy(tmp_path: Path) -> None:
    known, empty = "x,z,y\n1,1.5,0\n", "x,z,y\n2,,1\n3,,0\n"
    with pytest.raises(InputError, match=r"b\.csv: 'z' has nulls \(2 rows\): .*set impute = \"median\""):
        _two_files(tmp_path, known, empty)
    with pytest.raises(InputError, match="'z' is empty"):
        _two_files(tmp_path, empty, empty, ColumnRules(impute="mean"))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"y": [3.0], "label": [1]}, "b has the column 'y' and lacks 'x', unlike a: give all the same names"),
        ({"x": [3.0], "label": ["one"]}, "labels of a (int64), b (string) are of several kinds"),
        ({"x": [3.0], "label": [1], "domain": [0]}, "b has a column 'domain' of its own"),
    ],
)
def test_files_that_do_not_go_together(second: dict[str, object], message: str, tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet", x=[1.0], label=[0])
    _write(tmp_path / "b.parquet", **second)
    with pytest.raises(InputError) as error:
        load("file:a.parquet,b.parquet", root=str(tmp_path))
    assert message in str(error.value)


def test_two_files_of_one_domain(tmp_path: Path) -> None:
    _write(tmp_path / "a-train.parquet", x=[1.0], label=[0])
    _write(tmp_path / "a-test.parquet", x=[1.0], label=[0])
    with pytest.raises(InputError, match="are domains named 'a'"):
        load("file:a-train.parquet,a-test.parquet", root=str(tmp_path))


def test_images_of_several_shapes_become_png(tmp_path: Path) -> None:
    grey = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
    colour = np.arange(27, dtype=np.uint8).reshape(1, 3, 3, 3)
    _write(tmp_path / "a.parquet", image=nested(grey), label=[0, 1])
    _write(tmp_path / "b.parquet", image=nested(colour), label=[1])
    table = load("file:a.parquet,b.parquet", root=str(tmp_path), dividing=["domain"]).train
    images = [pixels(value["bytes"].as_py(), "image") for chunk in table["image"].chunks for value in chunk]
    assert [image.tolist() for image in images] == [*grey.tolist(), *colour.tolist()]
    assert table["domain"].to_pylist() == ["a", "a", "b"]


def test_class_that_only_the_test_set_has() -> None:
    train, test = pa.table({"x": [1.0], "label": [0]}), pa.table({"x": [1.0, 2.0, 3.0], "label": [0, 4, 3]})
    with pytest.raises(InputError, match=r"class 3 and 1 more of column 'label' is in the test set of own"):
        check_classes(train, test, "label", "own")
    check_classes(test, train, "label", "own")


def test_synthetic_clients_have_models_and_inputs_of_their_own() -> None:
    source = load("synthetic:0.5,0.5,30,20", dividing=["client"], seed=3)
    sizes = np.bincount(source.train["client"].to_numpy())
    assert len(sizes) == 30 and sizes.min() >= 1 and sizes.max() > 4 * np.median(sizes)
    assert source.train.schema.names == ["x", "label", "client"] and source.test is None
    x = source.train["x"].combine_chunks().flatten().to_numpy().reshape(-1, 60)
    # Sigma's diagonal is j^-1.2, within a client.
    inside = x - np.array([x[source.train["client"].to_numpy() == k].mean(0) for k in range(30)]).repeat(sizes, axis=0)
    assert np.allclose(inside.var(0) * len(x) / (len(x) - 30), np.arange(1, 61) ** -1.2, rtol=0.35)
    # A client's rows are the same in a larger population.
    more = load("synthetic:0.5,0.5,40,20", dividing=["client"], seed=3).train
    assert more.slice(0, source.train.num_rows).equals(source.train)
    assert not load("synthetic:0.5,0.5,30,20", dividing=["client"], seed=4).train.equals(source.train)


def test_synthetic_clients_that_are_alike_share_one_model() -> None:
    train = load("synthetic:iid,200,30", dividing=["client"], seed=3).train
    x, y = train["x"].combine_chunks().flatten().to_numpy().reshape(-1, 60), train["label"].to_numpy()
    first = train["client"].to_numpy() < 100
    model = LogisticRegression(max_iter=2000).fit(x[first], y[first])
    assert model.score(x[~first], y[~first]) > 0.8


def test_synthetic_sizes_are_the_papers_where_no_rows_are_given() -> None:
    sizes = np.bincount(load("synthetic:0,0,200", dividing=["client"]).train["client"].to_numpy())
    # floor(L) + 50 with L ~ LogNormal(4, 2), whose median is e^4.
    assert sizes.min() >= 50 and 50 + 30 < np.median(sizes) < 50 + 90


@pytest.mark.parametrize(
    "name",
    [
        "synthetic:",
        "synthetic:1,1",
        "synthetic:1,1,0",
        "synthetic:1,-1,5",
        "synthetic:1,1,5,0.5",
        f"synthetic:{'9' * 400},1,5",
    ],
)
def test_synthetic_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"must be synthetic:ALPHA,BETA,CLIENTS"):
        load(name)


def test_synthetic_clients_beyond_the_memory_are_refused() -> None:
    with pytest.raises(InputError, match=r"synthetic:1,1,1000000,999999999 needs 255,999,999.7 GB of memory"):
        load("synthetic:1,1,1000000,999999999")


def test_gaussians_are_drawn_from_the_seed() -> None:
    source = load("gaussians", dividing=["domain"], seed=3)
    assert source.test is not None
    assert source.train.equals(load("gaussians", dividing=["domain"], seed=3).train)
    assert not source.train.equals(load("gaussians", dividing=["domain"], seed=4).train)
    assert not source.train.equals(source.test)
    x = np.asarray(source.train["x"].to_pylist())
    y = source.train["label"].to_numpy()
    combined = np.asarray(source.train["domain"].to_pylist()) == "combined"
    assert (np.bincount(y).tolist(), combined.sum()) == ([1000, 1000], 1000)
    noise = x - (2 * y - 1)[:, None]
    assert np.abs(np.cov(noise[~combined].T) - np.eye(10)).max() < 0.15
    assert np.abs(np.cov(noise[combined].T) - (np.eye(10) + covariance()) / 2).max() < 0.15
    assert covariance()[0, 1] == -0.5 and covariance()[0, 2] == 0.5 and covariance()[1, 1] == 1
    # The classes are apart: along (1, ..., 1) nearly all rows are on their side.
    assert ((x.sum(axis=1) > 0) == y).mean() > 0.995


def test_shifts_need_a_set_to_shift() -> None:
    with pytest.raises(InputError, match=r'set data\.dataset = "shifted:digits"'):
        load("digits", shifts=["blur"])
