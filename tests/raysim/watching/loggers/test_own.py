"""A logger of one's own; and that whatever a logger does, the run goes on to the same bytes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.common.errors import InputError
from raysim.config.tables import WatchTable
from raysim.watching.loggers.logger import LOGGERS, loggers_of
from tests.kit.logged import EXPERIMENT, Heard, same_bytes, watched
from tests.kit.runs import quick_run

MODULE = """
import os
import random
import time
from pathlib import Path

import numpy as np
import torch


def loss(outputs, labels):
    draw = torch.rand(()).item() + np.random.rand() + random.random()
    return torch.nn.functional.cross_entropy(outputs, labels, reduction="none") * draw


class Writes:
    def begin(self, run):
        run.folder.mkdir(exist_ok=True)
        self.file = (run.folder / f"{type(self).__name__}.txt").open("w")
        self.tell("begin", run.name, run.project)

    def tell(self, *words):
        print(*words, file=self.file, flush=True)

    def algorithm(self, name, settings, done):
        self.tell("algorithm", name, settings["local.lr"], done)

    def round(self, number, row):
        self.tell("round", number, "test_accuracy" in row, "test_auc" in row)

    def end(self, summary):
        self.tell("end", summary["rounds"], summary["test_accuracy"])

    def close(self):
        self.tell("close")
        self.file.close()


class Raises(Writes):
    def round(self, number, row):
        if number == 2:
            raise ConnectionError("the server\\nis down")
        super().round(number, row)


class Hangs(Writes):
    def round(self, number, row):
        if number == 2:
            time.sleep(3600)
        super().round(number, row)


class Needs(Writes):
    def __init__(self, key):
        pass


class Draws(Writes):
    def round(self, number, row):
        torch.set_default_dtype(torch.float64)
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            torch.rand(()), np.random.rand(), random.random()


class Dies(Writes):
    def round(self, number, row):
        os._exit(3)


class Halves:
    def begin(self, run):
        pass
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_loggers.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_loggers", None)


def test_loggers_that_write_raise_and_hang_change_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.watching.loggers.threads.CLOSE_SECONDS", 1)
    plain, heard = watched(tmp_path / "plain").folder, Heard()
    watch = {"loggers": [f"own_loggers:{logger}" for logger in ("Writes", "Raises", "Hangs")]}
    run = quick_run({**EXPERIMENT, "watch": watch}, tmp_path / "run", inline=True, watcher=heard)
    assert same_bytes(plain, run.folder)
    raises = "logger own_loggers:Raises failed (ConnectionError: the server is down); the run continues without it"
    hangs = "logger own_loggers:Hangs has not processed all rounds in 1 s: the run ends without it"
    notices = [text for text in heard.notices if "is not part of raysim" not in text]
    assert notices == [raises, hangs]
    assert all(text in (run.folder / "run.log").read_text() for text in notices)

    told = {path.stem: path.read_text().splitlines() for path in (run.folder / "watch").glob("*.txt")}
    whole = told["Writes"]
    assert whole[:3] == ["begin run run", "algorithm fedavg 0.05 0", "round 1 False False"]
    assert whole[3] == "round 2 True True" and len(whole) == 2 * 8 + 2
    assert whole[8].startswith("end 6 0.") and whole[9] == "algorithm radfed 0.05 0" and whole[-1] == "close"
    assert told["Raises"] == [*whole[:3], "close"] and told["Hangs"] == whole[:3]


def test_what_a_logger_draws_and_sets_is_its_own(tmp_path: Path) -> None:
    own = {**EXPERIMENT, "algorithm": {"name": "fedavg"}, "local": {**EXPERIMENT["local"], "loss": "own_loggers:loss"}}
    heard, models = Heard(), []
    for name, loggers in (("plain", []), ("watched", ["own_loggers:Draws", "own_loggers:Dies"])):
        run = quick_run({**own, "watch": {"loggers": loggers}}, tmp_path / name, inline=True, watcher=heard)
        models.append((run.folder / "fedavg" / "model.safetensors").read_bytes())
    assert models[0] == models[1]
    notices = [text for text in heard.notices if "is not part of raysim" not in text]
    ended = "failed (its process ended with the exit code 3); the run continues without it"
    assert notices == [f"logger own_loggers:Dies {ended}"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"loggers": ["tensorbord"]}, "unknown watch.loggers = 'tensorbord': .*did you mean 'tensorboard'"),
    ({"loggers": ["own_loggers:Halves"]}, "must be a class with begin, algorithm, .*, and has no algorithm"),
    ({"loggers": ["own_loggers:Needs"]}, "must be callable without arguments"),
    ({"loggers": ["own_loggers:Nothing"]}, "Nothing"),
    ({"loggers": ["tensorboard", "tensorboard"]}, "should name each only once"),
    ({"loggers": "tensorboard"}, "watch.loggers"),
    ({"mlflow_uri": "http://localhost:5000"}, "watch.mlflow_uri = .*: must stand with the logger 'mlflow'"),
    ({"loggers": ["tensorboard"], "wandb_mode": "online"}, "watch.wandb_mode = 'online': must stand with"),
]


@pytest.mark.parametrize(("watch", "message"), WRONG)
def test_wrong_input_is_refused_before_training(watch: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        raysim.run({**EXPERIMENT, "watch": watch}, tmp_path / "run", inline=True)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", LOGGERS)
def test_an_extra_that_is_not_installed_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where Python finds no package that was not imported before.
    for package in LOGGERS[name][1]:
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(InputError, match=rf'run `uv sync --extra {name}`, or `pip install "\.\[{name}\]"`') as error:
        loggers_of(WatchTable(loggers=(name,)))
    assert "\n" not in str(error.value)
