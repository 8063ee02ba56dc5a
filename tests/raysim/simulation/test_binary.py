"""A label of two classes with one logit: its metrics, its model, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, f1_score, log_loss, roc_auc_score

from partitioning import Population
from raysim import InputError, Run
from tests.kit.runs import quick_run

METRICS = ["accuracy", "loss", "f1", "auc", "average_precision", "brier", "ece"]


def table(classes: tuple[Any, ...] = ("sick", "well")) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5] + rng.normal(size=400) > 0.5).astype(int) + (rng.random(400) < 0.1) * (len(classes) - 2)
    return {**{f"x{place}": x[:, place] for place in range(3)}, "label": np.array(classes)[y]}


def experiment(data: Any, **tables: Any) -> dict[str, Any]:
    return {
        "rounds": 4,
        "data": {"dataset": data, "test": 0.3},
        "partition": {"scheme": "iid", "clients": 4, "local_test": 0.2},
        "model": {"name": "logistic"},
        "local": {"loss": "binary", "lr": 0.5},
        "evaluate": {"every": 0, "metrics": METRICS},
        **tables,
    }


def outputs_of(run: Run, data: dict[str, np.ndarray]) -> tuple[torch.Tensor, np.ndarray]:
    """Logits of the global test set, [n, 1], and whether its labels are the second class."""
    batch = Population.open(run.folder / "population").test_batch(0)
    x = torch.from_numpy(np.stack([batch[f"x{place}"].to_numpy() for place in range(3)], 1))
    with torch.no_grad():
        logits = run.model()(x)
    second = sorted(set(data["label"].tolist()))[1]
    return logits.double(), np.array([label == second for label in batch["label"].to_pylist()])


@pytest.mark.parametrize("classes", [("sick", "well"), (False, True)])
def test_one_logit_has_scikit_learns_metrics(tmp_path: Path, classes: tuple[Any, ...]) -> None:
    data = table(classes)
    run = quick_run(experiment(data), tmp_path / "run", inline=True)
    logits, y = outputs_of(run, data)
    assert logits.shape == (120, 1)
    share, found = logits.sigmoid().flatten().numpy(), run.results[0].metrics
    wanted = {
        "accuracy": accuracy_score(y, share > 0.5),
        "f1": f1_score(y, share > 0.5),
        "auc": roc_auc_score(y, share),
        "average_precision": average_precision_score(y, share),
        "brier": brier_score_loss(y, share),
        "loss": log_loss(y, share),
    }
    assert wanted["accuracy"] > 0.7
    assert {name: found[f"test_{name}"] for name in wanted} == pytest.approx(wanted, abs=1e-6)
    assert 0 <= found["test_ece"] < 0.5 and {f"local_{name}" for name in METRICS} <= set(found)


def test_the_usual_metrics_are_those_of_two_classes(tmp_path: Path) -> None:
    run = quick_run(experiment(table(), evaluate={"every": 0}), tmp_path / "run", inline=True)
    names = {name.removeprefix("test_") for name in run.results[0].metrics if name.startswith("test_")}
    assert names == {"accuracy", "loss", "auc", "f1"}


def test_each_algorithm_has_the_logits_of_its_loss(tmp_path: Path) -> None:
    given = experiment(table())
    del given["local"]
    given["algorithm"] = [
        {"name": "fedavg", "label": "one", "local": {"loss": "binary", "lr": 0.1}},
        {"name": "fedavg", "label": "two", "local": {"lr": 0.1}},
    ]
    run = quick_run(given, tmp_path / "run", inline=True)
    assert [run.model(name)(torch.zeros(1, 3)).shape[1] for name in ("one", "two")] == [1, 2]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'binary' with a label of 3 classes: must be a label of two classes"):
        quick_run(experiment(table(("a", "b", "c"))), tmp_path / "three", inline=True)
    numbers = table((0.0, 1.0))
    given = experiment({**numbers, "y": numbers["label"].astype(int)})
    given["data"] = {**given["data"], "label": ["y"]}
    with pytest.raises(InputError, match=r"'accuracy' with labels that are numbers: .*data\.label no brackets"):
        quick_run(given, tmp_path / "list", inline=True)
