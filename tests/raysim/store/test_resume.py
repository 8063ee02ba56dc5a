"""A run that was stopped, in whatever way, ends as one that was not."""

import importlib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import tomli_w
import torch

import raysim
from algorithms import Function, Local, Outcome, Participation, Server, fedavg
from algorithms.core.fleet import Block
from raysim import Run
from raysim.common.errors import InputError, ModelsLostError, RetriesSpentError, StoppedError
from raysim.fleet.inline import InlineFleet, InlineWorkplace
from raysim.measures.selection import EvaluationHistory
from raysim.store.config_file import write_config
from raysim.store.result import AlgorithmResult
from raysim.store.resume import shown, summary_of
from raysim.store.run_folder import locked
from raysim.watching.progress import Watcher
from tests.kit.commands import run_raysim
from tests.kit.runs import SMALL, Breaks, assert_same, broken, quick_resume, quick_run

MEASURED: dict[str, Any] = {
    **SMALL,
    "algorithm": [
        {"name": "radfed", "cohort": 3, "aggregate_every": 2},
        {"name": "fixbn", "cohort": 3, "fix_after": "window", "width": 2, "tau": 1.0},
        {"name": "fednova", "cohort": 2, "candidates": 4},
        {"name": "fednova", "cohort": 3},
    ],
    "evaluate": {"every": 1, "metrics": ["accuracy", "loss"], "measures": ["dc", "concordance", "dl", "bn"]},
}
"""With twins and other measures that remember something."""

CHOSEN: dict[str, Any] = {
    **SMALL,
    "rounds": 12,
    "local": {"batch_size": 20, "lr": 1.0},
    "algorithm": [{"name": "fedbn", "cohort": 2}, {"name": "fedasync", "cohort": 2, "max_staleness": 3}],
    "evaluate": {
        "every": 1,
        "metrics": ["accuracy"],
        "select": "best",
        "patience": 2,
        "target": {"test_accuracy": 0.2},
    },
}
"""The best round's model, early stopping, and targets."""


def results(run: Run) -> list[Any]:
    """What a run returns, but for times."""
    return [{**vars(result), "seconds": 0, "metrics": str(result.metrics)} for result in run.results]


class Pair:
    """A run that was not stopped, and one that was."""

    def __init__(self, folder: Path, config: dict[str, Any], watcher: Breaks) -> None:
        self.one, self.other, self.watcher = folder / "one", folder / "other", watcher
        self.runs = quick_run(config, self.one, inline=True), broken(config, self.other, watcher)


@pytest.mark.parametrize(("config", "after"), [(MEASURED, 3), (CHOSEN, 4)])
def test_what_measures_and_choices_remember(tmp_path: Path, config: dict[str, Any], after: int) -> None:
    pair = Pair(tmp_path, config, Breaks(after, ("radfed", "fedbn")))
    assert len(pair.watcher.seen) == len(config["algorithm"])
    for name in pair.watcher.seen:
        assert_same(pair.one, pair.other, name)
    if config is CHOSEN:
        assert any(result.stopped_early for result in pair.runs[0].results)
    assert results(pair.runs[0]) == results(pair.runs[1])
    one, other = (tomllib.loads((folder / "config.toml").read_text()) for folder in (pair.one, pair.other))
    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("config", [MEASURED, CHOSEN])
def test_a_stop_after_each_round_changes_nothing(tmp_path: Path, config: dict[str, Any]) -> None:
    for after in range(1, 6):
        pair = Pair(tmp_path / str(after), config, Breaks(after, None))
        for each in config["algorithm"]:
            assert_same(pair.one, pair.other, each["name"])


PERSONAL: dict[str, Any] = {**SMALL, "algorithm": {"name": "fedbn", "cohort": 3}}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds `whole`, a run, and `run`, the same one stopped after round 4, with two checkpoints."""
    folder, watcher = tmp_path_factory.mktemp("stopped"), Breaks(3, None)
    quick_run(PERSONAL, folder / "whole", inline=True)
    with pytest.raises(StoppedError) as error:
        raysim.run(PERSONAL, folder / "run", inline=True, watcher=watcher, stop=watcher.stop)
    what, complete, left, page, remedy = str(error.value).split("; ")
    assert (what, remedy) == ("stopped after round 4", f'continue with: raysim.resume("{folder / "run"}", inline=True)')
    assert (complete[:10], left[:14]) == ("complete: ", "not complete: ")
    assert page == f"{folder / 'run' / 'report.html'} shows the rounds so far" and (folder / "run/report.html").exists()
    assert len(list((folder / "run" / "fedbn" / "checkpoint").iterdir())) == 2
    return folder


@pytest.mark.parametrize(("torn", "goes_on"), [(0, "after round 4"), (1, "after round"), (2, "starts again")])
def test_damaged_checkpoints(stopped: Path, tmp_path: Path, torn: int, goes_on: str) -> None:
    """Also with what a kill leaves in a journal, and beside it."""
    shutil.copytree(stopped / "run", tmp_path / "run")
    folder, watcher = tmp_path / "run" / "fedbn", Breaks(0)
    for path in sorted((folder / "checkpoint").iterdir(), reverse=True)[:torn]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    for name in ("metrics", "updates"):
        with (folder / f"{name}.journal").open("r+b") as journal:
            journal.seek(0, os.SEEK_END)
            journal.write((folder / "updates.journal").read_bytes()[:99])
    (folder / ".metrics.partial.parquet").write_bytes(b"half")
    (tmp_path / "run" / ".population.1a2b3c4d.draft").mkdir()
    quick_resume(tmp_path / "run" / "fedbn", inline=True, watcher=watcher)
    assert sum("sha256" in text for text in watcher.notices) == torn
    assert any(goes_on in text for text in watcher.notices)
    assert_same(stopped / "whole", tmp_path / "run", "fedbn")
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.endswith(".draft")]


def test_a_stop_while_the_end_is_written(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped / "run", tmp_path / "run")
    for name in ("personal.safetensors", "metrics.parquet"):
        shutil.copy(stopped / "whole" / "fedbn" / name, tmp_path / "run" / "fedbn")
    (tmp_path / "run" / "fedbn" / ".updates.partial.parquet").write_bytes(b"half")
    quick_resume(tmp_path / "run", inline=True)
    assert_same(stopped / "whole", tmp_path / "run", "fedbn")


def test_a_run_that_has_ended_says_so(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(stopped / "whole", tmp_path / "run")
    (tmp_path / "run" / "fedbn" / "metrics.journal").write_bytes(b"left behind")
    status, out, err = run_raysim(capsys, "resume", tmp_path / "run", "--inline")
    assert status == 0 and "has ended: nothing is left to do" in err and "fedbn" in out
    assert (tmp_path / "run" / "report.html").exists()
    assert_same(stopped / "whole", tmp_path / "run", "fedbn")


def test_what_cannot_be_resumed(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(folder: Path) -> str:
        status, _, err = run_raysim(capsys, "resume", folder, "--inline")
        assert status == 2 and "Traceback" not in err
        return err.splitlines()[-1]

    assert "must be the folder of a run" in refused(tmp_path)
    assert "must be the folder of a run" in refused(stopped / "run" / "population")
    shutil.copytree(stopped / "run", tmp_path / "run")
    with locked(tmp_path / "run"):
        assert "another process runs it" in refused(tmp_path / "run")
    path = tmp_path / "run" / "config.toml"
    config = path.read_text()
    path.write_text(config.replace("rounds = 5", "rounds = 6"))
    assert "config.toml: rounds was changed" in refused(tmp_path / "run")
    path.write_text(config[: len(config) // 2])
    assert "config.toml" in refused(tmp_path / "run")
    write_config(path, tomllib.loads(config) | {"rounds": 6})
    assert "was begun with rounds = 5.0, and here it is 6.0" in refused(tmp_path / "run")
    write_config(path, tomllib.loads(config.replace('"fedbn"', '"__main__:mine"')))
    assert "call raysim.resume in that script" in refused(tmp_path / "run")
    assert (tmp_path / "run" / "fedbn" / "checkpoint").exists()


class Second(Watcher):
    """Ends a run when its second algorithm begins."""

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        if name == "fedavg":
            raise ZeroDivisionError


def test_all_algorithms_of_a_run_have_one_population(tmp_path: Path) -> None:
    config = {**SMALL, "rounds": 1, "algorithm": [{"name": "fedsmb"}, {"name": "fedavg"}]}
    with pytest.raises(ZeroDivisionError):
        quick_run(config, tmp_path / "run", inline=True, watcher=Second())
    quick_run({**config, "seed": 4, "rounds": 0}, tmp_path / "other", inline=True)
    shutil.rmtree(tmp_path / "run" / "population")
    shutil.copytree(tmp_path / "other" / "population", tmp_path / "run" / "population")
    with pytest.raises(InputError, match=r"run/fedsmb was begun with population = .*: must be the same"):
        raysim.resume(tmp_path / "run", inline=True)


STEP = """
from dataclasses import dataclass, replace

from algorithms import Algorithm, Assign, Local, PendingRound, Participation, Server, fedavg, start_synchronous


@dataclass(frozen=True)
class Memory:
    rounds: tuple[int, ...]


@dataclass(frozen=True)
class Remembers:
    held: bool

    def __call__(self, state, algorithm, fleet, *, last):
        memory = state.of("mine").get("memory")
        before = () if memory is None else memory.rounds
        assert not self.held or before == tuple(range(state.round)), before
        pending = start_synchronous(state, algorithm, fleet, last=last)
        memory = {"memory": Memory((*before, len(before)))} if self.held else {"rounds": {1}}
        return PendingRound(lambda: pending.finish().keeping("mine", memory))


def mine(participation: Participation, local: Local, server: Server = Assign(), *, held: bool = True) -> Algorithm:
    return replace(fedavg(participation, local, server), own_round=Remembers(held))
"""


def test_a_step_of_one_s_own_finds_its_memory_and_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_step.py").write_text(STEP)
    config, watcher = {**SMALL, "algorithm": {"name": "own_step:mine", "cohort": 3}}, Breaks(2, None)
    (tmp_path / "code" / "x.toml").write_text(tomli_w.dumps(config))
    with pytest.raises(StoppedError):
        quick_run(tmp_path / "code" / "x.toml", tmp_path / "run", inline=True, watcher=watcher, stop=watcher.stop)
    sys.modules.pop("own_step")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code" / "own_step.py").write_text(STEP + "# mended\n")
    with pytest.raises(
        InputError,
        match=r"own_step.py has changed since the run began: must be the same, .*; undo that, or start a new run",
    ):
        raysim.resume("run", inline=True)
    (tmp_path / "code" / "own_step.py").write_text(STEP)
    sys.modules.pop("own_step")
    assert quick_resume("run", inline=True).results[0].rounds == 5
    changes = ["algorithm.mine.held=false"]
    with pytest.raises(InputError, match=r"state.memory\['mine'\]\['rounds'\] = builtins.set: must be a plain value"):
        quick_run(tmp_path / "code" / "x.toml", "refused", inline=True, changes=changes)
    sys.modules.pop("own_step")


LATE = """
from algorithms.fedavg import fedavg as flat

def error(outputs, y):
    import late_helper  # after the run has begun
    return late_helper.error(outputs, y)
"""


def test_modules_beside_one_s_own_need_not_be_loaded_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget() -> None:
        for name in ("late_own", "late_helper", "late_other"):
            sys.modules.pop(name, None)

    helper = "def error(outputs, y): return (outputs.argmax(1) != y).double()\n"
    for name, code in {"late_own": LATE, "late_helper": helper, "late_other": ""}.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("late_other")
    names = ["fedavg", "late_own:flat"]
    evaluate = {"every": 1, "metrics": ["accuracy", "late_own:error"]}
    config = {**SMALL, "algorithm": [{"name": name, "cohort": 3} for name in names], "evaluate": evaluate}
    watcher = Breaks(2, ["flat"])
    watcher.seen.add("fedavg")
    with pytest.raises(StoppedError):
        quick_run(config, tmp_path / "run", inline=True, watcher=watcher, stop=watcher.stop)
    forget()
    (tmp_path / "late_helper.py").write_text(f"{helper}# mended\n")
    with pytest.raises(InputError, match=r"late_helper.py has changed since the run began"):
        quick_resume(tmp_path / "run", inline=True)
    (tmp_path / "late_helper.py").write_text(helper)
    forget()
    assert quick_resume(tmp_path / "run", inline=True).results[1].rounds == 5
    forget()


class Wrong(Watcher):
    def round(self, number: int, metrics: dict[str, float]) -> None:
        if number == 2:
            raise InputError("a shard is damaged: restore it")


def test_input_that_turns_out_wrong_after_a_round_leaves_the_rounds(stopped: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^a shard is damaged: restore it; .*raysim\.resume\(.*run"):
        quick_run(PERSONAL, tmp_path / "run", inline=True, watcher=Wrong())
    quick_resume(tmp_path / "run", inline=True)
    assert_same(stopped / "whole", tmp_path / "run", "fedbn")


class LosingFleet(InlineFleet):
    """Loses what travels at some of its maps, as a node does that dies."""

    maps = 0
    lost: frozenset[int] = frozenset()

    def map(self, function: Function, blocks: Sequence[Block], references: Sequence[Any] = ()) -> Iterator[Outcome]:
        type(self).maps += 1
        if self.maps in self.lost:
            raise ModelsLostError("node 1 died with 3 models")
        return super().map(function, blocks, references)


class Losing(InlineWorkplace):
    def fleet(self, plan: Any, done: Callable[[Block], None] = lambda block: None, *_: Any) -> InlineFleet:
        return LosingFleet(plan.build(), plan.census, plan.block_size, done)


def test_rounds_whose_models_are_lost_are_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**SMALL, "rounds": 7, "algorithm": {"name": "radfed", "cohort": 3, "aggregate_every": 3}}
    config["evaluate"] = {"every": 1, "metrics": ["accuracy", "loss"], "measures": ["dc", "concordance"]}
    monkeypatch.setattr("raysim.fleet.inline.InlineWorkplace", Losing)
    LosingFleet.maps, LosingFleet.lost = 0, frozenset()
    quick_run(config, tmp_path / "whole", inline=True)
    last = LosingFleet.maps  # of the clients' scores, after the last round
    for lost in ({5, 12, 20}, {13, 20, 28}, {last - 2, last + 1}):
        LosingFleet.maps, LosingFleet.lost, folder = 0, frozenset(lost), tmp_path / str(min(lost))
        quick_run(config, folder, inline=True)
        assert LosingFleet.maps > max(lost)
        assert_same(tmp_path / "whole", folder, "radfed")
        assert ("evaluating again" if last + 1 in lost else "repeating the rounds") in (folder / "run.log").read_text()
    LosingFleet.maps, LosingFleet.lost = 0, frozenset(range(8, 99))
    with pytest.raises(RetriesSpentError, match=r"^radfed: round \d: node 1 died with 3 models, 4 times in a row"):
        quick_run(config, tmp_path / "never", inline=True)
    LosingFleet.maps, LosingFleet.lost = 0, frozenset(range(last, last + 99))
    message = r"^radfed: evaluation: node 1 died with 3 models, 4 times in a row; check the nodes, and resume the run"
    with pytest.raises(RetriesSpentError, match=message):
        quick_run(config, tmp_path / "unscored", inline=True)


def test_the_text_of_an_algorithm_has_no_place_in_memory() -> None:
    class Rule:
        """An own rule without a text of its own."""

    ours, theirs = [replace(fedavg(Participation(0.5), Local()), server=cast(Server, Rule())) for _ in range(2)]
    assert repr(ours) != repr(theirs) and shown(ours) == shown(theirs)
    assert "Rule object>" in shown(ours)


def test_a_summary_needs_no_copy_of_one_s_own_parts() -> None:
    class Rule:
        """An own rule with a module, which cannot be copied."""

        def __init__(self) -> None:
            self.functions = torch.nn.functional

    algorithm = replace(fedavg(Participation(0.5), Local()), server=cast(Server, Rule()))
    result = AlgorithmResult("mine", algorithm, {"accuracy": 0.5}, history=EvaluationHistory(1, {"a": 1.0}, {"a": 3}))
    summary = summary_of(result, {"a": 0.9}, {})
    assert summary["metrics"] == {"accuracy": 0.5} and summary["best"] == {"a": {"value": 1.0, "round": 3}}
    assert json.dumps(summary)
