"""The benchmarks themselves work: every way runs on a tiny load. Nothing here asserts a time."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import f1_score
from torch.nn.functional import cross_entropy, one_hot

from raysim.config.experiment import Experiment
from raysim.config.tables import WatchTable
from raysim.watching.loggers.logger import LoggedRun
from tests.benchmarks import jobs, memory, plain, record, rounds, stamps, watch
from tests.benchmarks.command import STAMPS, Command, experiment_of, run, timed
from tests.benchmarks.peers.loads import LOADS, Load, check, make, read
from tests.benchmarks.stamps import Stamps

TINY = Load("mlp", (1, 28, 28), clients=6, samples=20, cohort=4)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setitem(LOADS, "A", TINY)
    path = rounds.population(TINY, make("A"), tmp_path / "population")
    return experiment_of(TINY, {"population": str(path)}, 3)


@pytest.mark.slow
def test_all_ways_of_a_round_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long rounds: some must be left when Ray's actors are there.
    monkeypatch.setitem(LOADS, "A", replace(TINY, epochs=300))
    found = rounds.measure("A", None, repeats=1, rounds=2, folder=tmp_path, own=100)
    assert {"plain loop", "two plain loops", rounds.RAYSIM, rounds.WALL} < set(found)
    assert all(value > 0 for value in found.values())


@pytest.mark.slow
def test_rounds_count_only_on_all_actors(tmp_path: Path, tiny: dict[str, Any]) -> None:
    done = run({**tiny, "watch": {"loggers": [STAMPS]}}, tmp_path / "run", "--inline")
    assert sorted(stamps.read(done.folder, "fedavg")) == [1, 2, 3]
    assert 0 < done.stages()["training"] < sum(done.stages().values()) <= done.seconds
    assert not done.counts()
    assert done.round_seconds() == []


def finished(folder: Path, owners: list[int]) -> Command:
    """Return a command whose rounds had one client update each, by these actors."""
    (folder / "fedavg").mkdir(parents=True)
    numbers = list(range(1, len(owners) + 1))
    pq.write_table(pa.table({"round": numbers, "machine_actor": owners}), folder / "fedavg" / "updates.parquet")
    pq.write_table(pa.table({"round": numbers, "seconds": [0.5] * len(owners)}), folder / "fedavg" / "metrics.parquet")
    return Command(folder, 0.0)


def test_the_wall_clock_counts_work_between_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, logger = finished(tmp_path, [-1, 0, 1, 0, 1, 0, 1]), Stamps()
    clock = iter([10.0, 20.0, 30.0, 31.0, 32.0, 40.0, 33.0, 35.0])
    monkeypatch.setattr(stamps.time, "perf_counter", lambda: next(clock))
    logger.begin(LoggedRun("run", tmp_path / "watch", WatchTable()))
    logger.algorithm("fedavg", {}, 0)
    for number in (1, 2, 3, 4, 5, 6, 6, 7):  # round 6 is repeated
        logger.round(number, {})
    logger.end({})
    logger.close()
    assert done.round_seconds() == [0.5, 0.5]
    assert done.wall_seconds() == [1.0, 2.0]


def test_memory_counts_only_on_all_actors(tmp_path: Path) -> None:
    finished(tmp_path / "both", [-1, 0, 1, 0, 1, 0])
    memory.check_actors("A", tmp_path / "both")
    finished(tmp_path / "one", [-1, 0, 0, 0, 0, 0])
    with pytest.raises(SystemExit, match=r"^load A: its 200 rounds ended before all 2 actors had trained; raise .*$"):
        memory.check_actors("A", tmp_path / "one")


def test_the_data_of_a_peer_are_checked_without_reading_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOADS, "A", TINY)
    arrays, file = make("A"), tmp_path / "a.npz"
    np.savez(file, **arrays)
    assert read(file, "A")[0].shape == arrays["x"].shape
    with monkeypatch.context() as patched:
        patched.setattr(np, "load", None)
        check(file, "A")
    np.savez(file, x=arrays["x"][1:], y=arrays["y"])
    with pytest.raises(SystemExit, match=r"x \(5, 20, 1, 28, 28\) and y \(6, 20\) are not load A's$"):
        check(file, "A")
    np.savez(file, x=arrays["x"])
    with pytest.raises(SystemExit, match=r"cannot be read as the data of load A: .*y\.npy"):
        check(file, "A")
    file.write_bytes(b"no archive")
    with pytest.raises(SystemExit, match="cannot be read as the data of load A"):
        check(file, "A")


@pytest.mark.slow
def test_a_command_that_fails_is_told_in_one_line(tmp_path: Path, tiny: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match=r"local\.lr = -1") as told:
        run({**tiny, "local": {"lr": -1}}, tmp_path / "run", "--inline")
    assert "\n" not in str(told.value)


def test_a_language_model_is_trained_by_hand_and_by_the_command_on_the_same_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = replace(LOADS["L"], clients=3, samples=2, cohort=2)
    monkeypatch.setitem(LOADS, "L", load)
    path = rounds.population(load, make("L"), tmp_path / "L")
    (inputs, following), *_ = plain.samples_of(path, load)
    assert inputs.shape == following.shape == (2, *load.shape)
    assert torch.equal(inputs[:, 1:].long(), following[:, :-1])
    loop = plain.PlainLoop([(inputs, following)] * load.clients, load)
    before = {name: value.clone() for name, value in loop.module.state_dict().items()}
    loop.round(1)
    assert all("lora" in name for name in loop.start), "only adapters are sent"
    assert any(not torch.equal(value, before[name]) for name, value in loop.start.items())
    Experiment.of(experiment_of(load, {"population": str(path)}, 1), [tmp_path])


def test_the_memory_of_all_processes_is_seen() -> None:
    alone = [sys.executable, "-c", "held = b'x' * (64 * 2**20); input()"]
    with psutil.Popen(alone, stdin=subprocess.PIPE) as process:
        while (one := memory.seen(process)).main < 64:
            assert process.poll() is None
        process.communicate(b"\n")
    assert (one.largest, one.total) == (0, one.main)
    nested = [sys.executable, "-c", f"import subprocess; subprocess.run({alone!r})"]
    with psutil.Popen(nested, stdin=subprocess.PIPE) as process:
        while (both := memory.seen(process)).largest < 64:
            assert process.poll() is None
        process.communicate(b"\n")
    assert both.main < 64 and both.total == both.main + both.largest


def test_a_way_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(SystemExit, match=r"-c raise SystemExit\('no room'\): no room$"):
        memory.watched([sys.executable, "-c", "raise SystemExit('no room')"])


def test_load_d_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    load = replace(LOADS["D"], clients=4, samples=20, cohort=2, rounds=2, test_every=1, test_samples=30)
    monkeypatch.setitem(LOADS, "D", load)
    jobs.run_plain_d(rounds.population(load, make("D"), tmp_path / "D"))
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]


@pytest.mark.skipif("RAYSIM_TEST_DATA" not in os.environ, reason="needs MNIST")
def test_load_i_by_hand(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(LOADS, "I", replace(LOADS["I"], rounds=1))
    jobs.run_plain_i(jobs.mnist(None))
    _, accuracy, *_ = (float(value) for value in capsys.readouterr().out.split())
    assert 0.05 < accuracy < 1


def test_mnist_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"holds no MNIST/raw/.*; give --data, or set RAYSIM_TEST_DATA"):
        jobs.mnist(tmp_path)


def test_scores_by_client_equal_scikit_learn() -> None:
    random = torch.Generator().manual_seed(0)
    logits, y = torch.randn(60, 4, generator=random), torch.randint(4, (60,), generator=random)
    owners = torch.arange(3).repeat_interleave(20)
    found = jobs.scores(torch.nn.Identity(), logits, y, owners)
    cuts = [(logits[owners == client], y[owners == client]) for client in range(3)]
    for value, expected in zip(
        found,
        (
            [float((x.argmax(1) == own).double().mean()) for x, own in cuts],
            [float(cross_entropy(x, own)) for x, own in cuts],
            [f1_score(own, x.argmax(1), average="macro") for x, own in cuts],
            [f1_score(own, x.argmax(1), average="weighted") for x, own in cuts],
        ),
        strict=True,
    ):
        assert value == pytest.approx(sum(expected) / 3, rel=1e-6)


def test_scores_leave_absent_classes_out() -> None:
    y = torch.tensor([0, 0, 1])
    found = jobs.scores(torch.nn.Identity(), one_hot(torch.tensor([0, 1, 1]), 5).float(), y, torch.zeros(3).long())
    assert found[2] == pytest.approx(2 / 3)


def test_a_loss_of_speed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"figures": {rounds.RAYSIM: 1.0, record.IDEAL: 2.0}, "commit": "abc"}
    monkeypatch.setattr(watch, "load_record", lambda: {"E": entry})
    slower = watch.compared("E", {rounds.RAYSIM: 1.8, record.IDEAL: 2.0})
    assert (slower.now, slower.before, slower.commit) == (0.9, 0.5, "abc")
    assert slower.change == pytest.approx(0.8)
    assert slower.verdict.startswith("slower")
    assert watch.compared("E", {rounds.RAYSIM: 1.05, record.IDEAL: 2.0}).verdict == "within noise"
    assert watch.compared("B", {rounds.RAYSIM: 1.0, record.IDEAL: 2.0}).verdict == "no record"


@pytest.mark.parametrize("page", record.PAGES, ids=lambda page: str(page.name))
def test_the_pages_show_the_record(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert record.MARKED.search(text)
    assert record.filled(text, record.load_record()) == text, "run: uv run python -m tests.benchmarks.record"


def test_tables_show_the_wall_clock_once_it_is_recorded() -> None:
    def having(title: str) -> dict[str, Any]:
        """Return the loads of rounds with this figure in place of the wall clock."""
        found = {load: {**entry, "figures": {**entry["figures"]}} for load, entry in record.load_record().items()}
        for entry in found.values():
            entry["figures"].pop(rounds.WALL, None)
            entry["figures"][title] = 0.25
        return {load: found[load] for load in record.ROUNDS if load in found}

    before, after = having(record.LOGGED), having(rounds.WALL)
    assert f"| {record.ROWS[rounds.RAYSIM]} |" in (shown := record.readme_table(before)) and "run.log" in shown
    assert f"| {record.ROWS[rounds.WALL]} | 0.250" in (shown := record.readme_table(after))
    assert "stages" not in shown and "run.log" not in shown
    both = record.rounds_table(after)
    assert record.ROWS[rounds.WALL] in both and record.ROWS[rounds.RAYSIM] in both and "run.log" not in both


def test_a_new_record_of_the_large_cohort_is_shown() -> None:
    before = record.load_record()
    after = {**before, "G": {**before["G"], "figures": {rounds.WALL: 1.5, rounds.RAYSIM: 1.25}}}
    assert "| G | 10,000 | 10,000 | – | 1.25 |" in (shown := record.scale_table(after))
    assert "one process" not in shown


def test_a_parent_adds_no_memory_to_a_command() -> None:
    assert isinstance(timed(["-c", "pass"]), float)
    assert not [title for entry in record.load_record().values() for title in entry["figures"] if "MiB of" in title]


@pytest.mark.parametrize("load", watch.OVER)
def test_what_is_watched_has_a_record(load: str) -> None:
    assert (watch.ratio(load, record.load_record()[load]["figures"]) or 0) > 0
