"""Best values, targets, the choice of a round and patience: first in exact numbers, then in runs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import raysim
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.measures.selection import EvaluationHistory, Selection, is_better, reaches
from tests.kit.runs import quick_run

CURVE = [
    (2, {"test_accuracy": 0.5, "test_loss": 2.0}),
    (4, {"test_accuracy": 0.75, "test_loss": math.nan}),
    (6, {"test_accuracy": 0.75, "test_loss": 1.0, "test_auc": 0.25}),
    (8, {"test_accuracy": 0.625, "test_loss": 1.5}),
]
TARGETS = {"test_accuracy": 0.625, "test_loss": 1.0, "test_auc": 0.5}


def history(evaluations: int) -> EvaluationHistory:
    found = EvaluationHistory()
    for number, metrics in CURVE[:evaluations]:
        found = found.after(number, metrics, TARGETS)
    return found


def test_the_best_is_the_first_of_its_value_and_of_a_loss_the_lowest() -> None:
    assert history(4).best == {"test_accuracy": 0.75, "test_loss": 1.0, "test_auc": 0.25}
    assert history(4).best_round == {"test_accuracy": 4, "test_loss": 6, "test_auc": 6}
    assert history(2).best == {"test_accuracy": 0.75, "test_loss": 2.0}
    assert history(2).best_round == {"test_accuracy": 4, "test_loss": 2}
    assert is_better("local_mean_loss", 1, than=2) and not is_better("local_mean_loss", 2, than=2)
    assert is_better("miou", 2, than=1) and not is_better("miou", 1, than=1)


def test_a_target_is_reached_at_it_or_beyond_it_once() -> None:
    assert history(4).reached == {"test_accuracy": 4, "test_loss": 6}
    assert reaches("a_loss", 0.5, 1) and reaches("a_loss", 1, 1) and not reaches("a_loss", 1.5, 1)
    assert not any(reaches("a_loss", value, 1) for value in (None, math.nan, -math.inf))


def test_patience_counts_evaluations_since_the_best() -> None:
    waited = [history(count).waited("test_accuracy") for count in range(5)]
    assert waited == [0, 0, 0, 1, 2]
    assert [history(count).waited("never_measured") for count in range(5)] == [0, 1, 2, 3, 4]
    stops = [Selection(by="test_accuracy", patience=2).stops(history(count)) for count in range(5)]
    assert stops == [False, False, False, False, True]
    assert not Selection(by="test_accuracy").stops(history(4))


def test_a_run_ends_when_all_its_targets_are_reached() -> None:
    both = {column: TARGETS[column] for column in ("test_accuracy", "test_loss")}
    stops = [Selection(targets=both, until_target=True).stops(history(count)) for count in range(5)]
    assert stops == [False, False, False, True, True]
    assert not Selection(targets=both).stops(history(4)) and not Selection(targets=TARGETS, until_target=True).stops(
        history(4)
    )


@pytest.mark.parametrize(
    ("values", "patience", "target", "message"),
    [
        # It improves, or reaches its target, in the rounds after the decision, which are evaluated, too.
        ([0.5, 0.25, 0.25, 0.75], 1, None, "validation_accuracy did not improve in 1 evaluations up to round 2; the "),
        ([0.5, 0.25, 0.25, 0.75], 1, 1.0, "validation_accuracy did not improve in 1 evaluations up to round 2; the "),
        ([0.5, 0.25, 0.75, 0.25], 1, 0.75, "validation_accuracy did not improve in 1 evaluations up to round 2; the "),
        ([0.5, 0.75, 0.25, 0.25], 2, 0.75, "the targets were reached, validation_accuracy in round 2"),
        ([math.nan] * 4, 2, None, "validation_accuracy did not improve in 2 evaluations up to round 2"),
    ],
)
def test_an_early_stop_names_the_rule_that_decided_it(
    values: list[float], patience: int, target: float | None, message: str
) -> None:
    targets = {} if target is None else {"validation_accuracy": target}
    selection = Selection(patience=patience, targets=targets, until_target=bool(targets))
    found, decided = EvaluationHistory(), []
    for number, value in enumerate(values, 1):
        found = found.after(number, {"validation_accuracy": value}, targets)
        decided.append(selection.stops(found))
    assert decided.index(True) == 1
    [notice] = selection.notices(found, 4, stopped_early=True)
    assert notice.startswith(f"stopped after round 4: {message}")


def test_the_round_whose_model_is_written() -> None:
    numbers = [number for number, _ in CURVE]
    takes = [Selection(True, "test_accuracy").takes(history(i + 1), number) for i, number in enumerate(numbers)]
    assert takes == [True, True, False, False]
    assert all(Selection(False, "test_accuracy").takes(history(i + 1), n) for i, n in enumerate(numbers))
    # As long as the column has no value the latest is written.
    undefined = [Selection(True, "test_auc").takes(history(i + 1), number) for i, number in enumerate(numbers)]
    assert undefined == [True, True, True, False]


def run(folder: Path, name: str, evaluate: dict[str, Any], rounds: int, **local: Any) -> dict[str, Any]:
    """A run whose accuracy goes up and down, and its summary."""
    raw = {
        "seed": 2,
        "rounds": rounds,
        "data": {"dataset": "digits", "sample": 0.3},
        "partition": {
            "scheme": "dirichlet",
            "label_alpha": 0.3,
            "clients": 10,
            "validation_clients": 3,
            "test_clients": 2,
        },
        "model": {"hidden": [8], "norm": "batch"},
        "local": {"lr": 1.0, "batch_size": 20, **local},
        "algorithm": {"name": name, "cohort": 2, **({"aggregate_every": 5} if name == "radfed" else {})},
        "evaluate": {"every": 1, "metrics": ["accuracy", "loss"], **evaluate},
    }
    quick_run(raw, folder, inline=True)
    summary: dict[str, Any] = json.loads((folder / name / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("name", ["fedbn", "radfed"])
def test_the_best_round_s_model_is_that_of_a_run_that_ends_there(tmp_path: Path, name: str) -> None:
    best = run(tmp_path / "best", name, {"select": "best"}, rounds=7, lr=0.5)
    last = run(tmp_path / "last", name, {}, rounds=7, lr=0.5)
    table = pq.read_table(tmp_path / "best" / name / "metrics.parquet").to_pydict()
    chosen = int(np.argmax(table["validation_accuracy"])) + 1
    assert best["model_round"] == chosen < last["model_round"] == best["rounds"] == 7
    # RADFed's lies between two aggregations: the written model is what an aggregation would have given.
    assert table["aggregated"][chosen - 1] == (name == "fedbn")
    assert best["best"] == last["best"] and best["best"]["validation_accuracy"]["round"] == chosen
    assert best["metrics"] == {column: table[column][chosen - 1] for column in best["metrics"]}
    assert last["metrics"] == {column: table[column][-1] for column in last["metrics"]}
    there = run(tmp_path / "there", name, {}, rounds=chosen, lr=0.5)
    assert there["metrics"] == best["metrics"] and there["model_round"] == chosen
    for file in ("model.safetensors", "personal.safetensors"):
        if (tmp_path / "there" / name / file).exists():
            ended, picked = (load_file(tmp_path / each / name / file) for each in ("there", "best"))
            np.testing.assert_equal(ended, picked)
    assert (tmp_path / "best" / name / "personal.safetensors").exists() == (name == "fedbn")


def test_a_run_stops_when_patience_is_lost_and_its_last_round_aggregates(tmp_path: Path) -> None:
    summary = run(tmp_path / "run", "radfed", {"patience": 3, "select_by": "validation_loss"}, rounds=60)
    table = pq.read_table(tmp_path / "run" / "radfed" / "metrics.parquet").to_pydict()
    losses, found = table["validation_loss"], summary["rounds"]
    waits = [number - int(np.argmin(losses[:number])) - 1 for number in range(1, found + 1)]
    # What ends the run is known while the next round runs; the one after that is the last.
    assert found == waits.index(3) + 3 < 60 and summary["stopped_early"]
    assert table["aggregated"][-1] and found % 5
    assert f"stopped after round {found}: validation_loss" in (tmp_path / "run" / "run.log").read_text()


def test_a_run_stops_at_its_target(tmp_path: Path) -> None:
    keys = {"target": {"held_out_accuracy": 0.2}, "until_target": True}
    summary = run(tmp_path / "run", "fedavg", keys, rounds=60)
    found, reached = summary["rounds"], summary["reached"]["held_out_accuracy"]["round"]
    assert found == reached + 2 < 60 and summary["stopped_early"]
    text = f"stopped after round {found}: the targets were reached, held_out_accuracy in round {reached}"
    assert text in (tmp_path / "run" / "run.log").read_text()


def test_targets_are_in_the_summary(tmp_path: Path) -> None:
    targets = {"held_out_accuracy": 0.2, "validation_loss": 1e-6}
    summary = run(tmp_path / "run", "fedavg", {"target": targets}, rounds=6, precision="fp64")
    table = pq.read_table(tmp_path / "run" / "fedavg" / "metrics.parquet")
    found = table["held_out_accuracy"].to_pylist()
    first = next(number for number, value in enumerate(found, 1) if value >= 0.2)
    assert summary["reached"] == {
        "held_out_accuracy": {
            "target": 0.2,
            "round": first,
            "bytes_up": sum(table["bytes_up"].to_pylist()[:first]),
            "simulated_seconds": None,
        },
        "validation_loss": {"target": 1e-6, "round": None, "bytes_up": None, "simulated_seconds": None},
    }
    assert not summary["stopped_early"]
    assert summary["exchanges"] == summary["rounds"] == 6


RAW: dict[str, Any] = {"data": {"dataset": "digits", "test": 0.1}, "algorithm": {"name": "fedavg"}, "rounds": 1}


@pytest.mark.parametrize(
    ("evaluate", "message"),
    [
        ({"every": 0, "select": "best"}, r"evaluate.every = 0 with evaluate.select = \"best\": must be >= 1"),
        ({"every": 0, "patience": 3}, r"evaluate.every = 0 with evaluate.patience = 3: must be >= 1"),
        ({"every": 0, "until_target": True, "target": {"test_accuracy": 0.5}}, r"0 with evaluate.until_target = true"),
        ({"every": 1, "until_target": True}, r"evaluate.until_target = true without evaluate.target: must have a"),
        ({"every": 1, "patience": 0}, r"evaluate.patience = 0"),
        ({"every": 1, "patience": 2, "select_by": "test_accuracy"}, r"must be a column of the validation clients"),
        ({"every": 1, "patience": 2}, r"'validation_accuracy': must be a measured column \(test_accuracy, "),
        ({"every": 1, "select": "best"}, r"must be a measured column .*; set partition.validation_clients, or"),
        ({"every": 1, "select": "best", "select_by": "test_auc"}, r"'test_auc': must be a measured column"),
        ({"every": 1, "select": "first"}, r"evaluate.select = 'first'"),
        ({"target": {"tets_accuracy": 0.5}}, r"'evaluate.target.tets_accuracy'.* did you mean 'test_accuracy'"),
        ({"target": {"test_accuracy": "x"}}, r"evaluate.target"),
        ({"target": 3}, r"evaluate.target = 3"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, evaluate: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        raysim.run({**RAW, "evaluate": evaluate}, tmp_path / "run", inline=True)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_a_target_needs_a_measured_column() -> None:
    selection = Selection(targets={"test_accuracy": 0.5})
    selection.check(["test_accuracy"])
    with pytest.raises(InputError, match=r"^unknown key 'evaluate.target.test_accuracy': .* one of test_loss; use one"):
        selection.check(["test_loss"])
    with pytest.raises(
        InputError, match=r"^evaluate.target.test_accuracy = 0.5: must be .* nothing is measured; remove"
    ):
        selection.check([])


def test_the_resolved_keys_are_read_back() -> None:
    keys = {"every": 1, "select": "best", "patience": 3, "target": {"test_accuracy": 0.5}}
    experiment = Experiment.of({**RAW, "evaluate": keys})
    assert Experiment.of(experiment.to_toml()) == experiment
    assert experiment.evaluate.selection == Selection(True, "validation_accuracy", 3, {"test_accuracy": 0.5})
