"""Data sets in the hub's layout, read by the library `datasets`: folders, its cache without a network, refusals."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from partitioning import InputError
from raysim.common import distribution
from raysim.config.data import data_of
from raysim.data.catalogue import HUB
from raysim.data.hub import by_features, read_hub, tables_in
from raysim.data.memory import HeldData
from raysim.data.sources import load

README = """---
configs:
- config_name: default
  data_files: [{split: train, path: data/train-*}, {split: test, path: data/test-*}]
- config_name: small
  data_files: [{split: train, path: data/test-*}]
- config_name: only
  data_files: [{split: test, path: data/test-*}]
---
"""
CLASSES = datasets.ClassLabel(names=["ant", "bee", "cat"])
PIXELS = np.random.default_rng(0).integers(0, 256, (9, 4, 5), np.uint8)


def part(rows: int, **others: Any) -> datasets.Dataset:
    columns = {
        "picture": [Image.fromarray(each) for each in PIXELS[:rows]],
        "kind": [row % 3 for row in range(rows)],
        "note": [f"row {row}" for row in range(rows)],
    }
    features = {"picture": datasets.Image(), "kind": CLASSES, "note": datasets.Value("string")}
    return datasets.Dataset.from_dict(
        {**columns, **dict.fromkeys(others, columns["kind"])}, datasets.Features({**features, **others})
    )


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.getbasetemp() / "datasets")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the hub's layout."""
    folder = tmp_path_factory.mktemp("hub") / "insects"
    (folder / "data").mkdir(parents=True)
    part(9).to_parquet(folder / "data" / "train-00000-of-00001.parquet")
    part(4).to_parquet(folder / "data" / "test-00000-of-00001.parquet")
    (folder / "README.md").write_text(README)
    (folder.parent / "visits").mkdir()
    (folder.parent / "visits" / "0.csv").write_text("a,label\n1,0\n")
    return folder


def test_a_folder_has_splits_and_columns_by_their_features(folder: Path) -> None:
    source = load("hf:./insects", root=str(folder.parent))
    assert (source.name, source.label) == ("hf:./insects", "kind")
    assert source.train.schema.names == ["picture", "kind"] and source.train.schema.metadata is None
    assert source.test is not None and (source.train.num_rows, source.test.num_rows) == (9, 4)
    assert load(f"hf:{folder}:small").train.equals(source.test)


def test_columns_of_the_partition_and_left_out_ones_may_be_named(folder: Path) -> None:
    assert load(f"hf:{folder}", dividing=["note"]).train["note"].to_pylist()[1] == "row 1"
    assert load(f"hf:{folder}", without=["note"]).train.schema.names == ["picture", "kind"]
    with pytest.raises(InputError, match=r"unknown label column data.label = 'kinds' .* did you mean 'kind'"):
        load(f"hf:{folder}", label="kinds")


def test_data_sets_in_memory_are_chosen_alike(folder: Path) -> None:
    held = HeldData.of(datasets.DatasetDict({"train": part(9), "test": part(4)}), "label")
    there, here = load(f"hf:{folder}"), load(held)
    assert here.label == "kind" and there.train.equals(here.train)
    assert there.test is not None and there.test.equals(here.test)


def test_images_in_other_files_are_read(tmp_path: Path) -> None:
    Image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    features = datasets.Features({"picture": datasets.Image(), "label": CLASSES})
    data = datasets.Dataset.from_dict({"picture": [str(tmp_path / "a.png")], "label": [0]}, features)
    assert load(HeldData.of(data, "label")).train["picture"][0].as_py()["bytes"] == (tmp_path / "a.png").read_bytes()


def test_one_of_several_columns_of_classes_must_be_named() -> None:
    tables = part(3, fine=CLASSES).with_format("arrow")[:], None
    with pytest.raises(InputError, match=r'x has classes in kind, fine: set data.label = "kind", or another'):
        by_features(tables, None, (), "x")
    assert by_features(tables, "fine", (), "x")[0][0].schema.names == ["picture", "fine"]
    assert by_features((part(3, label=CLASSES).with_format("arrow")[:], None), None, (), "x")[1] == "label"


@pytest.mark.parametrize(
    "metadata", [b"", b"[]", b"{}", b'{"info": 3}', b'{"info": {"features": {"y": {}}}}', b"[" * 10**5]
)
def test_a_table_with_odd_features_keeps_its_columns(metadata: bytes) -> None:
    table = pa.table({"x": [1], "label": [0]}).replace_schema_metadata({b"huggingface": metadata})
    (train, test), label = by_features((table, None), None, (), "x")
    assert train.schema.names == ["x", "label"] and test is None and label == "label"


REFUSED = {
    "hf:mnist": "must be hf:OWNER/NAME",
    "hf:a/b/c": "must be hf:OWNER/NAME",
    "hf:a/b@": "must be hf:OWNER/NAME",
    "hf:./nothing": "nothing is missing: give the path of a folder",
    "hf:./insects/README.md": "README.md is a file: give the path of a folder",
    "hf:./insects:large": "'large' not found. Available: ['default', 'small', 'only']): correct the files in ",
    "hf:./insects:only": "has no split 'train', but 'test'",
    "folder:insects": "is a folder in the hub's layout: must begin with hf:",
    "file:insects": "is a folder in the hub's layout: must begin with hf:",
    "file:visits": "is a folder in the hub's layout: must begin with hf:",
}


@pytest.mark.parametrize("dataset", REFUSED)
def test_a_refusal_is_one_line(dataset: str, folder: Path) -> None:
    with pytest.raises(InputError) as error:
        load(dataset, root=str(folder.parent))
    assert REFUSED[dataset] in str(error.value) and len(str(error.value)) < 600


def test_a_damaged_file_of_a_folder_is_named_by_its_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.csv").write_text('a,label\n1,0\n"2,1\n')
    with pytest.raises(InputError) as caught:
        read_hub(f"hf:{tmp_path}", None, "label")
    text = str(caught.value)
    assert "ParserError: " in text and text.endswith(f": correct the files in {tmp_path}") and "network" not in text
    assert capfd.readouterr() == ("", "")
    assert not datasets.are_progress_bars_disabled()


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("a,b,c,label\n1,2,3,0\n", "(1.csv has the columns 'b', 'c' and lacks 'd', unlike 0.csv: must be the same"),
        ("a,d,label\n1.5,2,0\n", "(1.csv has the column 'a' as double instead of int64, unlike 0.csv: must be"),
        ('a,d,label\n1,"2,5",0\n', "(1.csv has the column 'd' as string instead of int64, such as '2,5', unlike 0.csv"),
    ],
)
def test_files_that_differ_are_named_with_their_column(tmp_path: Path, second: str, message: str) -> None:
    (tmp_path / "0.csv").write_text("a,d,label\n1,2,0\n3,4,1\n")
    (tmp_path / "1.csv").write_text(second)
    with pytest.raises(InputError) as caught:
        load(f"hf:{tmp_path}")
    assert message in str(caught.value) and str(caught.value).endswith(f": correct the files in {tmp_path}")


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"run `uv sync --extra datasets`, or `pip install \".\[datasets\]\"`, in the"):
        read_hub("hf:a/b", None, None)


def test_only_paths_of_a_folder_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_of({"dataset": "hf:./insects"}).root == str(tmp_path)
    assert data_of({"dataset": "hf:owner/insects"}).root is None
    assert data_of({"dataset": "digits", "test": "hf:./insects"}).test == f"{HUB}{tmp_path / 'insects'}"


@pytest.mark.parametrize(
    ("files", "tables"),
    [
        (
            ["train/a.parquet", "test/b.parquet", "train/.DS_Store", "train/_SUCCESS", "README.md"],
            ["test/b", "train/a"],
        ),
        (["data/train/a.parquet", "data/test/b.parquet", "README.md"], ["data/test/b", "data/train/a"]),
        (["a.parquet", "train/b.parquet"], ["a"]),
        (["train/cat.png", "train/a.parquet"], []),
        (["cats/1.png", "cats/index.parquet", ".cache/x.parquet"], []),
        (["fedavg/metrics.parquet"], []),
    ],
)
def test_tables_lie_beside_a_folder_train_or_above(files: list[str], tables: list[str], tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert [str(path.relative_to(tmp_path).with_suffix("")) for path in tables_in(tmp_path)] == tables


def test_without_a_network_the_cache_is_read(folder: Path, tmp_path: Path) -> None:
    """The library is asked in a process of its own, because it reads its settings when it is imported."""
    builder = datasets.load_dataset_builder(str(folder), cache_dir=str(tmp_path))
    builder.download_and_prepare()
    shutil.copytree(tmp_path / "insects", tmp_path / "owner___insects")
    code = (
        "import sys; from raysim.data.sources import load; from partitioning import InputError\n"
        "source = load('hf:owner/insects', root=sys.argv[1]); print(source.label, source.train.num_rows)\n"
        "try: load('hf:owner/others', root=sys.argv[1])\n"
        "except InputError as error: print(error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == "kind 9"
    assert "hf:owner/others' cannot be loaded (ConnectionError: Couldn't reach" in second and "HF_HUB_OFFLINE" in second
