"""A user's own code may draw from the default generators, and change what others share, anywhere: bytes stay equal."""

# ruff: noqa: NPY002
# It is about NumPy's legacy generator.

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import raysim
from algorithms.training.forked import drawn
from raysim.common.errors import InputError
from tests.kit.ray import SharedRay
from tests.kit.runs import Breaks, assert_same, broken, quick_run

MINE = '''
import random
from dataclasses import dataclass, replace

import numpy as np
import torch
from algorithms import Assign, Option, Stage, fedavg
from algorithms.core.fleet import Around
from torch import nn
from torch.nn.functional import cross_entropy

{top}


def draw():
    """Draw from all three generators, then do what a careless user does."""
    drawn = torch.rand(()).item() + np.random.rand() + random.random()
    {then}
    return 0.1 * drawn


def loss(outputs, y):
    return cross_entropy(outputs, y, reduction="none") * (1 + draw())


class Train:
    def personal(self, model):
        return {{"noise": torch.full((3,), draw())}}

    def __call__(self, model, batches, context):
        for x, y in batches:
            loss = context.loss(model(x), y) * (1 + draw()) + 0 * context.state["noise"].sum()
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= context.lr * p.grad * (1 + context.state["noise"].sum() * 0.01)
        return {{"loss": loss.item(), "drawn": draw()}}


@dataclass(frozen=True)
class Dither(Stage):
    def __call__(self, changes):
        return replace(changes, values=changes.values * (1 + draw()))


def metric(outputs, y):
    return torch.rand(len(y)) + draw()


class Valued:
    def sums(self, outputs, y):
        return outputs[:, :1] * 0 + draw()

    def value(self, sums, samples):
        return sums[0] / samples + draw()


@dataclass(frozen=True)
class Rule:
    def __call__(self, model, mean, total, memory, layout):
        return replace(mean, floats=mean.floats * np.float32(1 + draw())), memory


@dataclass(frozen=True)
class Weights:
    def __call__(self, report):
        return 1 + draw()


@dataclass(frozen=True)
class Heavier(Around):
    def __call__(self, worker, block, *values):
        done = self.inner(worker, block, *values)
        done.value.models.total *= 1 + draw()
        return done


@dataclass(frozen=True)
class Lots(Option):
    name = "lots"
    viewed = ("viewed",)

    def client_columns(self, census, seed):
        return {{"lot": [draw() for _ in census.clients]}}

    def wrap(self, draft, updates):
        return Heavier(updates)

    def publish(self, draft, received, state):
        return state.keeping("lots", {{"round": draft.number}})

    def views_of(self, state, algorithm, fleet):
        if not state.of("lots"):  # of the view itself, and without end
            return {{}}
        model = replace(state.model, floats=state.model.floats * np.float32(1 + draw()))
        return {{"viewed": (replace(state.keeping("lots", {{}}), model=model), fleet)}}

    def tables(self, state, fleet):
        return {{"drawn": {{"x": [draw()]}}}}


def algorithm(participation, local, server=Assign()):
    return replace(fedavg(participation, local, server), weighting=Weights()).having(Lots())


class Made(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.flatten, self.layer = nn.Flatten(), nn.Linear(64, classes)
        with torch.no_grad():
            self.layer.weight += draw()

    def forward(self, x):
        return self.layer(self.flatten(x))


class Noisy(Made):
    def forward(self, x):
        return super().forward(x) + (draw() if self.training else 0)


def rare(outputs, y):
    """Draw only for batches of more than the trial's two samples."""
    return cross_entropy(outputs, y, reduction="none") * (1 + (np.random.rand() if len(y) > 2 else 0))
'''

OWN: dict[str, dict[str, Any]] = {
    "algorithm": {"name": "own_draws:algorithm"},
    "asynchronous": {"name": "fedasync", "local": {"loss": "own_draws:loss"}, "server": {"rule": "own_draws:Rule"}},
    "several": {
        "local": {"loss": "own_draws:loss"},
        "model": {"name": "own_draws:Noisy"},
        "uplink": {"chain": [{"name": "own_draws:Dither"}, {"name": "top-k", "share": 0.5}]},
        "downlink": {"chain": [{"name": "own_draws:Dither"}]},
        "server": {"rule": "own_draws:Rule"},
    },
    "redistributed": {"name": "radfed", "aggregate_every": 2, "local": {"loss": "own_draws:loss"}},
    "plain": {},  # the last one, after all others
}
"""Algorithms whose keys name a user's own code, all of them whose results are written."""

EXPERIMENT: dict[str, Any] = {
    "seed": 3,
    "rounds": 2,
    "data": {"dataset": "digits", "sample": 0.1},
    "partition": {"scheme": "iid", "clients": 5, "local_test": 0.2},
    "algorithm": [{"name": "fedavg", "cohort": 3, "label": f"own-{name}", **more} for name, more in OWN.items()],
    "model": {"hidden": [6]},
    "local": {"batch_size": 16},
    "fleet": {"block": 2},
    "evaluate": {
        "metrics": ["accuracy", "own_draws:metric", "own_draws:Valued"],
        "every": 2,
        "finetune": {"epochs": 1},
    },
}


# An update of one's own cannot be fine-tuned.
UPDATES = {
    **EXPERIMENT,
    "algorithm": [{"name": "fedavg", "cohort": 3, "label": "own-update", "local": {"update": "own_draws:Train"}}],
    "evaluate": {"metrics": ["accuracy"]},
}
CONFIGS = (EXPERIMENT, UPDATES)
NAMES = [(config, each["label"]) for config in CONFIGS for each in config["algorithm"]]

CARELESS = (
    "torch.manual_seed(7); np.random.seed(7); random.seed(7); torch.set_num_threads(3); np.seterr(all='ignore'); "
    "torch.set_default_dtype(torch.float64)"
)
"""Changes of what all code in a process shares."""


def module_at(folder: Path, top: str = "", then: str = "pass") -> None:
    (folder / "own_draws.py").write_text(MINE.format(top=top, then=then))
    sys.modules.pop("own_draws", None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("own_draws", None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, shared_ray: SharedRay) -> Iterator[Path]:
    """Return a folder of the same experiments: in this process, on two actors, and stopped and resumed."""
    folder = tmp_path_factory.mktemp("own_draws")
    module_at(folder)
    fleets: dict[str, dict[str, Any]] = {"inline": {"inline": True}, "two": {"fleet": shared_ray.actors(2)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for number, config in enumerate(CONFIGS):
            for way, fleet in fleets.items():
                torch.rand(1), np.random.rand(), random.random()
                quick_run(config, folder / f"{way}{number}", **fleet)
            torch.rand(1), np.random.rand(), random.random()
            broken(config, folder / f"stopped{number}", Breaks(1, None))
        yield folder
    sys.modules.pop("own_draws", None)


@pytest.mark.parametrize("way", ["two", "stopped"])
@pytest.mark.parametrize(("config", "name"), NAMES, ids=[name for _, name in NAMES])
def test_code_that_draws_gives_equal_bytes(runs: Path, config: dict[str, Any], name: str, way: str) -> None:
    one, other = (runs / f"{each}{CONFIGS.index(config)}" for each in ("inline", way))
    assert_same(one, other, name)
    for table in one.glob(f"{name}/drawn.parquet"):
        assert pq.read_table(table) == pq.read_table(other / name / table.name)


def test_draws_differ_between_clients_and_rounds(runs: Path) -> None:
    drawn_by = pq.read_table(runs / "inline1" / "own-update" / "updates.parquet")["reported"].to_pylist()
    assert len({str(each) for each in drawn_by}) == len(drawn_by) == 6


def shared_state() -> list[object]:
    """Return everything that user code can change for others in its process."""
    settings = [torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), np.geterr()]
    return [*settings, *drawn()]


def test_nobody_else_sees_careless_code(here: Path) -> None:
    module_at(here, f"{CARELESS}; torch.set_grad_enabled(False)", CARELESS)
    named = {each["label"]: each for each in EXPERIMENT["algorithm"]}
    beside = [{**named["own-several"], "model": EXPERIMENT["model"]}, named["own-plain"]]
    before = shared_state()
    quick_run({**EXPERIMENT, "algorithm": beside}, here / "beside", inline=True)
    assert shared_state() == before
    quick_run(
        {**EXPERIMENT, "algorithm": beside[-1:], "evaluate": {"metrics": ["accuracy"]}}, here / "alone", inline=True
    )
    one, other = ((here / run / "own-plain" / "model.safetensors").read_bytes() for run in ("beside", "alone"))
    assert one == other


def test_a_draw_that_a_stack_would_share_ends_the_run(here: Path) -> None:
    module_at(here)
    config = {
        **EXPERIMENT,
        "algorithm": {"name": "fedavg", "local": {"loss": "own_draws:rare", "execution": "vectorised"}},
    }
    with pytest.raises(InputError, match=r"own code draws random numbers .* set local.execution = .sequential."):
        raysim.run(config, "run", inline=True)
