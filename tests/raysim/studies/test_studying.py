"""Studies that are really run: on Ray and inline to the same table, stopped and gone on with, and diverging."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import tomli_w

import raysim
from raysim.common.errors import InputError, StoppedError
from raysim.studies import populations
from raysim.studies.course import StudyProgress
from raysim.studies.file import Study
from raysim.studies.showing import Board
from tests.kit.ray import SharedRay
from tests.kit.runs import quick_run
from tests.kit.studies import SMALL, quick_study, stamps


class Notes(Board):
    """Notes which trials were run, and interrupts the study after some."""

    def __init__(self, most: int | None = None) -> None:
        self.ran: list[str] = []
        self.notices: list[str] = []
        self._most = most

    def ended(self, text: str) -> None:
        self.ran.append(text.partition(":")[0])
        if len(self.ran) == self._most:
            raise KeyboardInterrupt

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory, shared_ray: SharedRay) -> StudyProgress:
    shared_ray.start()
    return quick_study(deepcopy(SMALL), tmp_path_factory.mktemp("study") / "ray", actors=2)


def test_an_algorithm_without_a_winner_has_its_row_and_its_reason(small: dict[str, Any], tmp_path: Path) -> None:
    small["algorithm"] = [{"name": name} for name in ("fedavg", "fedprox", "fedyogi")]
    small["study"] = {"seeds": [1], "grid": {"fedprox": {"local.lr": [1e12, 9e11]}}}
    small["study"]["inherit"] = {"fedavg": {"local.lr": "fedprox"}}
    small["partition"] |= {"validation_clients": 1, "test_clients": 1}
    done = raysim.study(small, tmp_path / "study", inline=True)
    rows = {row["algorithm"]: row for row in pq.read_table(done.folder / "summary.parquet").to_pylist()}
    assert {name: (row["n"], row["done"], row["diverged"]) for name, row in rows.items()} == {
        "fedavg": (0, 0, 0),
        "fedprox": (0, 0, 2),
        "fedyogi": (1, 1, 0),
    }
    table, page = ((done.folder / name).read_text(encoding="utf-8") for name in ("table.md", "report.html"))
    for text in (table.replace("\\", ""), page):
        assert (
            "fedprox on digits: no winner, because no point has a finite validation_accuracy in all its trials." in text
        )
        assert "fedavg on digits: no winner, because a source of its inherited values has no winner." in text
        assert "2 of 2 trials diverged and are left out: fedprox on digits." in text
        assert "trials that count yet" not in text
    assert table.count("| digits | fedavg | – | 0 |") == table.count("| digits | fedprox | – | 0 |") == 1


def test_a_label_names_an_algorithm_in_a_study_and_in_its_runs(tmp_path: Path) -> None:
    tables = [{"name": "fedavg", "label": "mean"}, {"name": "fedavg", "label": "few", "cohort": 2}]
    grid = {"few": {"local.lr": [0.3]}}
    config = {**SMALL, "algorithm": tables, "partition": {"scheme": "iid", "clients": 4, "test_clients": 1}}
    config["study"] = {"seeds": [1], "grid": grid, "inherit": {"mean": {"local.lr": "few"}}, "baseline": "few"}
    done = raysim.study(config, tmp_path / "study", inline=True)
    assert set(done.trials["algorithm"].to_pylist()) == {"mean", "few"}
    assert {path.parent.name for path in done.folder.rglob("summary.json")} == {"mean", "few"}
    assert {name.rpartition("-")[0] for name in stamps(done.folder)} == {"digits-mean", "digits-few"}
    assert "| digits" in (table := (done.folder / "table.md").read_text()) and "| few " in table
    config["study"]["grid"] = {"few": {"label": ["a", "b"]}}
    with pytest.raises(InputError, match="of few: label: must not vary"):
        raysim.study(config, tmp_path / "other", inline=True)


def test_each_winner_runs_on_all_folds_and_seeds(on_ray: StudyProgress) -> None:
    table = on_ray.trials
    assert table.equals(pq.read_table(on_ray.folder / "trials.parquet"))
    assert set(table["status"].to_pylist()) == {"done"} and table.num_rows == sum(on_ray.planned.values()) == 16
    for name in ("fedavg", "radfed"):
        rows = table.filter(pc.field("algorithm") == name).to_pylist()
        final = [row for row in rows if row["stage"] == "final"]
        assert {(row["seed"], row["fold"]) for row in final} == {(seed, fold) for seed in (1, 2) for fold in range(3)}
        assert all(row["chosen"] for row in final) and len(final) == 6 and len(rows) == 8
        assert all(row["validation"] == (row["fold"] + 1) % 3 for row in rows)
        # The winner is the one with the better mean on the validation clients, where the points were compared.
        searched = [row for row in rows if row["seed"] == 1 and row["fold"] in (0, 1)]
        means = {
            point: sum(row["validation_accuracy"] for row in searched if row["point"] == point)
            for point in {row["point"] for row in searched}
        }
        assert len(means) == 2
        assert max(means, key=means.__getitem__) == json.dumps(on_ray.winners["digits", name])


def test_a_trial_is_a_run_of_its_own(on_ray: StudyProgress, tmp_path: Path) -> None:
    row = on_ray.trials.to_pylist()[-1]
    trial = on_ray.folder / "trials" / row["trial"]
    again = quick_run(trial / "config.toml", tmp_path / "again", inline=True)
    assert again.results[0].metrics["held_out_accuracy"] == row["held_out_accuracy"]
    for name in ("model.safetensors", "metrics.parquet"):
        assert (trial / row["algorithm"] / name).is_file()
    model = (trial / row["algorithm"] / "model.safetensors").read_bytes()
    assert (tmp_path / "again" / row["algorithm"] / "model.safetensors").read_bytes() == model


def test_inline_and_interrupted_twice_it_is_the_same_table(on_ray: StudyProgress, small: Any, tmp_path: Path) -> None:
    folder, before = tmp_path / "inline", {}
    for most in (3, 6):
        with pytest.raises(StoppedError, match=rf"continue with: raysim\.study\(\"{folder}\", inline=True\)"):
            quick_study(small, folder, inline=True, watcher=Notes(most))
        now = stamps(folder)
        assert len(now) == len(before) + most and before.items() <= now.items()
        before = now
    notes = Notes()
    # Its own file goes on as well as the one that it came from.
    done = quick_study(folder, inline=True, watcher=notes)
    assert len(notes.ran) == 16 - len(before) and not set(notes.ran) & set(before)
    assert before.items() <= stamps(folder).items()
    assert done.trials.drop(["seconds"]).equals(on_ray.trials.drop(["seconds"]))
    assert done.winners == on_ray.winners


def test_of_a_changed_file_only_what_is_new_runs(on_ray: StudyProgress) -> None:
    notes, before = Notes(), stamps(on_ray.folder)
    # The baseline decides nothing that a trial depends on; a seed more does.
    done = quick_study(on_ray.folder, changes=["study.baseline=radfed"], inline=True, watcher=notes)
    assert notes.ran == [] and stamps(on_ray.folder) == before
    more = quick_study(on_ray.folder, changes=["study.tune.folds=[0, 1, 2]"], inline=True, watcher=notes)
    assert len(notes.ran) == 2 and more.trials.num_rows == done.trials.num_rows + 2


def test_what_diverges_is_on_record_and_never_wins(small: Any, tmp_path: Path) -> None:
    small["algorithm"] = small["algorithm"][:1]
    small["study"] |= {"grid": {"fedavg": {"local.lr": [1e12, 0.1]}}, "folds": 0, "seeds": [1], "tune": {}}
    small["partition"] |= {"validation_clients": 1, "test_clients": 1}
    notes = Notes()
    done = quick_study(small, tmp_path / "study", inline=True, watcher=notes)
    rows = done.trials.to_pylist()
    assert [row["status"] for row in rows] == ["diverged", "done"]
    assert rows[0]["held_out_accuracy"] is None and rows[0]["fold"] is None and not rows[0]["chosen"]
    assert done.winners["digits", "fedavg"] == {"local.lr": 0.1}
    assert any("is not finite" in notice for notice in notes.notices)
    for name in ("wall-clock.json", "report.html"):
        assert not list((tmp_path / "study" / "trials").rglob(name)), "a trial is no command"
    again = Notes()
    assert quick_study(small, tmp_path / "study", inline=True, watcher=again).trials.equals(done.trials)
    assert again.ran == []


@pytest.mark.slow
def test_killed_with_all_its_processes_it_goes_on(small: Any, tmp_path: Path) -> None:
    folder, file = tmp_path / "killed", tmp_path / "small.toml"
    file.write_text(tomli_w.dumps(small))
    command = [sys.executable, "-m", "raysim", "study", str(file), "--out", str(folder), "--actors", "2"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while len(stamps(folder)) < 5:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = stamps(folder)
    done = raysim.study(folder, inline=True)
    assert before.items() <= stamps(folder).items()
    left_alone = raysim.study(small, tmp_path / "alone", inline=True)
    assert done.trials.drop(["seconds"]).equals(left_alone.trials.drop(["seconds"]))


@pytest.mark.slow
def test_a_trial_whose_process_dies_goes_on_in_another(small: Any, tmp_path: Path) -> None:
    class Killer(Notes):
        def ended(self, text: str) -> None:
            super().ended(text)
            if len(self.ran) == 1:
                for process in _workers():
                    os.kill(process, signal.SIGKILL)

    killer, folder = Killer(), tmp_path / "study"
    small["rounds"] = 300
    done = raysim.study(small, folder, actors=2, watcher=killer)
    assert any("its process died" in notice for notice in killer.notices)
    assert set(done.trials["status"].to_pylist()) == {"done"}
    left_alone = raysim.study(small, tmp_path / "alone", inline=True)
    assert done.trials.drop(["seconds"]).equals(left_alone.trials.drop(["seconds"]))


def _workers() -> list[int]:
    """The processes that are at a trial now, of the Ray that this process has started."""
    found = []
    for home in Path("/proc").iterdir():
        if home.name.isdecimal() and (home / "cmdline").read_bytes().startswith(b"ray::_call"):
            status = (home / "status").read_text()
            parent = int(status.partition("PPid:")[2].split()[0])
            above = (Path("/proc") / str(parent) / "status").read_text().partition("PPid:")[2].split()[0]
            if int(above) == os.getpid():
                found.append(int(home.name))
    return found


@pytest.mark.slow
def test_trials_with_client_actors_run_in_turn_on_all_of_them(small: Any, tmp_path: Path) -> None:
    small["fleet"] = {"actors": 2}
    small["study"] |= {"seeds": [1], "grid": {}}
    done = raysim.study(small, tmp_path / "study")
    alone = raysim.study(small, tmp_path / "alone", inline=True)
    assert done.trials.drop(["seconds"]).equals(alone.trials.drop(["seconds"]))


def test_a_table_of_devices_and_the_virtual_time_to_a_target(tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"client": list(range(6)), "compute": [10.0 * (client + 1) for client in range(6)]}), table)
    config = deepcopy(SMALL) | {"study": {"seeds": [1]}, "devices": {"table": str(table)}}
    config["algorithm"], config["partition"]["test_clients"] = config["algorithm"][:1], 1
    config["evaluate"] = {"metrics": ["accuracy"], "every": 1, "target": {"held_out_accuracy": 0.0}}
    done = quick_study(config, tmp_path / "study", inline=True)
    assert set(done.trials["status"].to_pylist()) == {"done"}
    for row in done.trials.to_pylist():
        (metrics,) = (done.folder / "trials" / row["trial"]).glob("*/metrics.parquet")
        first = pq.read_table(metrics)["simulated_seconds"][0].as_py()
        assert row["virtual_seconds_to_held_out_accuracy"] == pytest.approx(first)
    again = Notes()
    quick_study(config, tmp_path / "study", inline=True, watcher=again)
    assert not again.ran
    pq.write_table(pa.table({"client": list(range(6)), "compute": [9.0] * 6}), table)
    quick_study(config, tmp_path / "study", inline=True, watcher=again)
    assert len(again.ran) == done.trials.num_rows


@pytest.mark.parametrize("wrong", ["table", "algorithm"])
def test_devices_that_do_not_fit_start_no_study(wrong: str, tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    pq.write_table(pa.table({"client": [0, 1], "compute": [1.0, 2.0]}), table)
    devices: dict[str, Any] = {"table": str(table)} if wrong == "table" else {"availability": "day-night"}
    config = deepcopy(SMALL) | {"study": {"seeds": [1], "folds": 3}, "devices": devices}
    config["algorithm"] = [{"name": "fedavg", "cohort": 1, "candidates": 2}]
    text = "one row for each of the 6 clients" if wrong == "table" else "not always available with algorithm.candidates"
    with pytest.raises(InputError, match=text) as error:
        raysim.study(config, tmp_path / "study", inline=True)
    assert "trials that have ended" not in str(error.value) and not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("grid", "inherit", "message"),
    [
        ({"*": {"cohort": [2, 50]}}, {}, "fedavg: algorithm.cohort = 50: must be at most"),
        (
            {"radfed": {"local.lr": [0.1, 0.2], "model.norm": ["none", "batch"]}},
            {},
            "radfed: model.norm = 'batch' on a model",
        ),
        ({"fedavg": {"local.lr": [0.1, 1e-3]}, "radfed": {"local.momentum": [0.1], "cohort": [1, 2, 9]}}, {}, "= 9"),
        (
            {"fedavg": {"local.batch_size": [1, 50]}},
            {"radfed": {"cohort": "fedavg:local.batch_size"}},
            "radfed: .* = 50",
        ),
    ],
)
def test_every_value_of_a_grid_is_checked_before_the_first_trial(
    grid: dict[str, Any], inherit: dict[str, Any], message: str, small: dict[str, Any], tmp_path: Path
) -> None:
    small["model"] = {"name": "logistic"}
    small["study"] |= {"grid": grid, "inherit": inherit}
    notes = Notes()
    with pytest.raises(InputError, match=message):
        quick_study(small, tmp_path / "study", inline=True, watcher=notes)
    assert not notes.ran and not (tmp_path / "study").exists()


def test_checking_a_grid_prepares_the_data_once_and_plans_no_product(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    for name in ("prepare_samples", "plan_run"):
        real = getattr(populations, name)
        monkeypatch.setattr(
            populations, name, lambda *a, name=name, real=real, **k: (calls.update([name]), real(*a, **k))[1]
        )
    rates = [0.3, 0.2, 0.1, *(1 / each for each in range(20, 60))]
    small["study"] |= {"grid": {"fedavg": {"local.lr": rates, "local.momentum": [0.0, 0.5, 0.9]}}}
    study = Study.of(small)
    made = populations.populations_of(study, tmp_path, ignored, ignored)
    phases: list[str] = []
    populations.fitted(study, made, made, phases.append)
    assert phases == ["digits: checking the algorithms on these clients"]
    assert calls == {"prepare_samples": 1, "plan_run": 5}


def test_the_default_metric_is_one_that_every_trial_measures(small: dict[str, Any], tmp_path: Path) -> None:
    def metric(datasets: dict[str, Any]) -> str:
        config = {**small, "study": {"seeds": [1], "datasets": datasets}}
        study = Study.of(config)
        (folder := tmp_path / str(len(datasets))).mkdir(exist_ok=True)
        made = populations.populations_of(study, folder, ignored, ignored)
        return str(populations.fitted(study, made, made, lambda text: None)[0].table.metric)

    tested, held_out = {"data.test": 0.2}, {"partition.test_clients": 2}
    assert metric({"a": held_out, "b": {**tested, **held_out}}) == "held_out_accuracy"
    assert metric({"a": {**tested, **held_out}, "b": tested}) == "test_accuracy"
    assert metric({"a": tested, "b": {**tested, "evaluate.metrics": ["loss"]}}) == "test_loss"
    validated = {"partition.validation_clients": 1}
    assert metric({"a": validated}) == "validation_accuracy"
    message = r"none in common \(a: test_accuracy, test_loss, .*; b: held_out_accuracy, .*\); set study.folds = 5, or"
    with pytest.raises(InputError, match=message):
        metric({"a": {**tested, **validated}, "b": {**held_out, **validated}})


def test_a_column_without_words_is_refused_before_the_first_trial_also_if_nothing_is_searched(
    small: dict[str, Any], tmp_path: Path
) -> None:
    small["study"] = {"seeds": [1], "folds": 3, "select_by": "accuracy"}
    notes = Notes()
    with pytest.raises(InputError, match=r"study\.select_by: unknown metric 'accuracy': .*must be one of"):
        quick_study(small, tmp_path / "study", inline=True, watcher=notes, changes=iter(["epochs=1"]))
    assert not notes.ran and not list(tmp_path.glob("study/trials/*"))
    assert [text.partition(":")[0] for text in notes.notices] == ["changes 'epochs=1' replaces rounds = 2"]


def test_draws_of_the_partition_are_made_and_paired(tmp_path: Path) -> None:
    config = {**deepcopy(SMALL), "partition": {"scheme": "dirichlet-qp", "clients": 6, "label_alpha": 0.3}}
    config["study"] = {"seeds": [1], "partition_seeds": [4, 5], "folds": 0, "metric": "test_accuracy"}
    config["data"] = {"dataset": "digits", "test": 0.2}
    done = raysim.study(config, tmp_path / "study", inline=True)
    assert len(list((tmp_path / "study" / "populations").glob("*/manifest.json"))) == 2
    rows = done.trials.to_pylist()
    assert sorted(row["partition_seed"] for row in rows if row["algorithm"] == "fedavg") == [4, 5]
    assert len({row["test_accuracy"] for row in rows if row["algorithm"] == "fedavg"}) > 1
    summary = pq.read_table(tmp_path / "study" / "summary.parquet").to_pylist()
    assert [row["pairs"] for row in summary] == [None, 2]
    assert "paired by partition, seed and test fold" in (tmp_path / "study" / "table.md").read_text()


def ignored(text: str) -> None:
    """Take a text and do nothing."""


def test_a_study_says_that_it_keeps_clients_of_a_file_that_has_changed(small: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "dots.csv"
    file.write_text("x,label\n" + "0.5,0\n1.5,1\n" * 20)
    small["study"]["partition_seeds"] = [4, 5]
    study, notices = Study.of({**small, "data": {"dataset": f"file:{file}"}}), list[str]()
    made = populations.populations_of(study, tmp_path / "p", ignored, notices.append)
    assert not notices
    os.utime(file, (time.time() + 60, time.time() + 60))
    kept = populations.populations_of(study, tmp_path / "p", ignored, notices.append)
    assert len(kept) == 2 and all(kept[key].fingerprint == made[key].fingerprint for key in made)
    assert len(notices) == 1 and notices[0].startswith(f"{file} is newer than the clients made from it, and the study")
