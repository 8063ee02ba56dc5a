"""Searches on validation parts of the clients' own training parts, for methods with personal models."""

import json
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raysim
from partitioning import Population
from raysim.common.errors import InputError
from raysim.studies.course import StudyProgress
from raysim.studies.read import read_findings
from raysim.studies.search import searches_of
from tests.kit.studies import SMALL, quick_study, stamps


def personal_config() -> dict[str, Any]:
    """FedBN and Ditto, searched on their own clients' data."""
    config = {**deepcopy(SMALL), "partition": {"scheme": "iid", "clients": 4, "local_test": 0.25}}
    config["model"] = {"name": "mlp", "hidden": [4], "norm": "batch"}
    config["algorithm"] = [{"name": "fedbn"}, {"name": "ditto"}]
    grid = {"*": {"local.lr": [0.01, 0.3]}}
    config["study"] = {"seeds": [1], "metric": "local_accuracy", "tune": {"local_validation": 0.25}, "grid": grid}
    return config


@pytest.fixture
def personal() -> dict[str, Any]:
    return personal_config()


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> StudyProgress:
    return quick_study(personal_config(), tmp_path_factory.mktemp("searched") / "study", inline=True)


def test_personal_methods_are_searched_on_validation_parts_of_their_clients(
    personal: dict[str, Any], searched: StudyProgress
) -> None:
    done, folder = searched, searched.folder
    whole, part = sorted((folder / "populations").iterdir(), key=lambda path: len(path.name))
    before, after = Population.open(whole), Population.open(part)
    assert np.array_equal(after.sizes, before.sizes - before.test_sizes)
    assert np.array_equal(after.test_sizes, after.sizes // 4) and after.test_sizes.all()
    rows = done.trials.to_pylist()
    assert len(rows) == sum(done.planned.values()) == 6 and done.select_by == "local_validation_accuracy"
    for row in rows:
        config = tomllib.loads((folder / "trials" / row["trial"] / "config.toml").read_text())
        is_search = row["stage"] == "search"
        assert Path(config["data"]["population"]) == (part if is_search else whole).resolve()
        assert (row["local_validation_accuracy"] is None, row["local_accuracy"] is None) == (not is_search, is_search)
    for name in ("fedbn", "ditto"):
        tried = [row for row in rows if row["algorithm"] == name and row["stage"] == "search"]
        best = max(tried, key=lambda row: float(row["local_validation_accuracy"]))
        assert done.winners["digits", name] == json.loads(best["point"])
    there = stamps(folder)
    quick_study(personal, folder, inline=True)
    assert stamps(folder) == there


def test_a_search_shows_the_trials_that_it_compared(searched: StudyProgress) -> None:
    """The winner's trials of the table have the same seed, and do not measure what the search compares."""
    rows = [row for row in searched.trials.to_pylist() if row["stage"] == "search"]
    compared = {(row["algorithm"], row["point"]): row["local_validation_accuracy"] for row in rows}
    found = searches_of(read_findings(searched.folder))
    assert {(each.algorithm, point.text): point.mean for each in found for point in each.points} == compared
    assert [sum(point.is_chosen for point in each.points) for each in found] == [1, 1]


def test_the_search_does_not_see_the_test_parts_of_clients_made_earlier(
    personal: dict[str, Any], searched: StudyProgress, tmp_path: Path
) -> None:
    whole = min((searched.folder / "populations").iterdir(), key=lambda path: len(path.name))
    earlier = {key: value for key, value in personal.items() if key != "partition"}
    earlier["data"], earlier["algorithm"] = {"population": str(whole)}, {"name": "fedbn"}
    earlier["study"] = {**personal["study"], "datasets": {"digits": {}}}
    done = quick_study(earlier, tmp_path / "study", inline=True)
    key = ("algorithm", "point", "stage", "local_validation_accuracy", "local_accuracy")
    values = [{tuple(row[name] for name in key) for row in each.trials.to_pylist()} for each in (searched, done)]
    assert {row for row in values[0] if row[0] == "fedbn"} == values[1]


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"tune": {}}, "'validation_accuracy'.* or for methods with personal models study.tune.local_validation"),
        (
            {"tune": {}, "select_by": "local_accuracy"},
            r"test data must not decide; set study.tune.local_validation = 0.2",
        ),
        ({"select_by": "local_accuracy"}, 'which alone .*; set study.select_by = "local_validation_accuracy"'),
        ({"select_by": "validation_accuracy"}, 'which alone .*; set study.select_by = "local_validation_accuracy"'),
        ({"select_by": "local_validation_speed"}, "must be a column that is measured"),
        ({"metric": "local_validation_accuracy"}, r"study.metric = .* that is measured \(local_accuracy"),
        ({"tune": {"local_validation": 1e-9}}, "local_validation = 1e-09: must be .* largest one has 338; raise it"),
        ({"tune": {"local_validation": 1.0}}, "study.tune.local_validation = 1.0: should be less than 1"),
    ],
)
def test_what_test_data_would_decide_is_refused_with_the_way_out(
    study: dict[str, Any], message: str, personal: dict[str, Any], tmp_path: Path
) -> None:
    personal["study"] |= study
    with pytest.raises(InputError, match=message):
        raysim.study(personal, tmp_path / "study", inline=True)
