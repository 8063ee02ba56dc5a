"""What goes with a job: what the experiment needs, and nothing large."""

import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import partitioning
from raysim.cluster import submitting
from raysim.cluster.submitting import checked_folder, staged
from raysim.common.errors import InputError
from raysim.config.read import read
from raysim.simulation.api import read_experiment
from raysim.store.config_file import paths_of, restore_paths, write_config
from tests.kit.tokenizers import write_tokenizer


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def write(file: Path, **tables: object) -> str:
    file.write_text(tomli_w.dumps({"data": {"dataset": "digits"}, "model": {"hidden": [8]}, **tables}))
    return str(file)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_recipe_goes_by_its_name(folder: Path) -> None:
    with staged("quickstart", read_experiment("quickstart")) as (sent, name, changes):
        assert (name, changes, files(sent)) == ("quickstart", (), set())


def test_one_s_own_code_stands_beside_the_file_and_nothing_else_does(folder: Path) -> None:
    (folder / "other.txt").write_text("not sent")
    (folder / "sent_package" / "__pycache__").mkdir(parents=True)
    (folder / "sent_package" / "__init__.py").write_text("from sent_beside import flat\n")
    (folder / "sent_package" / "__pycache__" / "x.pyc").write_text("not sent")
    (folder / "sent_beside.py").write_text("from algorithms.fedavg import fedavg as flat\n")
    file = write(folder / "exp.toml", algorithm={"name": "sent_package:flat"})
    try:
        with staged(file, read_experiment(file)) as (sent, name, changes):
            assert name == "exp.toml" and changes == ()
            assert files(sent) == {"exp.toml", "sent_package/__init__.py", "sent_beside.py"}
        assert not sent.exists()
    finally:
        for name in ("sent_package", "sent_beside"):
            sys.modules.pop(name, None)


def test_small_data_goes_and_the_file_finds_it_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from raysim.data.export import export

    (folder.parent / "elsewhere").mkdir()
    export("digits", folder.parent / "elsewhere" / "digits.parquet")
    (folder / "near").mkdir()
    export("digits", folder / "near" / "test.parquet")
    away = folder.parent / "elsewhere" / "digits.parquet"
    file = write(folder / "exp.toml", data={"dataset": f"file:{away}", "test": "file:near/test.parquet"})
    with staged(file, read_experiment(file)) as (sent, name, changes):
        assert files(sent) == {"exp.toml", "dataset/digits.parquet", "test/test.parquet"}
        monkeypatch.chdir(sent)
        there = read_experiment(name, changes).data
        assert there.dataset == "file:dataset/digits.parquet" and there.root == str(sent.resolve())
        assert there.test == f"file:{sent.resolve() / 'test' / 'test.parquet'}"


@pytest.mark.parametrize("form", ["folder", "file"])
def test_a_tokenizer_and_a_trained_model_go(form: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = write_tokenizer(folder.parent / "words")
    tokenizer = words if form == "folder" else words / "tokenizer.json"
    (folder / "trained").mkdir()
    (folder / "trained" / "config.json").write_text("{}")
    text = {"tokenizer": str(tokenizer), "column": "text"}
    data = {"dataset": "file:/mnt/shared/texts.parquet", "text": text}
    model = {"name": "transformer", "pretrained": "trained"}
    file = write(folder / "exp.toml", data=data, model=model)
    with staged(file, read_experiment(file)) as (sent, name, changes):
        assert paths_of(read_experiment(file).to_toml())["model.pretrained"] == str(folder / "trained")
        there = sent / ("tokenizer" if form == "folder" else "tokenizer.json")
        assert files(sent / "pretrained") == {"config.json"}
        assert files(there) == files(words) if form == "folder" else there.read_bytes() == tokenizer.read_bytes()
        monkeypatch.chdir(sent)
        read_there = read_experiment(name, changes)
        assert read_there.data.text is not None and Path(read_there.data.text.tokenizer) == there.resolve()
        assert read_there.model.pretrained == str(sent.resolve() / "pretrained")  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_label_first", [False, True])
def test_a_file_of_edges_goes_and_comes_back_with_its_path_here(
    is_label_first: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("near", "far"):
        (folder / f"{name}.csv").write_text("from,to\n0,1\n")
    algorithms = [{"name": "dpsgd"}, {"name": "dpsgd", "label": "far", "topology": {"graph": "file:far.csv"}}]
    algorithms = algorithms[::-1] if is_label_first else algorithms
    file = write(folder / "exp.toml", topology={"graph": "file:near.csv"}, algorithm=algorithms)
    here = read_experiment(file)
    with staged(file, here) as (sent, name, changes):
        assert files(sent) == {"exp.toml", "topology/dpsgd/near.csv", "topology/far/far.csv"}
        monkeypatch.chdir(sent)
        there = read_experiment(name, changes)
    graphs = {None: "dpsgd/near.csv", "far": "far/far.csv"}
    graphs = {label: f"file:{sent.resolve()}/topology/{each}" for label, each in graphs.items()}
    assert {table.label: table.topology and table.topology.graph for table in there.algorithm} == graphs
    write_config(folder / "config.toml", there.to_toml())
    restore_paths(folder / "config.toml", there.to_toml(), paths_of(here.to_toml()))
    assert (
        read(folder / "config.toml")["algorithm"][not is_label_first]["topology"]["graph"]
        == f"file:{folder / 'far.csv'}"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"topology": {"graph": "file:far.csv"}},
        {"topology": {"graph": "ring"}},
        {"topology": {"graph": "ring"}, "label": "ring"},
        {"label": "default"},
        {},
    ],
)
def test_two_graphs_under_one_name_are_refused_if_one_is_a_file(other: dict[str, Any], folder: Path) -> None:
    for name in ("near", "far"):
        (folder / f"{name}.csv").write_text("from,to\n0,1\n")
    algorithms = [{"name": "dpsgd", "topology": {"graph": "file:near.csv"}}, {"name": "dpsgd", **other}]
    file = write(folder / "exp.toml", algorithm=algorithms)
    message = r"graph = 'file:.*near.csv': must be the same for all algorithms called dpsgd in a job; set another"
    with pytest.raises(InputError, match=message):
        staged(file, read_experiment(file)).__enter__()


def test_a_second_trained_model_is_refused(folder: Path) -> None:
    for name in ("trained", "other"):
        (folder / name).mkdir()
    model = {"name": "transformer", "pretrained": "trained"}
    algorithms = [{"name": "fedavg"}, {"name": "fedprox", "model": {**model, "pretrained": "other"}}]
    data = {"dataset": "file:/mnt/shared/texts.parquet", "text": {"column": "text"}}
    file = write(folder / "exp.toml", data=data, model=model, algorithm=algorithms)
    with pytest.raises(InputError, match=r"algorithm.model.pretrained = .*other': must be left out of a job"):
        staged(file, read_experiment(file)).__enter__()


def test_a_population_goes_if_it_is_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"x": list(range(40)), "label": [0, 1] * 20}
    import pyarrow as pa

    partitioning.make(pa.table(labels), folder / "made", scheme="iid", clients=4, seed=0, label="label")
    file = write(folder / "exp.toml", data={"population": "made"})
    with staged(file, read_experiment(file)) as (sent, _, changes):
        assert changes == ("data.population=./population",)
        assert files(sent / "population") == files(folder / "made")
    monkeypatch.setattr(submitting, "MAX_DATA", 1000)
    with pytest.raises(InputError, match=r"data.population = .*made' has 0.0 MiB: must be at most 0.0 MiB"):
        staged(file, read_experiment(file)).__enter__()


def test_what_is_not_here_is_the_cluster_s_where_the_path_is_checked_folder(folder: Path) -> None:
    file = write(folder / "exp.toml", data={"dataset": "file:/mnt/shared/table.parquet"})
    with staged(file, read_experiment(file)) as (sent, name, changes):
        assert changes == () and read(sent / name)["data"]["dataset"].endswith("/table.parquet")
    file = write(folder / "exp.toml", data={"dataset": "file:table.parquet"})
    with pytest.raises(InputError, match=r"data.dataset = 'file:table.parquet': .* must exist here to be sent"):
        staged(file, read_experiment(file)).__enter__()


def test_a_folder_over_rays_limit_names_what_is_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "study").mkdir()
    file = write(folder / "study" / "exp.toml")
    assert checked_folder(folder, file)[1] == "study/exp.toml"
    for name, size in (("models", 60), ("tables", 50)):
        (folder / name).mkdir()
        with (folder / name / "x").open("wb") as sparse:
            sparse.truncate(size * 2**20)
    said = r"must be below Ray's limit of 100.0 MiB.*largest entries are models \(60.0 MiB\), tables \(50.0 MiB\)"
    for config in (file, "quickstart"):
        with pytest.raises(InputError, match=said):
            checked_folder(folder, config)
    (folder / ".rayignore").write_text("models\n/tables/x\n")
    assert checked_folder(folder, file)[0] == folder


def test_the_file_must_be_in_the_folder_that_is_sent(folder: Path) -> None:
    file = write(folder / "exp.toml")
    (folder / "other").mkdir()
    with pytest.raises(InputError, match=r"must be in --working-dir = .*other'"):
        checked_folder(folder / "other", file)
    with pytest.raises(InputError, match="must be a folder that exists"):
        checked_folder(folder / "nosuch", file)


def test_code_goes_if_it_is_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "large_package").mkdir()
    (folder / "large_package" / "__init__.py").write_text("from algorithms.fedavg import fedavg as flat\n")
    (folder / "large_package" / "data.bin").write_bytes(bytes(2000))
    file = write(folder / "exp.toml", algorithm={"name": "large_package:flat"})
    monkeypatch.setattr(submitting, "MAX_DATA", 1000)
    try:
        with pytest.raises(InputError, match=r"large_package at '.*' has 0.0 MiB: must be at most 0.0 MiB .* move"):
            staged(file, read_experiment(file)).__enter__()
    finally:
        sys.modules.pop("large_package", None)
