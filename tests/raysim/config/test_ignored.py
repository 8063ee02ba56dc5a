"""Keys of a file that a user's own algorithm ignores are refused; those that it derives something from are not."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from algorithms import Momentum
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment

MODULE = """
import sys
from dataclasses import dataclass, replace
from functools import partial

from algorithms import (
    Algorithm, Assign, Local, Mix, Momentum, Packed, Participation, Rounds, Samples, Server, Sharing, fedavg, phases
)
from algorithms.rounds.next_round import start_round


@dataclass(frozen=True)
class Half:
    server: object = None

    def __call__(self, model, mean, total, memory, layout):
        return mean, memory


def printing(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    for stream in (sys.stdout, sys.stderr):
        print(type(server).__name__, local.lr, file=stream)
    return fedavg(participation, local, server)


def stepping(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return replace(fedavg(participation, local), server=Half())


def wrapping(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return replace(fedavg(participation, local), server=Half(server))


def later(participation: Participation, local: Local, server: Server = Momentum()) -> Algorithm:
    return phases(fedavg(participation, Local()), (2, fedavg(participation, replace(local, momentum=0.5), server)))


def drawing(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return Algorithm(Rounds(Participation(cohort=3)), local, Sharing(), Samples(), server)


def doubling(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return fedavg(replace(participation, cohort=2 * participation.cohort), replace(local, lr=2 * local.lr), server)


def training(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return fedavg(participation, Local(lr=0.01), server)


class Plain:
    def __init__(self, server):
        self.server = server

    def __call__(self, model, mean, total, memory, layout):
        return self.server(model, mean, total, memory, layout)


def holding(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return replace(fedavg(participation, local), server=Plain(server))


def enclosing(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    def own_round(state, algorithm, fleet, *, last):
        return start_round(state, replace(algorithm, server=server, own_round=None), fleet, last=last)

    return replace(fedavg(participation, local), own_round=own_round)


def binding(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return replace(fedavg(participation, local), own_round=partial(serving, server))


def serving(server, state, algorithm, fleet, *, last):
    return start_round(state, replace(algorithm, server=server, own_round=None), fleet, last=last)


def reading(participation: Participation, local: Local, server: Server = Mix(alpha=0.25)) -> Algorithm:
    return fedavg(participation, local, Momentum(lr=server.alpha))


def branching(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return fedavg(participation, local, Momentum(lr=getattr(server, "alpha", 1.0)))


def computing(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    return fedavg(Participation(cohort=int(20 * participation.fraction)), Local(epochs=2 * local.epochs), server)


def storing(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    STORED["server"] = server
    return replace(fedavg(participation, local), server=Stored())


STORED = {}


class Stored(Plain):
    def __init__(self):
        super().__init__(None)

    def __call__(self, model, mean, total, memory, layout):
        return STORED["server"](model, mean, total, memory, layout)
"""

WRAPPING = ("holding", "enclosing", "binding")
"""Algorithms that use the file's server rule, and show it only in a rule or a round of their own."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "own_ignoring.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_ignoring", None)


def experiment(folder: Path, name: str, keys: dict[str, Any]) -> Experiment:
    raw = {"rounds": 1, "data": {"dataset": "digits"}, "partition": {"scheme": "iid", "clients": 5}, **keys}
    raw["algorithm"] = {"name": f"own_ignoring:{name}", **keys.get("algorithm", {})}
    return Experiment.of(raw, [folder])


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("stepping", {"server": {"rule": "adam"}}, "server.rule = 'adam': must be left out for own_ignoring:stepping"),
        ("drawing", {"algorithm": {"cohort": 2}}, "algorithm.cohort = 2: must be left out for own_ignoring:drawing"),
        ("drawing", {"algorithm": {"sampling": "size"}}, "algorithm.sampling = 'size': must be left out for own_"),
        ("drawing", {"algorithm": {"active": 0.5}}, r"algorithm.active = 0.5: .* use replace\(participation, \.\.\.\)"),
        ("training", {"local": {"lr": 0.5}}, r"for own_ignoring:training \(own_ignoring.py, line \d+\), which has a"),
        ("training", {"local": {"loss": "binary"}}, "local.loss = 'binary': must be left out for"),
    ],
)
def test_an_ignored_key_is_refused(here: Path, name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        experiment(here, name, keys)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("stepping", {"server": {"rule": "assign"}, "algorithm": {"cohort": 2}, "local": {"lr": 0.5}}),
        ("wrapping", {"server": {"rule": "adam"}}),
        ("later", {"server": {"rule": "momentum", "beta": 0.5}, "local": {"lr": 0.5, "momentum": 0.9}}),
        ("drawing", {"algorithm": {"cohort": 3}, "server": {"rule": "adam"}}),
        ("doubling", {"algorithm": {"cohort": 2}, "local": {"lr": 0.5}}),
        ("training", {"local": {"lr": 0.01}}),
        ("training", {"local": {"execution": "sequential"}}),
        *((name, {"server": {"rule": "momentum"}}) for name in WRAPPING),
        *((name, {"server": {"rule": "mix", "alpha": 0.5}}) for name in WRAPPING),
        ("reading", {"server": {"rule": "mix", "alpha": 0.5}}),
        ("branching", {"server": {"rule": "mix", "alpha": 0.5}}),
        ("computing", {"algorithm": {"fraction": 0.5}, "local": {"epochs": 3}}),
        ("computing", {"algorithm": {"fraction": 0.5, "active": 0.5}}),
    ],
)
def test_a_key_that_is_used_or_the_default_is_taken(here: Path, name: str, keys: dict[str, Any]) -> None:
    assert experiment(here, name, keys).algorithm[0].name == f"own_ignoring:{name}"


def test_the_last_composition_has_the_files_values(here: Path) -> None:
    """Code that notes its arguments in its module must find those of the file."""
    experiment(here, "storing", {"server": {"rule": "momentum", "beta": 0.5}})
    assert sys.modules["own_ignoring"].STORED["server"] == Momentum(beta=0.5)


def test_a_composition_without_a_part_prints_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment(here, "printing", {"server": {"rule": "momentum", "beta": 0.5}, "local": {"lr": 0.5}})
    assert {line for stream in capsys.readouterr() for line in stream.splitlines()} == {"Momentum 0.5"}
