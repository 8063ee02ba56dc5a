"""Runs with labels that are no classes, losses, metrics and client updates of the user's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file
from sklearn.metrics import f1_score, mean_absolute_error, mean_squared_error, r2_score
from torch import nn

import partitioning
import raysim
from partitioning import Population
from raysim.common.errors import InputError
from tests.kit.own_training import MINE
from tests.kit.runs import quick_run

ROWS = 400


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "own_training.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_training", None)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five features, two numbers to predict, two labels of 0 and 1, a region and a class."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 5)).astype(np.float32)
    y = x @ rng.normal(size=(5, 2)) + 0.1 * rng.normal(size=(ROWS, 2))
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    columns: dict[str, Any] = {f"x{place}": x[:, place] for place in range(5)}
    labels = {"a": y[:, 0], "b": y[:, 1], "up": y[:, 0] > 0.5, "down": (y[:, 1] < 0).astype(np.int64)}
    pq.write_table(pa.table({**columns, **labels, "region": rng.integers(0, 3, ROWS)}), path)
    return path


def experiment(path: Path, label: Any, **more: Any) -> dict[str, Any]:
    others = [name for name in ("a", "b", "up", "down", "region") if name not in (label, *np.atleast_1d(label))]
    without = [name for name in others if name != more.get("partition", {}).get("by")]
    return {
        "rounds": 2,
        "data": {"dataset": f"file:{path}", "label": label, "without": without, "test": 0.25},
        "partition": {"clients": 4},
        "model": {"name": "mlp", "hidden": [8]},
        **more,
    }


def outputs_of(run: raysim.Run) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of the written model on the global test set, and its labels."""
    entries = load_file(run.folder / "fedavg" / "model.safetensors")
    names = sorted(entries, key=lambda name: (name.partition(".")[0], name.endswith("bias")))
    batch = pa.Table.from_batches([Population.open(run.folder / "population").test_batch(0)])
    label = Population.open(run.folder / "population").manifest.label
    x = np.stack([batch[f"x{place}"].to_numpy() for place in range(5)], 1).astype(np.float32)
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, len(entries[names[-1]])))
    with torch.no_grad():
        for parameter, name in zip(module.parameters(), names, strict=True):
            parameter.copy_(torch.from_numpy(entries[name]))
        return module(torch.from_numpy(x)).numpy(), np.array(batch[label].to_pylist()).reshape(len(x), -1)


def test_numbers_are_learnt_and_scored_as_scikit_learn_does(table: Path) -> None:
    given = experiment(
        table,
        ["a", "b"],
        local={"loss": "mse", "lr": 0.1},
        partition={"clients": 4, "scheme": "dirichlet", "by": "region"},
    )
    run = quick_run(given, "run", inline=True)
    outputs, y = outputs_of(run)
    found = run.results[0].metrics
    assert found["test_mse"] == pytest.approx(mean_squared_error(y, outputs), rel=1e-5)
    assert found["test_mae"] == pytest.approx(mean_absolute_error(y, outputs), rel=1e-5)
    assert found["test_r2"] == pytest.approx(r2_score(y, outputs), rel=1e-5)
    assert found["test_loss"] == pytest.approx(found["test_mse"], rel=1e-9)
    population = Population.open(run.folder / "population")
    manifest = population.manifest
    assert (manifest.label, manifest.by, manifest.classes, manifest.dividing) == (
        "a, b",
        "region",
        [0, 1, 2],
        ["region"],
    )
    partitioning.verify(run.folder / "population")


def test_several_labels_a_sample(table: Path) -> None:
    given = experiment(table, ["up", "down"], local={"loss": "binary", "lr": 0.5, "epochs": 3})
    given["evaluate"] = {"metrics": ["loss", "multilabel_f1"]}
    run = quick_run(given, "run", inline=True)
    outputs, y = outputs_of(run)
    assert run.results[0].metrics["test_multilabel_f1"] == pytest.approx(f1_score(y, outputs > 0, average="macro"))


def test_one_column_of_floats(table: Path) -> None:
    given = experiment(table, "a", local={"loss": "huber", "delta": 0.5, "optimizer": "adamw", "lr": 0.01})
    run = quick_run(given, "run", inline=True)
    outputs, y = outputs_of(run)
    assert run.results[0].metrics["test_mse"] == pytest.approx(mean_squared_error(y, outputs), rel=1e-5)


def test_own_loss_and_metrics(table: Path) -> None:
    given = experiment(table, ["a", "b"], local={"loss": "own_training:loss", "lr": 0.1}, rounds=1)
    given["evaluate"] = {"metrics": ["loss", "own_training:worst", "own_training:Variance"]}
    run = quick_run(given, "run", inline=True)
    outputs, y = outputs_of(run)
    found = run.results[0].metrics
    assert found["test_worst"] == pytest.approx(np.abs(outputs - y).max(1).mean(), rel=1e-5)
    assert found["test_loss"] == pytest.approx(np.abs(outputs - y).mean(), rel=1e-5)
    assert found["test_Variance"] == pytest.approx(outputs[:, 0].var(), rel=1e-4)


def test_a_module_is_a_loss(table: Path) -> None:
    runs = [
        quick_run(experiment(table, "a", local={"loss": loss, "execution": "sequential"}, rounds=1), name, inline=True)
        for loss, name in (("own_training:Lossy", "own"), ("mse", "built"))
    ]
    own, built = (load_file(run.folder / "fedavg" / "model.safetensors") for run in runs)
    assert all(np.array_equal(own[name], built[name]) for name in own)


def test_a_class_for_each_position(here: Path) -> None:
    """The next symbol after each symbol s is (s + 1) mod 7; the first position has none."""
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 7, (200, 1)) + np.arange(6)) % 7
    y = (x + 1) % 7
    y[:, 0] = -100
    lists = pa.list_(pa.int64(), 6)
    pq.write_table(pa.table({"x": pa.array(x.tolist(), lists), "label": pa.array(y.tolist(), lists)}), "text.parquet")
    given = {
        "rounds": 2,
        "data": {"dataset": "file:text.parquet", "test": 0.2},
        "partition": {"clients": 2},
        "model": {"name": "own_training:Positions"},
        "local": {"lr": 5.0, "epochs": 5},
        "evaluate": {"metrics": ["accuracy", "perplexity", "loss"]},
    }
    found = quick_run(given, "run", inline=True).results[0].metrics
    assert found["test_accuracy"] == 1
    assert found["test_perplexity"] == pytest.approx(np.exp(found["test_loss"]))


def test_a_plain_function_equals_the_built_in_update(table: Path) -> None:
    local = {"lr": 0.1, "loss": "mse", "batch_size": 32, "execution": "sequential"}
    given = [experiment(table, ["a", "b"], local=each) for each in (local, {**local, "update": "own_training:train"})]
    for each in given:
        each["algorithm"] = [{"name": "fedavg"}, {"name": "radfed"}]
    built, own = (quick_run(each, f"run{place}", inline=True) for place, each in enumerate(given))
    for name in ("fedavg", "radfed"):
        one, other = (load_file(run.folder / name / "model.safetensors") for run in (built, own))
        for key in one:
            np.testing.assert_allclose(one[key], other[key], rtol=2e-5, atol=1e-6)


def test_personal_tensors_and_numbers_of_an_own_update(table: Path) -> None:
    given = experiment(table, ["a", "b"], local={"loss": "mse"}, rounds=3)
    own = {"local": {"update": "own_training:Counting"}, "server": {"rule": "own_training:Halve"}}
    given["algorithm"] = [{"name": "own_training:weighted", "fraction": 0.5, **own}, {"name": "fedavg"}]
    run = quick_run(given, "run", inline=True)
    folder, frame = run.folder / "weighted", run.updates()
    personal, updates = load_file(folder / "personal.safetensors"), pq.read_table(folder / "updates.parquet")
    visits = np.bincount(updates["client"].to_numpy(), minlength=4)
    kept = personal["personal/visits"].ravel().tolist()
    assert sorted(kept) == sorted(visits[visits > 0].tolist())
    reported = [dict(each) for each in updates["reported"].to_pylist()]
    assert updates["weight"].to_pylist() == [each["visits"] for each in reported]
    assert {each["first"] for each in reported if each["visits"] == 1} == {21.0}
    assert "reported" not in frame
    own, built_in = (frame[frame.algorithm == name] for name in ("weighted", "fedavg"))
    assert own["reported.visits"].tolist() == [each["visits"] for each in reported]
    assert len(built_in) and built_in["reported.visits"].isna().all()
    assert not any(name.startswith("personal/") for name in load_file(folder / "model.safetensors"))


@pytest.mark.parametrize(
    ("label", "more", "message"),
    [
        ("a", {}, "local.loss = 'cross-entropy': must be for labels that are classes"),
        ("region", {"local": {"loss": "mse"}}, r"labels that are numbers, and these are not; list the column"),
        (
            "a",
            {"local": {"loss": "mse"}, "evaluate": {"metrics": ["accuracy"]}},
            "'accuracy' with labels that are numbers",
        ),
        ("region", {"evaluate": {"metrics": ["mse"]}}, "'mse' with labels that are classes"),
        (
            "a",
            {"local": {"loss": "mse"}, "partition": {"scheme": "dirichlet"}},
            "holds numbers: name a column of classes",
        ),
        ("region", {"partition": {"by": "up"}}, "by = 'up' with classes in the label column"),
        ("a", {"local": {"loss": "mse"}, "partition": {"by": "nowhere"}}, "unknown column partition.by = 'nowhere'"),
        (["a", "nowhere"], {"local": {"loss": "mse"}}, "label column 'nowhere' of data.label"),
        ("a", {"local": {"loss": "own_training:matrix"}}, "must give a loss for each sample"),
        ("a", {"local": {"loss": "own_training:raises"}}, "'own_training:raises': must take a batch.* raised KeyError"),
        (
            "region",
            {"local": {"loss": "own_training:weighing"}},
            r"'own_training:weighing': must take outputs of float64, .* raised RuntimeError: expected .* Double .*; "
            r"convert its other tensors to the type of the outputs, as W.to\(outputs\)$",
        ),
        ("a", {"local": {"loss": "huberr"}}, "local.loss = 'huberr'.*did you mean 'huber'"),
        ("a", {"local": {"loss": "mse", "delta": 1.0}}, "'local.delta' of loss mse"),
        ("a", {"local": {"loss": "mse", "update": "train"}}, "local.update = 'train': must be module:function"),
        ("a", {"local": {"loss": "mse", "update": "own_training:few"}}, r"must take \(model, batches, context\)"),
        (
            "a",
            {"local": {"loss": "mse", "update": "own_training:silent"}},
            "return numbers by name with the training loss",
        ),
        ("a", {"local": {"loss": "mse", "update": "own_training:taken"}}, "returns 'samples', which every report has"),
        (
            "a",
            {"local": {"loss": "mse", "update": "own_training:measured"}},
            "returns 'change', which every report has",
        ),
        ("a", {"local": {"loss": "mse", "update": "own_training:Rounding"}}, "of torch.int64, and left"),
        ("a", {"local": {"loss": "own_training:flat"}}, "it has no gradient by the outputs"),
        ("a", {"local": {"loss": "binary"}}, r"label column 'a' has -?[\d.]+: must be from 0 to 1"),
        ("a", {"local": {"loss": "mse", "update": "own_training:Leaving"}}, "'other' is another or missing"),
        (
            "a",
            {"local": {"loss": "mse", "update": "own_training:train", "momentum": 0.9}},
            "local.momentum = 0.9: must be left",
        ),
        (
            "a",
            {"local": {"loss": "mse", "update": "own_training:train"}, "algorithm": {"name": "scaffold"}},
            "must be left out with scaffold",
        ),
        (
            "a",
            {
                "local": {"loss": "mse", "update": "own_training:Counting"},
                "algorithm": {"name": "fedasync", "proximal": 0.0},
            },
            "state of local.update with asynchronous arrivals",
        ),
        (
            "a",
            {"local": {"loss": "mse", "update": "own_training:train"}, "algorithm": {"name": "own_training:weighted"}},
            "needs 'visits' of each client update",
        ),
    ],
)
def test_wrong_training_is_refused_in_one_line(table: Path, label: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        raysim.run(experiment(table, label, **more), "run", inline=True)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("drawn")
def test_reports_show_metrics_of_numbers_and_own_ones(table: Path) -> None:
    given = experiment(table, ["a", "b"], local={"loss": "mse", "lr": 0.1})
    given["evaluate"] = {"every": 1, "metrics": ["r2", "own_training:worst"], "clients": False}
    page = raysim.run(given, "run", inline=True).report.read_text()
    for text in ("R²", "worst", "evaluation-worst", "a metric of your own"):
        assert text in page
    assert "Multi-label F1" not in page


def test_an_own_update_leaves_no_trace_on_the_next(table: Path) -> None:
    quick_run(experiment(table, "a", local={"loss": "mse", "update": "own_training:Freezing"}), "run", inline=True)


def test_a_scale_without_a_dimension_has_its_own_state(table: Path) -> None:
    local = {"loss": "mse", "lr": 0.1, "optimizer": "adamw", "epochs": 4, "batch_size": 32}
    given = experiment(table, ["a", "b"], local=local, model={"name": "own_training:Scaled"}, rounds=5)
    executions = ("sequential", "vectorised")
    given["algorithm"] = [{"name": "fedavg", "local": {"execution": execution}} for execution in executions]
    assert all(each.metrics["test_r2"] > 0.9 for each in quick_run(given, "run", inline=True).results)


def test_an_own_loss_of_sequences_is_a_mean_over_samples_in_evaluation(here: Path) -> None:
    rng = np.random.default_rng(0)
    lists = pa.list_(pa.int64(), 6)
    symbols = pa.array(rng.integers(0, 7, (80, 6)).tolist(), lists)
    pq.write_table(pa.table({"x": symbols, "label": symbols}), "text.parquet")
    given = {
        "rounds": 1,
        "data": {"dataset": "file:text.parquet", "test": 0.5},
        "partition": {"clients": 2},
        "model": {"name": "own_training:Positions"},
        "local": {"loss": "own_training:positions"},
        "evaluate": {"metrics": ["loss"]},
    }
    own = quick_run(given, "own", inline=True).results[0].metrics
    built = quick_run({**given, "local": {}}, "built", inline=True).results[0].metrics
    assert own["test_loss"] == pytest.approx(built["test_loss"], rel=1e-5)


def test_functions_and_classes_may_be_given_as_they_are(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    own = importlib.import_module("own_training")
    given = experiment(table, ["a", "b"], local={"loss": own.loss, "update": own.train}, rounds=1)
    given["evaluate"] = {"metrics": [own.worst], "clients": False}
    runs = [raysim.run(given, inline=True) for _ in range(2)]  # perhaps in the same second
    assert runs[0].folder != runs[1].folder and runs[0].results[0].metrics == runs[1].results[0].metrics
    held = nn.MSELoss(reduction="none")
    vars(held)["lock"] = Lock()  # so that no copy can be made
    with pytest.raises(InputError, match=r"local\.loss = an object of MSELoss: must be a function or a class"):
        raysim.run(experiment(table, "a", local={"loss": held}), inline=True)
