"""`[uplink]` and `[downlink]`: tables, and a user's own stages."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysim
from algorithms import Downlink, Quantise, TopK
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.read import changed
from tests.kit.runs import quick_run

MODULE = """
from dataclasses import dataclass, replace

from algorithms import Stage


@dataclass(frozen=True)
class Scaled(Stage):
    factor: float

    def __call__(self, changes):
        return replace(changes, values=self.factor * changes.values)


@dataclass(frozen=True)
class Picky(Scaled):
    factor: float = 1.0
    least: float = 1.0

    def __post_init__(self):
        if not self.least > 0:
            raise ValueError("least must be above 0")


class Abstract(Stage):
    pass


class Bare(Stage):
    def __call__(self):
        return self


class Loose:
    def __call__(self, changes):
        return changes


def double(changes):
    return changes
"""

BASE: dict[str, Any] = {
    "seed": 5,
    "rounds": 2,
    "data": {"dataset": "digits", "test": 0.2},
    "partition": {"clients": 4},
    "model": {"hidden": [8]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a module of stages, which is forgotten at the end."""
    (tmp_path / "own_stages.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("own_stages", None)


def chain(**keys: Any) -> dict[str, Any]:
    return {"chain": [keys]}


@pytest.mark.parametrize("where", ["uplink", "downlink"])
def test_a_stage_of_the_user_s_own(where: str, folder: Path) -> None:
    """Times 0 leaves the initial model, times 1 the plain one, also if the stage stands inside [algorithm]."""
    base = {**BASE, "modules": [str(folder)]}
    names = {}
    for name, change in {
        "initial": {"rounds": 0},
        "plain": {},
        "none": {where: chain(name="own_stages:Scaled", factor=0.0)},
        "whole": {"algorithm": {"name": "fedavg", where: chain(name="own_stages:Scaled", factor=1.0)}},
    }.items():
        quick_run({**base, **change}, folder / name, inline=True)
        names[name] = (folder / name / "fedavg" / "model.safetensors").read_bytes()
    assert names["none"] == names["initial"] != names["plain"] == names["whole"]
    text = (folder / "none" / "config.toml").read_text()
    assert 'name = "own_stages:Scaled"' in text and "factor = 0.0" in text and str(folder) in text


def test_actors_have_a_stage_of_the_user_s_own(folder: Path, two_actors: raysim.Actors) -> None:
    config = {**BASE, "modules": [str(folder)], "uplink": chain(name="own_stages:Scaled", factor=0.5)}
    for name, place in {"inline": {"inline": True}, "actors": {"fleet": two_actors}}.items():
        quick_run(config, folder / name, **place)
    models = [(folder / name / "fedavg" / "model.safetensors").read_bytes() for name in ("inline", "actors")]
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"name": "own_stages:Loose"}, "must be a class derived from algorithms.Stage"),
        ({"name": "own_stages:double"}, "must be a class derived from algorithms.Stage"),
        ({"name": "own_stages:Scald"}, "did you mean 'own_stages:Scaled'"),
        ({"name": "own_stages:Scaled"}, "without 'factor': must be given"),
        ({"name": "own_stages:Scaled", "factr": 1.0, "factor": 1.0}, "did you mean 'factor'"),
        ({"name": "no_such_module:Scaled"}, "no module 'no_such_module'"),
        ({"name": "own_stages:Abstract"}, "must define __call__"),
        ({"name": "own_stages:Picky", "least": 0.0}, "raised ValueError: least must be above 0"),
        ({"name": "own_stages:Bare"}, "must take (changes), and does not"),
    ],
)
@pytest.mark.parametrize("where", ["uplink", "downlink"])
def test_wrong_stages_are_refused(where: str, stage: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(InputError) as error:
        Experiment.of({**BASE, where: {"chain": [stage]}}, [folder])
    assert message in str(error.value) and f"{where}.chain" in str(error.value) and "\n" not in str(error.value)


def test_an_algorithm_s_own_downlink_replaces_the_common_one() -> None:
    tables = [{"name": "fedavg"}, {"name": "fedbn", "downlink": chain(name="quantise", levels=4)}, {"name": "fedprox"}]
    tables[2]["downlink"] = {"chain": []}
    experiment = Experiment.of({**BASE, "downlink": chain(name="top-k", share=0.1), "algorithm": tables})
    downlinks = [table.compose().option(Downlink) or Downlink() for table in experiment.algorithm]
    assert downlinks == [Downlink((TopK(0.1),)), Downlink((Quantise(4),)), Downlink()]
    assert Experiment.of(experiment.to_toml()) == experiment
    assert experiment.flat("fedbn")["downlink.chain"] == [{"name": "quantise", "levels": 4}]


@pytest.mark.parametrize("where", ["uplink", "downlink"])
@pytest.mark.parametrize(
    ("stage", "key", "remedy"),
    [
        ({"name": "top-k", "share": 2.0}, "top-k.share", 0.01),
        ({"name": "quantise", "levels": 0}, "quantise.levels", 16),
        ({"name": "quantise", "levels": "x"}, "quantise.levels", 16),
        ({"name": "own_stages:Picky", "factor": "x"}, "Picky.factor", 1.0),
    ],
)
def test_a_wrong_value_is_named_by_the_path_that_sets_it(
    where: str, stage: dict[str, Any], key: str, remedy: float, folder: Path
) -> None:
    chain = [{"name": "own_stages:Scaled", "factor": 1.0}, stage]
    raw = {**BASE, "modules": [str(folder)], where: {"chain": chain}}
    path = f"{where}.chain.{key}"
    with pytest.raises(InputError, match=f"^{path} = ") as error:
        Experiment.of(raw)
    _, _, advice = str(error.value).partition("; ")
    assert "set" not in advice or f"{path} = " in advice or f"{path}=" in advice
    Experiment.of(changed(raw, [f"{path}={remedy}"]))
