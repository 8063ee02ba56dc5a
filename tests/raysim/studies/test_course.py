"""The course of a study, fed with records: who wins, what is handed on, and what runs when."""

import json
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import partitioning
from partitioning import Population
from raysim.config.experiment import Experiment
from raysim.data.sources import load
from raysim.store.resume import _sha256, settings
from raysim.studies.course import Course
from raysim.studies.file import Study
from raysim.studies.statistics import complete_mean
from raysim.studies.trial import Trial, TrialResult

Score = Callable[[Mapping[str, Any]], float | None]
"""The validation accuracy of a trial's point; None where it diverges."""


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    source = load("digits")
    return partitioning.make(source.train, tmp_path_factory.mktemp("course") / "p", scheme="iid", clients=6, folds=3)


@pytest.fixture
def variants(small: dict[str, Any]) -> dict[str, Any]:
    """RADFed and variants of it, that take what the others chose; the file names them before those."""
    small["algorithm"] = [
        {"name": "radfedp"},
        {"name": "radfedm"},
        {"name": "fedasync", "max_staleness": 2},
        {"name": "fedprox"},
        {"name": "radfed"},
    ]
    small["study"] = {
        "seeds": [1],
        "folds": 3,
        "grid": {
            "radfed": {"aggregate_every": [2, 3]},
            "fedprox": {"proximal": [0.1, 0.2]},
            "radfedp": {"local": {"lr": [0.1, 0.2]}},
        },
        "inherit": {
            "radfedp": {"aggregate_every": "radfed", "proximal": "fedprox"},
            "radfedm": {"server.alpha": "fedasync", "aggregate_every": "radfedp"},
        },
    }
    return small


def played(
    raw: Mapping[str, Any], population: Population, score: Score, column: str = "validation_accuracy"
) -> tuple[Course, list[Trial]]:
    """A course whose trials end at once, and these in their order."""
    study = Study.of(raw)
    course = Course(study, {(each.name, None): population for each in study.datasets}, [column])
    waiting, ran = course.begin(), []
    while waiting:
        trial = waiting.pop(0)
        ran.append(trial)
        value = score({"name": trial.algorithm, **json.loads(trial.point)})
        result = TrialResult("diverged") if value is None else TrialResult("done", metrics={column: value})
        waiting += course.end(trial, result)
    return course, ran


def test_variants_take_the_values_of_winners_and_search_the_rest(variants: Any, population: Population) -> None:
    best = {"aggregate_every": 3, "proximal": 0.1, "local.lr": 0.2}
    course, ran = played(
        variants, population, lambda point: sum(point.get(key) == value for key, value in best.items()) / 3
    )
    winners = {name: dict(point) for (_, name), point in course.progress(Path()).winners.items()}
    assert winners == {
        "radfed": {"aggregate_every": 3},
        "fedprox": {"proximal": 0.1},
        "fedasync": {},
        "radfedp": best,
        "radfedm": {"aggregate_every": 3, "server.alpha": 0.6},
    }
    order = [trial.algorithm for trial in ran]
    # Searches: 2 points x 3 folds; a winner's trials were run in it.
    assert {name: order.count(name) for name in order} == {
        "radfed": 6, "fedprox": 6, "fedasync": 3, "radfedp": 6, "radfedm": 3,
    }  # fmt: skip
    assert order.index("radfedp") > max(i for i, name in enumerate(order) if name in ("radfed", "fedprox"))
    assert len({trial.name for trial in ran}) == len(ran) == sum(course.progress(Path()).planned.values())
    table = course.progress(Path()).trials
    assert list(dict.fromkeys(table["algorithm"].to_pylist())) == [
        "radfedp",
        "radfedm",
        "fedasync",
        "fedprox",
        "radfed",
    ]
    assert table.filter(table["chosen"]).num_rows == 15
    inherited = [trial.experiment.algorithm[0] for trial in ran if trial.algorithm == "radfedp"]
    assert all((each.aggregate_every, each.proximal) == (3, 0.1) for each in inherited)


def test_equal_means_go_to_the_first_point(variants: Any, population: Population) -> None:
    course, _ = played(variants, population, lambda point: 0.5)
    assert course.progress(Path()).winners["digits", "radfed"] == {"aggregate_every": 2}


def test_the_table_compares_no_trial_with_all_finals(
    variants: Any, population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    course, _ = played(variants, population, lambda point: 0.5)
    monkeypatch.setattr(Trial, "__eq__", None)
    stages = course.progress(Path()).trials.filter(pc.field("algorithm") == "radfed")["stage"].to_pylist()
    assert set(stages) == {"search", "final"}


def test_of_losses_the_smaller_one_wins(variants: Any, population: Population) -> None:
    variants["study"]["select_by"] = "validation_loss"
    course, _ = played(variants, population, lambda point: 1 / point.get("aggregate_every", 1), "validation_loss")
    assert course.progress(Path()).winners["digits", "radfed"] == {"aggregate_every": 3}


def test_what_diverges_once_does_not_win_and_who_has_no_winner_hands_nothing_on(
    variants: Any, population: Population
) -> None:
    course, _ = played(variants, population, lambda point: None if point.get("aggregate_every") == 3 else 0.1)
    assert course.progress(Path()).winners["digits", "radfed"] == {"aggregate_every": 2}
    course, ran = played(variants, population, lambda point: None if point["name"] == "fedprox" else 0.1)
    assert set(course.progress(Path()).winners) == {("digits", "radfed"), ("digits", "fedasync")}
    reasons = {name: text.partition("because ")[2] for (_, name), text in course.lost().items()}
    source = "a source of its inherited values has no winner"
    assert reasons == {
        "fedprox": "no point has a finite validation_accuracy in all its trials",
        "radfedp": source,
        "radfedm": source,
    }
    assert len(ran) == sum(course.progress(Path()).planned.values())


def test_a_mean_needs_every_value() -> None:
    assert complete_mean([1.0, 2.0]) == 1.5
    assert complete_mean([1.0, None]) is complete_mean([1.0, float("nan")]) is complete_mean([]) is None


def test_validation_rotates_inside_each_test_fold(small: Any) -> None:
    small["study"] |= {"validation": "rotate", "tune": {"seeds": [7], "folds": [2]}}
    study = Study.of(small)
    assert {(s.fold, s.validation) for s in study.finals} == {(a, b) for a in range(3) for b in range(3) if a != b}
    assert len(study.finals) == 12 and {(s.seed, s.fold) for s in study.tuning} == {(7, 2)} and len(study.tuning) == 2


def test_a_trial_is_known_by_what_its_bytes_depend_on(small: Any, population: Population, tmp_path: Path) -> None:
    def names(raw: dict[str, Any]) -> list[str]:
        study = Study.of(raw)
        return [trial.name for trial in Course(study, {("digits", None): population}, []).begin()]

    there = names(small)
    assert len(set(there)) == len(there) == 8
    assert names({**small, "checkpoint": {"every": 5}, "study": {**small["study"], "metric": "x"}}) == there
    assert not set(names({**small, "rounds": 3})) & set(there)
    fewer = {**small, "study": {**small["study"], "grid": {"*": {"local.lr": [0.3]}}}}
    assert len(set(names(fewer)) & set(there)) == 4


def test_a_module_that_is_loaded_later_changes_no_trial(
    small: dict[str, Any], population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_of_course.py").write_text("def squared(outputs, y):\n    return (outputs.mean(1) - y) ** 2\n")
    (tmp_path / "late_of_course.py").write_text("")
    small["local"] |= {"loss": "own_of_course:squared"}
    study = Study.of(small, [tmp_path])
    course = Course(study, {("digits", None): population}, ["validation_accuracy"])
    ran = course.begin()
    monkeypatch.syspath_prepend(str(tmp_path))
    import_module("late_of_course")
    result = TrialResult("done", metrics={"validation_accuracy": 0.5})
    ran += [later for trial in ran[:] for later in course.end(trial, result)]
    assert len(ran) == 16 and len({(trial.algorithm, trial.point, trial.split) for trial in ran}) == 16


def test_weights_are_hashed_once_and_again_if_they_change(small: dict[str, Any], tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    small["model"] |= {"weights": str(weights)}
    found = []
    for content in (b"one", b"one", b"other"):
        weights.write_bytes(content)
        os.utime(weights, ns=(0, len(content)))
        experiment = Experiment.of({key: value for key, value in small.items() if key != "study"})
        found.append(settings(experiment, "fedavg")["model.weights"])
        hits = _sha256.cache_info().hits
    assert found[0] == found[1] != found[2] and hits >= 1


def test_every_seed_runs_on_every_draw_of_the_partition(small: dict[str, Any], population: Population) -> None:
    small["study"] = {
        "seeds": [1, 2],
        "partition_seeds": [7, 8],
        "folds": 3,
        "tune": {"seeds": [1], "partition_seeds": [8]},
        "grid": {"*": {"local.lr": [0.1, 0.2]}},
    }
    study = Study.of(small)
    assert len(study.finals) == 12 and len({split.unit for split in study.finals}) == 12
    assert {(split.seed, split.partition) for split in study.tuning} == {(1, 8)}
    course = Course(study, {("digits", seed): population for seed in (7, 8)}, [])
    assert {trial.split.partition for trial in course.begin()} == {8}
