"""What a run's bytes depend on does not change with the place of the files that it was begun with."""

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from raysim.common.errors import InputError
from raysim.simulation.api import read_experiment
from raysim.store.resume import settings
from raysim.store.sources import OwnSources

MODULE = "from algorithms.fedavg import fedavg as flat\n"


def placed(folder: Path, module: str = MODULE, weight: float = 0.0) -> dict[str, str]:
    """The settings of an experiment whose files are there."""
    folder.mkdir()
    (folder / "moved.py").write_text(module)
    save_file({"x": np.full(3, weight)}, folder / "w.safetensors")
    file = folder / "exp.toml"
    file.write_text('[data]\ndataset = "digits"\n[model]\nhidden = [8]\n[algorithm]\nname = "moved:flat"\n')
    try:
        experiment = read_experiment(file, [f"model.weights={folder / 'w.safetensors'}"])
        return {**settings(experiment, "flat"), **OwnSources.of(experiment).files}
    finally:
        sys.modules.pop("moved")


def test_files_may_move_and_not_change(tmp_path: Path) -> None:
    first = placed(tmp_path / "one")
    assert "moved.py" in first and placed(tmp_path / "two") == first
    assert placed(tmp_path / "three", MODULE + "# changed\n") != first
    assert placed(tmp_path / "four", weight=1.0) != first


@pytest.mark.parametrize(
    ("changed", "tables"),
    [
        (
            "edges.csv",
            '[data]\ndataset = "digits"\n[algorithm]\nname = "dpsgd"\n'
            '[algorithm.topology]\ngraph = "file:{}/edges.csv"\n',
        ),
        (
            "trained/config.json",
            '[data]\ndataset = "file:/mnt/texts.parquet"\ntext = {{ column = "text" }}\n'
            '[model]\nname = "transformer"\npretrained = "{}/trained"\n',
        ),
    ],
)
def test_a_file_of_edges_and_a_trained_model_may_move_and_not_change(changed: str, tables: str, tmp_path: Path) -> None:
    found = []
    for name, text in (("one", ""), ("two", ""), ("three", "\n")):
        folder = tmp_path / name
        (folder / "trained").mkdir(parents=True)
        (folder / "trained" / "config.json").write_text("{}")
        (folder / "edges.csv").write_text("from,to\n0,1\n")
        with (folder / changed).open("a") as file:
            file.write(text)
        (folder / "exp.toml").write_text(tables.format(folder))
        experiment = read_experiment(folder / "exp.toml")
        found.append(settings(experiment, experiment.names[0]))
    assert found[0] == found[1] != found[2]


def test_missing_weights_are_refused_in_one_line(tmp_path: Path) -> None:
    experiment = read_experiment("quickstart", [f"model.weights={tmp_path / 'w.safetensors'}"])
    with pytest.raises(InputError, match=r"^model.weights = '.*w.safetensors': must be a readable file \(No such file"):
        settings(experiment, experiment.names[0])


@pytest.mark.parametrize("package", [False, True])
def test_files_are_named_by_their_places_beside_each_other(tmp_path: Path, package: bool) -> None:
    home = tmp_path / "moved" if package else tmp_path
    home.mkdir(exist_ok=True)
    (home / ("__init__.py" if package else "moved.py")).write_text(MODULE)
    file = tmp_path / "exp.toml"
    file.write_text('[data]\ndataset = "digits"\n[model]\nhidden = [8]\n[algorithm]\nname = "moved:flat"\n')
    try:
        assert ("moved/__init__.py" if package else "moved.py") in OwnSources.of(read_experiment(file)).files
    finally:
        sys.modules.pop("moved")
