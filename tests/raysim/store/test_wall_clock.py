"""`wall-clock.json`: the stages of a run's commands."""

import json
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import raysim
from raysim.common.errors import InputError, StoppedError
from raysim.common.names import CONFIG, RUN_LOG, WALL_CLOCK
from raysim.report.commands import breakdown
from raysim.report.read import read_runs
from raysim.simulation.api import _counted
from raysim.simulation.options import RunOptions
from raysim.store.run_folder import locked
from raysim.store.wall_clock import CommandTime, read_commands, write_commands
from raysim.watching.stopwatch import STAGES, StageTime
from tests.kit.runs import Breaks

EXPERIMENT = {
    "rounds": 2,
    "data": {"dataset": "digits"},
    "partition": {"clients": 4, "test_clients": 1},
    "model": {"hidden": [8]},
    "algorithm": [{"name": "fedavg"}, {"name": "radfed", "aggregate_every": 2}],
}


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    commands = [CommandTime("run", [StageTime("start", 1.5), StageTime("training", 2.5, "fedavg")])]
    assert read_commands(tmp_path) == []
    write_commands(tmp_path, commands)
    assert read_commands(tmp_path) == commands and commands[0].seconds == 4


@pytest.mark.parametrize("text", ["[", "[1]", '[{"command": "run"}]', '[{"command": "run", "stages": [{"x": 1}]}]'])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / WALL_CLOCK).write_text(text)
    with pytest.raises(InputError, match=r"wall-clock\.json is damaged"):
        read_commands(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> raysim.Run:
    return raysim.run(EXPERIMENT, tmp_path_factory.mktemp("wall-clock") / "run", inline=True)


def test_commands_of_a_run_add_up_and_stand_in_its_log_and_report(run: raysim.Run) -> None:
    (first,) = read_commands(run.folder)
    assert first.command == "run"
    whole, own = ("start", "data", "plan", "fleet", "end", "report"), ("training", "evaluation", "files")
    assert [each.stage for each in first.stages if not each.algorithm] == [*whole]
    assert [(each.stage, each.algorithm) for each in first.stages if each.algorithm] == [
        (stage, name) for name in ("fedavg", "radfed") for stage in own
    ]
    assert {*whole, *own} == set(STAGES)
    table = pq.read_table(run.folder / "fedavg" / "metrics.parquet").to_pydict()
    for part in ("seconds", "seconds_evaluate", "seconds_write"):
        assert 0 < sum(value or 0 for value in table[part]) < first.seconds
    log = (run.folder / "run.log").read_text()
    assert f"raysim run took {first.seconds:.1f} s" in log and "of these: radfed: training" in log
    page = run.report.read_text()
    assert "Time of the command, by stage" in page and ">raysim run: radfed<" in page


def test_a_stopped_command_has_its_times_too(tmp_path: Path) -> None:
    after = Breaks(2, None)
    with pytest.raises(StoppedError):
        raysim.run({**EXPERIMENT, "rounds": 9}, tmp_path / "run", inline=True, watcher=after, stop=after.stop)
    (stopped,) = read_commands(tmp_path / "run")
    stages = [(each.stage, each.algorithm) for each in stopped.stages]
    assert ("training", "fedavg") in stages and stages[-1] == ("end", "")


def test_a_resume_is_a_command_of_its_own(run: raysim.Run) -> None:
    (first,) = read_commands(run.folder)
    raysim.resume(run.folder, inline=True)
    assert [each.command for each in read_commands(run.folder)] == ["run", "resume"]
    assert read_commands(run.folder)[0] == first
    found = breakdown(read_runs([run.folder]))
    assert found is not None
    _, table = found
    assert table.keys[0].cells[0] == "raysim run (1)" and table.keys[0].cells[-1] == "raysim resume (2)"
    assert json.loads((run.folder / WALL_CLOCK).read_text())[0]["command"] == "run"


def test_a_damaged_file_costs_only_the_times(run: raysim.Run) -> None:
    (run.folder / WALL_CLOCK).write_text("null")
    raysim.resume(run.folder, inline=True)
    (only,) = read_commands(run.folder)
    assert only.command == "resume"


def test_a_command_whose_report_fails_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Path:
        raise ZeroDivisionError

    monkeypatch.setattr("raysim.report.page.write_report", fails)
    with pytest.raises(ZeroDivisionError):
        raysim.run(EXPERIMENT, tmp_path / "run", inline=True)
    assert [each.command for each in read_commands(tmp_path / "run")] == ["run"]


def fail_in(folder: Path) -> None:
    """A command that fails while an algorithm trains."""
    options = RunOptions()
    with suppress(ZeroDivisionError), _counted("run", folder, options):
        options.stopwatch.enter("training", "fedavg")
        raise ZeroDivisionError


def test_a_command_that_fails_leaves_the_times_to_a_process_that_continues_the_run(tmp_path: Path) -> None:
    for name in (CONFIG, RUN_LOG):
        (tmp_path / name).touch()
    with locked(tmp_path):
        fail_in(tmp_path)
    assert read_commands(tmp_path) == []
    fail_in(tmp_path)
    assert [each.command for each in read_commands(tmp_path)] == ["run"]
