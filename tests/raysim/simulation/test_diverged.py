"""Training that gives NaN or infinity: what stops, what goes on, and what a person is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import raysim
from raysim.common.errors import DivergedError, InputError
from raysim.report.read import read_runs
from raysim.report.tables import endings, headline
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_run

EXPERIMENT: dict[str, Any] = {
    "seed": 3,
    "rounds": 4,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 6, "test_clients": 1},
    "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
    "local": {"lr": 0.1, "batch_size": 50},
    "evaluate": {"every": 1, "metrics": ["accuracy"], "on": ["held_out"], "clients": False},
}


class Notices(Watcher):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def notice(self, text: str) -> None:
        self.texts.append(text)


# Each step multiplies the weights by -999, so that they are numbers for some rounds, and then are none.
EXPLODES = {"name": "fedavg", "local": {"lr": 1.0, "weight_decay": 1000.0}}
GOOD = {"name": "fedprox"}


def run(folder: Path, *algorithms: dict[str, Any], watcher: Watcher | None = None, **changes: Any) -> raysim.Run:
    tables = [{**table, "local": {**table.get("local", {}), **changes}} for table in algorithms]
    return raysim.run({**EXPERIMENT, "algorithm": tables}, folder, inline=True, watcher=watcher)


def test_a_run_stops_and_its_report_is_of_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(DivergedError, match=r"^fedavg: client \d in round \d: .* is not finite") as caught:
        run(folder, GOOD, EXPLODES, {"name": "fedbn"})
    assert str(folder / "report.html") in str(caught.value)
    done = pq.read_table(folder / "fedavg" / "metrics.parquet")
    assert f"in round {len(done) + 1}:" in str(caught.value)
    assert done["held_out_accuracy"].null_count == 0 and set(done["nonfinite"].to_pylist()) <= {0}
    assert len(pq.read_table(folder / "fedavg" / "updates.parquet")) == 5 * len(done)
    summary = json.loads((folder / "fedavg" / "stopped.json").read_text(encoding="utf-8"))
    assert summary["stopped"] in str(caught.value)
    assert (folder / "fedprox" / "model.safetensors").is_file() and not (folder / "fedbn").exists()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert f"fedavg was stopped after round {len(done)}: client" in page
    assert "Without results: fedbn." in page
    assert str(caught.value).partition(";")[0] in (folder / "run.log").read_text(encoding="utf-8")


def test_a_run_goes_on_and_tells_of_every_update(tmp_path: Path) -> None:
    watcher = Notices()
    policies = {"fedavg": "leave-out", "fedavg-2": "last"}
    tables = [{**EXPLODES, "local": {**EXPLODES["local"], "nonfinite": policy}} for policy in policies.values()]
    done = quick_run({**EXPERIMENT, "algorithm": tables}, tmp_path / "run", inline=True, watcher=watcher)
    reported, found = read_runs([done.folder])[0].results, 0
    assert "Updates not finite" in [column.title for column in headline(reported).columns]
    for result, policy in zip(done.results, policies.values(), strict=True):
        updates = pq.read_table(done.folder / result.name / "updates.parquet").to_pylist()
        wrong = [row for row in updates if row["nonfinite"] is not None]
        counts = pq.read_table(done.folder / result.name / "metrics.parquet")["nonfinite"].to_pylist()
        assert wrong and result.nonfinite == sum(counts) == len(wrong)
        first = f"client {wrong[0]['client']} in round {wrong[0]['round']}: {wrong[0]['nonfinite']} is not finite"
        told = [text for text in watcher.texts if text.startswith(f"{result.name}:") and "not finite" in text]
        assert told == [
            f'{result.name}: {first}; local.nonfinite = "{policy}"',
            f"{result.name}: {len(wrong)} client updates in total were not finite; updates.parquet names them",
        ]
        said = f"{result.name}: {len(wrong)} client updates were not finite and were left out or replaced."
        assert said in endings(reported)
        found += len(wrong)
    assert (done.folder / "run.log").read_text(encoding="utf-8").count("is not finite") == found


def test_a_policy_of_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"local\.nonfinite = 'ignore'"):
        run(tmp_path / "run", GOOD, nonfinite="ignore")


def with_twin(measure: str, folder: Path, policy: str) -> raysim.Run:
    """A run beside a twin that takes five times as many steps, and so explodes first."""
    cohort = {"cohort": 1} if measure == "concordance" else {}
    tables = {
        "rounds": 2,
        "data": {"dataset": "digits", "test": 0.2},
        "local": {**EXPERIMENT["local"], **EXPLODES["local"], "batch_size": 100, "nonfinite": policy},
        "algorithm": [{"name": "fedavg", **cohort}],
        "evaluate": {"every": 1, "metrics": ["loss"], "measures": [measure]},
    }
    return quick_run({**EXPERIMENT, **tables}, folder, inline=True)


@pytest.mark.parametrize("measure", ["dc", "concordance"])
def test_a_twin_that_diverges_stops_the_run_or_is_no_number(measure: str, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=f"^fedavg: the twin of evaluate.measures = '{measure}'.*in round 1: "):
        with_twin(measure, tmp_path / "stop", "stop")
    done = with_twin(measure, tmp_path / "on", "leave-out")
    values = pq.read_table(done.folder / "fedavg" / "metrics.parquet")[measure].to_pylist()
    assert np.isnan(values).all()
    assert done.results[0].nonfinite == 0
