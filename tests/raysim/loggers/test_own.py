"""A logger of one's own; and that whatever a logger does, the run goes on to the same bytes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.config import WatchTable
from raysim.errors import InputError
from raysim.loggers import LOGGERS, made
from tests.raysim.loggers.runs import EXPERIMENT, Heard, same_bytes, watched

MODULE = """
import time
from pathlib import Path


class Writes:
    def begin(self, run):
        run.folder.mkdir()
        self.file = (run.folder / "told.txt").open("w")
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


class Needs(Writes):
    def __init__(self, key):
        pass


class Halves:
    def begin(self, run):
        pass
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watched(tmp_path_factory.mktemp("plain") / "run").folder


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_loggers.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_loggers", None)


def told(folder: Path, logger: str) -> tuple[list[str], list[str]]:
    heard = Heard()
    raw = {**EXPERIMENT, "watch": {"loggers": [f"own_loggers:{logger}"]}}
    raysim.run(raw, folder, inline=True, watcher=heard)
    notices = [text for text in heard.notices if "is no part of raysim" not in text]
    return (folder / "watch" / "told.txt").read_text().splitlines(), notices


def test_it_is_told_of_all(plain: Path, tmp_path: Path) -> None:
    lines, notices = told(tmp_path / "run", "Writes")
    assert notices == [] and same_bytes(plain, tmp_path / "run")
    assert lines[:3] == ["begin run run", "algorithm fedavg 0.05 0", "round 1 False False"]
    assert lines[3] == "round 2 True True" and len(lines) == 2 * 8 + 2
    assert lines[8].startswith("end 6 0.") and lines[9] == "algorithm radfed 0.05 0" and lines[-1] == "close"


def test_one_that_raises_is_told_no_more(plain: Path, tmp_path: Path) -> None:
    lines, notices = told(tmp_path / "run", "Raises")
    text = "logger own_loggers:Raises failed (ConnectionError: the server is down)"
    assert notices == [f"{text}; it is told no more, and the run goes on"]
    assert text in (tmp_path / "run" / "run.log").read_text()
    assert lines[2:] == ["round 1 False False", "close"] and same_bytes(plain, tmp_path / "run")


def test_one_that_hangs_is_left(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.loggers.telling.CLOSE_SECONDS", 0.2)
    _, notices = told(tmp_path / "run", "Hangs")
    assert notices == ["logger own_loggers:Hangs has not taken all rounds in 0.2 s: the run ends without"]
    assert same_bytes(plain, tmp_path / "run")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"loggers": ["tensorbord"]}, "unknown watch.loggers = 'tensorbord': .*did you mean 'tensorboard'"),
    ({"loggers": ["own_loggers:Halves"]}, "must be a class with begin, algorithm, .*, and has no algorithm"),
    ({"loggers": ["own_loggers:Needs"]}, "must be made without arguments"),
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
    for package in LOGGERS[name].needs:
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(InputError, match=rf'is not; pip install "raysim\[{name}\]"') as error:
        made(WatchTable(loggers=(name,)))
    assert "\n" not in str(error.value)
