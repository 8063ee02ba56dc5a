"""The run folder: who has it, what a round leaves in it, and what is left of it."""

import json
import logging
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from algorithms import Assign, Layout, Local, Participation, Sharing, State, fedavg
from algorithms.core.report import RoundReport, UpdateRows
from partitioning.common.sealing import is_intact
from raysim.cli.early import check_run
from raysim.common.errors import InputError, StoppedError
from raysim.common.surface import call, shell
from raysim.config.read import algorithm_names
from raysim.simulation.failures import offer_resume
from raysim.simulation.options import RunOptions
from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.checkpoint import Checkpoints
from raysim.store.location import RunLocation
from raysim.store.run_folder import remove_made, run_folder
from raysim.store.tables import UPDATES, metrics_schema
from raysim.watching.log import run_log
from tests.kit.logged import Heard
from tests.kit.runs import SMALL, quick_run

CHECKPOINT = f"checkpoint/round-1-{'0' * 64}.safetensors"


def fail_in(out: Path, made: Path) -> None:
    """A run whose input turns out to be wrong after it has made something."""
    with run_folder(out, []):
        made.mkdir()
        raise InputError("wrong")


def test_only_one_of_two_runs_gets_a_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path / "run", []):
        with pytest.raises(InputError, match=r"already holds a run.*raysim resume$"), run_folder(tmp_path / "run", []):
            pass
        assert (tmp_path / "run" / "run.log").exists()


def test_a_run_may_take_the_folder_of_one_that_was_killed_before_its_configuration(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / ".config.0123abcd.partial.toml").write_text("seed")
    (out / "run.log").write_text("another program's")
    with pytest.raises(InputError, match="already holds a run"), run_folder(out, []):
        pass
    (out / "run.log").unlink()
    with run_log(out / "run.log", logging.getLogger("killed")):
        pass
    check_run("quickstart", (), out, actors=None)
    with run_folder(out, []):
        assert [path.name for path in out.iterdir()] == ["run.log"]
        (out / "config.toml").touch()
    with pytest.raises(InputError, match="already holds a run"), run_folder(out, []):
        pass


def test_the_kept_log_of_a_run_and_a_link_to_a_log_stay(tmp_path: Path) -> None:
    for out in (tmp_path / "kept", tmp_path / "link"):
        out.mkdir()
    with run_log(tmp_path / "kept" / "run.log", logging.getLogger("kept")) as log:
        log.info("fingerprint %s", {})
    (tmp_path / "other.log").touch()
    (tmp_path / "link" / "run.log").symlink_to(tmp_path / "other.log")
    for out in (tmp_path / "kept", tmp_path / "link"):
        with pytest.raises(InputError, match="already holds a run"):
            fail_in(out, out / "population")
        assert (out / "run.log").is_file()


def test_wrong_input_leaves_a_folder_that_was_there_empty(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for out in (tmp_path / "real", tmp_path / "link"):
        with pytest.raises(InputError, match="wrong"):
            fail_in(out, out / "population")
        assert list((tmp_path / "real").iterdir()) == []


def end_in(out: Path, begun: bool, options: RunOptions = RunOptions(inline=True)) -> None:
    """A run that is interrupted, or for which there is no room, before its configuration is written or after it."""
    with offer_resume(RunLocation(out, str(out)), options), run_folder(out, []):
        if begun:
            (out / "config.toml").touch()
        raise KeyboardInterrupt


def test_a_run_that_ends_before_it_can_go_on_leaves_nothing_and_says_nothing_of_going_on(tmp_path: Path) -> None:
    with pytest.raises(StoppedError, match=r"^interrupted$"):
        end_in(tmp_path / "one", begun=False)
    with pytest.raises(StoppedError, match=r"^interrupted; continue with: raysim\.resume\(\".*two\", inline=True\)$"):
        end_in(tmp_path / "two", begun=True)
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


def test_the_cluster_of_a_run_is_named_for_its_resume(tmp_path: Path) -> None:
    """It is not in the run's configuration."""
    with pytest.raises(StoppedError, match=r"""raysim.resume\(".*run", address='head:6379'\)$"""):
        end_in(tmp_path / "run", begun=True, options=RunOptions(address="head:6379"))
    with shell():
        assert call("resume", "r", address="head:6379") == "raysim resume r --address head:6379"


def test_a_run_that_fails_says_whether_a_round_is_saved(tmp_path: Path) -> None:
    out, told = tmp_path / "run", Heard()
    (out / "fedavg" / "checkpoint").mkdir(parents=True)
    for name in ("config.toml", "run.log"):
        (out / name).touch()
    for saved, file in (("has no checkpoint yet", "metrics.journal"), ("is saved up to its last", CHECKPOINT)):
        (out / "fedavg" / file).touch()
        with pytest.raises(RuntimeError), offer_resume(RunLocation(out, str(out)), RunOptions(watcher=told)):
            raise RuntimeError
        assert saved in told.notices[-1]


def test_parents_that_another_run_uses_stay(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="wrong"):
        fail_in(tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["two"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="out = "), run_folder(tmp_path / "file", []):
        pass


def test_a_name_that_is_too_long_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"out = .*xxx': must be a folder that raysim can create \(File name too long\)"
    ):
        quick_run(SMALL, tmp_path / ("x" * 300), inline=True)


def files_in(folder: Path, *columns: str) -> AlgorithmFolder:
    """The files of an algorithm without clients."""
    checkpoints = Checkpoints(folder / "fedavg", fedavg(Participation(), Local(epochs=1), Assign()), {})
    clients = pa.RecordBatch.from_pydict({"client": pa.array([], pa.int64())})
    return AlgorithmFolder(folder / "fedavg", columns, checkpoints, lambda row: None, clients)


def test_the_summary_is_plain_json(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2)
    layouts = Sharing().divide(Layout.of(module))
    model, personal = (layout.pack(module.state_dict()) for layout in (layouts.shared, layouts.personal))
    with closing(files_in(tmp_path)) as files:
        metrics = {"test_loss": math.nan, "test_accuracy": 0.5, "local_loss": math.inf, "test_auc": None}
        files.finish(State(0, 0, model, personal, personal), layouts, {"rounds": 0, "metrics": metrics}, {})
    text = (files.path / "summary.json").read_text(encoding="utf-8")
    metrics = {"test_loss": "nan", "test_accuracy": 0.5, "local_loss": "inf", "test_auc": None}
    found = json.loads(text)
    assert is_intact(found) and found["files"].keys() == {"metrics.parquet", "updates.parquet", "model.safetensors"}
    assert {"rounds": 0, "metrics": metrics}.items() <= found.items()


def test_a_repeated_algorithm_is_numbered() -> None:
    assert algorithm_names([]) == []
    tables = [{"name": name} for name in ("fedavg", "radfed", "mine:fedavg", "fedavg")]
    assert algorithm_names(tables) == ["fedavg", "radfed", "fedavg-2", "fedavg-3"]


def test_a_label_takes_the_place_of_a_numbered_name() -> None:
    tables = [{"name": "fedavg", "label": "mean"}, {}, {"name": "radfed", "label": "far-1.5"}, {"name": "fedavg"}]
    assert algorithm_names(tables) == ["mean", "fedavg", "far-1.5", "fedavg-2"]


def a_round(losses: dict[int, float]) -> RoundReport:
    """Visits of clients with these losses, two a block; a client without a loss took no step."""
    reports = [{"samples": 20.0, "steps": 0.0 if math.isnan(loss) else 2.0, "loss": loss} for loss in losses.values()]
    count, blocks = len(losses), np.arange(len(losses)) // 2
    rows = UpdateRows.of(list(losses), reports, [20.0] * count, [None] * count, [None] * count)
    machine = {"seconds": 0.5, "actor": 1.0}
    return RoundReport(rows, blocks, dict.fromkeys(blocks.tolist(), machine), True, 0, 0)


def journal(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        return stream.read_all()


def test_a_round_is_a_row_and_a_row_a_update(tmp_path: Path) -> None:
    with closing(files_in(tmp_path, "test_auc")) as files:
        row: dict[str, Any] = {"round": 1, "seconds": 0.25}
        files.append(row, a_round({3: 1.5, 5: math.nan, 8: math.inf}))
        row["round"] = 2  # what was appended is no longer the caller's
        files.append(row, a_round({}))
    updates, metrics = journal(files.path / "updates.journal"), journal(files.path / "metrics.journal")
    assert updates.schema == UPDATES and metrics.schema == metrics_schema(["test_auc"])
    assert updates.to_pydict() == {
        "round": [1, 1, 1],
        "client": [3, 5, 8],
        "block": [0, 0, 1],
        "samples": [20, 20, 20],
        "steps": [2, 0, 2],
        "loss": [1.5, None, math.inf],
        "staleness": [None, None, None],
        "weight": [20.0, 20.0, 20.0],
        "nonfinite": [None, None, None],
        "machine_block_seconds": [0.5, 0.5, 0.5],
        "machine_actor": [1, 1, 1],
    }
    assert metrics["round"].to_pylist() == [1, 2]
    assert metrics["seconds"].to_pylist() == [0.25, 0.25]
    assert metrics["seconds_train"].null_count == metrics["test_auc"].null_count == 2
    assert all(seconds > 0 for seconds in metrics["seconds_write"].to_pylist())


def stop_after(files: AlgorithmFolder, rounds: int) -> None:
    with closing(files):
        for number in range(1, rounds + 1):
            files.append({"round": number}, a_round({number: 1.0}))
        raise KeyboardInterrupt


def test_a_run_that_breaks_keeps_every_round(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        stop_after(files, 40)
    assert journal(files.path / "metrics.journal")["round"].to_pylist() == list(range(1, 41))
    assert journal(files.path / "updates.journal")["client"].to_pylist() == list(range(1, 41))


def test_a_row_that_cannot_be_written_is_not_lost_in_silence(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    files.append({"round": 1}, a_round({}))
    files.append({"round": 2, "aggregated": "perhaps"}, a_round({}))
    with pytest.raises(pa.ArrowException):
        files.close()
    with pytest.raises(pa.ArrowException):
        files.append({"round": 3}, a_round({}))
    assert journal(files.path / "metrics.journal")["round"].to_pylist() == [1]


def test_a_finished_algorithm_survives_a_power_failure_before_its_checkpoints_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch.nn.Linear(2, 2)
    layouts = Sharing().divide(Layout.of(module))
    model, personal = (layout.pack(module.state_dict()) for layout in (layouts.shared, layouts.personal))
    awaited = list[Path]()

    def goes(path: Path) -> None:
        assert {path / "summary.json", path} <= {*awaited[-2:]}
        tidied.append(path)

    tidied = list[Path]()
    monkeypatch.setattr("raysim.store.algorithm_folder.sync", lambda *paths: awaited.extend(paths))
    monkeypatch.setattr("raysim.store.algorithm_folder.tidy", goes)
    with closing(files_in(tmp_path)) as files:
        files.finish(State(0, 0, model, personal, personal), layouts, {"rounds": 0, "metrics": {}}, {})
    assert tidied == [files.path]


def test_two_processes_may_tidy_a_folder_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.journal").touch()
    glob = Path.glob

    def listed(path: Path, pattern: str) -> list[Path]:
        found = list(glob(path, pattern))
        for each in found:
            each.unlink()  # the other one is faster
        return found

    monkeypatch.setattr(Path, "glob", listed)
    remove_made(tmp_path, ["*.journal"])
