"""A table with categories, dates and missing values: its runs, and the file with the fitted values."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from partitioning.cli.make import make
from raysim import InputError
from raysim.config.experiment import Experiment
from tests.kit.runs import quick_run

COLUMNS = {"categories": ["pain"], "drop_first": True, "dates": ["admitted"], "impute": "median"}


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = 240
    frame = pd.DataFrame(
        {
            "age": rng.integers(30, 80, rows),
            "chol": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(220, 40, rows).round()),
            "pain": rng.choice(["typical", "atypical", "none", ""], rows),
            "admitted": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D"),
            "smoker": rng.choice([True, False], rows),
            "hospital": rng.choice(list("ABCDE"), rows),
        }
    )
    frame["outcome"] = (frame["age"] + rng.normal(0, 10, rows) > 55).astype(int)
    frame.to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "patients.csv"


def experiment(csv: Path, **data: Any) -> dict[str, Any]:
    return {
        "rounds": 3,
        "data": {
            "dataset": f"file:{csv}",
            "label": "outcome",
            "standardise": "global",
            "columns": COLUMNS,
            "test": 0.2,
            **data,
        },
        "partition": {"scheme": "natural", "column": "hospital", "test_clients": 1, "local_test": 0.2},
        "model": {"name": "logistic"},
        "local": {"loss": "binary", "lr": 0.1},
        "fleet": {"block": 1},
    }


@pytest.mark.parametrize("fit", ["global", "client"])
def test_a_real_table_is_learnt_and_its_fitted_values_are_written(csv: Path, tmp_path: Path, fit: str) -> None:
    given = experiment(csv, columns={**COLUMNS, "fit": fit}, standardise=fit)
    run = quick_run(given, tmp_path / "run", inline=True)
    assert run.results[0].metrics["local_accuracy"] > 0.8
    content = json.loads((run.folder / "columns.json").read_text())
    assert content["features"] == ["age", "chol", "pain_none", "pain_typical", "admitted", "smoker"]
    assert [each["name"] for each in content["columns"]] == ["age", "chol", "pain", "admitted", "smoker"]
    assert ("missing_by_client" in content["columns"][1]) == (fit == "client")
    assert next(iter(run.model().parameters())).shape == (1, 6)


def test_a_population_with_missing_values_is_encoded_by_each_run(csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    options = ["--scheme", "natural", "--column", "hospital", "--label", "outcome", "--local-test", "0.2"]
    done = CliRunner().invoke(make, [str(csv), "--out", str(out), *options, "--missing", "chol"])
    assert done.exit_code == 0, done.output
    given = experiment(csv)
    del given["partition"]
    for number, encode in enumerate(["onehot", "index"]):
        columns = {**COLUMNS, "encode": encode, "drop_first": False}
        run = quick_run(
            {**given, "data": {"population": str(out), "columns": columns}}, tmp_path / f"{number}", inline=True
        )
        assert next(iter(run.model().parameters())).shape == (1, 7 if encode == "onehot" else 5)
    with pytest.raises(InputError, match=r"'pain' is large_string|'pain' is string"):
        quick_run({**given, "data": {"population": str(out)}}, tmp_path / "plain", inline=True)


def test_a_second_table_is_encoded_by_the_training_rows(csv: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(csv, keep_default_na=False, na_values={"chol": [""]})
    frame.assign(pain="unseen").iloc[:30].to_csv(tmp_path / "test.csv", index=False)
    run = quick_run(experiment(csv, test=f"file:{tmp_path}/test.csv"), tmp_path / "run", inline=True)
    content = json.loads((run.folder / "columns.json").read_text())
    assert content["columns"][2]["categories"] == ["atypical", "none", "typical"]
    assert run.results[0].metrics["test_accuracy"] > 0.5


SIGNS = {"impute": "mean", "na_values": ["?"]}
CASES = {
    "whole numbers in the test file": ("0.5,p", "1,p", {}),
    "fractions in the test file": ("1,p", "0.5,p", {}),
    "digits alone as a category": ("1,p", "1,007", {}),
    "a sign of missing values in the test file": ("1,p", "?,p", SIGNS),
    "a sign of missing values in the training file": ("?,p", "1,p", SIGNS),
    "an empty column": ("1,p", ",p", {"impute": "mean"}),
}


@pytest.mark.parametrize(("train", "test", "rules"), CASES.values(), ids=CASES)
def test_a_test_table_has_the_types_of_the_training_table(
    train: str, test: str, rules: dict[str, Any], tmp_path: Path
) -> None:
    """They are given in files, in frames, and in one mapping with both frames."""
    texts = {"train": f"a,c,label\n{train},0\n2,007,1\n3,r,0\n4,p,1\n", "test": f"a,c,label\n{test},1\n{test},0\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text)
    files = [f"file:{tmp_path}/{name}.csv" for name in texts]
    frames = [pd.read_csv(tmp_path / f"{name}.csv", dtype={"c": str}) for name in texts]
    alone = {"dataset": files[0], "test": files[0]}
    pairs = [{"dataset": held[0], "test": held[1]} for held in (files, frames)]
    models = set()
    for place, data in enumerate((alone, *pairs, {"dataset": dict(zip(texts, frames, strict=True))})):
        given = {"data": {**data, "columns": {"categories": ["c"], **rules}}, "partition": {"clients": 2}}
        run = quick_run({**given, "rounds": 1, "model": {"name": "logistic"}}, tmp_path / f"run{place}", inline=True)
        assert run.results[0].metrics["test_loss"] < 100
        models.add((run.folder / "fedavg/model.safetensors").read_bytes())
    assert len(models) == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"categoris": ["pain"]}, "unknown key 'data.columns.categoris'.*did you mean 'data.columns.categories'"),
        ({"impute": "mode"}, "data.columns.impute"),
        ({"drop_first": True}, "drop_first = true without one-hot categories"),
        ({"categories": ["pain"], "encode": "index", "drop_first": True}, "drop_first = true without one-hot"),
        ({"encode": "index"}, "data.columns.encode = 'index' without data.columns.categories: must have some"),
        ({"categories": ["pain"], "fit": "client"}, 'data.columns.fit = "client" without a statistic'),
        ({"categories": ["pain", "pain"]}, "name each only once"),
    ],
)
def test_wrong_keys_are_refused(csv: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Experiment.of(experiment(csv, columns=columns))


def test_statistics_of_clients_are_not_private(csv: Path) -> None:
    given = {**experiment(csv, standardise="none"), "privacy": {"noise": 1.0, "clip": 1.0, "delta": 1e-3}}
    given["algorithm"] = {"name": "fedavg", "sampling": "poisson", "weighting": "equal", "fraction": 0.5}
    given["partition"] = {"scheme": "iid", "clients": 10}
    with pytest.raises(InputError, match=r"data.columns.impute = 'median' with \[privacy\]: must be a number"):
        Experiment.of(given)
    given["data"]["columns"] = {"categories": ["pain"]}
    assert Experiment.of(given).data.columns is not None


def test_text_and_columns_exclude_each_other(csv: Path) -> None:
    with pytest.raises(InputError, match=r"\[data.columns\] with \[data.text\]"):
        Experiment.of(experiment(csv, text={"column": "pain"}))
