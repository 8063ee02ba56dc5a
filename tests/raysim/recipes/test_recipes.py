"""The recipes: each resolves into an experiment, and its header says what a reader must know."""

from pathlib import Path

import pytest

from algorithms import Rounds
from raysim.config.experiment import Experiment
from raysim.config.read import read, recipes
from raysim.studies.file import Study, read_study

STUDIES = [name for name in recipes() if "study" in read(name)]


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_resolves_and_is_read_back(name: str) -> None:
    study = Study.of(read_study(name))
    assert Study.of(study.to_toml()).to_toml() == study.to_toml()


@pytest.mark.parametrize("name", [name for name in recipes() if name not in STUDIES])
def test_it_resolves_and_is_read_back(name: str) -> None:
    experiment = Experiment.of(read(name))
    assert Experiment.of(experiment.to_toml()) == experiment
    schedules = [table.compose().schedule for table in experiment.algorithm]
    assert all(isinstance(each, Rounds) for each in schedules) or not {"dl", "bn"} & set(experiment.evaluate.measures)


@pytest.mark.parametrize(("name", "path"), recipes().items())
def test_its_header_says_what_was_measured(name: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    header = " ".join(line.lstrip("# ") for line in text.split("\n\n")[0].splitlines())
    assert header.endswith(".") and header.partition(".")[0] and "MEASURED" not in header
    assert ("Not run here." in header) != ("Time: " in header)


def test_every_paper_has_a_small_recipe_and_its_own() -> None:
    assert {"fedbn-small", "fedbs-small", "fedmmb-small", "fixbn-small", "radfed-small"} <= recipes().keys()
    assert {"fedbn-digits", "fedbs-mnist", "fedmmb-mnist", "fixbn-cifar10", "radfed-mnist"} <= recipes().keys()


def test_a_folder_does_not_hide_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quickstart").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read("quickstart")["rounds"] > 0
