"""Cases: a seed draws an algorithm, an injury, and the moment; the run must end with the bytes of one left in peace."""

from __future__ import annotations

import atexit
import random
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import tomli_w

from algorithms.names import ALGORITHMS
from tests.fuzz.disturbed.grid import Grid
from tests.fuzz.disturbed.injuries import (
    Injury,
    SmallDisk,
    break_numbers,
    fill_disk,
    interrupt,
    kill_actor,
    kill_all_actors,
    kill_control_store,
    kill_driver,
    kill_node,
    kill_raylet,
    preempt,
    stop_actor,
    tear_checkpoint,
)
from tests.fuzz.disturbed.run import BRITTLE, OPTIONS, ROUNDS, Run, experiment, left
from tests.kit.runs import quick_run

INJURIES: dict[str, Injury] = {
    "an actor killed": kill_actor,
    "a node killed": kill_node,
    "all actors killed": kill_all_actors,
    "an actor stopped": stop_actor,
    "the own Ray's raylet killed": kill_raylet,
    "the own Ray's control store killed": kill_control_store,
    "the driver killed": kill_driver,
    "Ctrl-C, once or twice": interrupt,
    "SIGTERM": preempt,
    "the newest checkpoint torn": tear_checkpoint,
    "NaN from a client update": break_numbers,
    "the disk full": fill_disk,
}

FIRST_OPTION = 10_000
"""First seed whose run has one of the `OPTIONS`."""

RESUMED = 3
"""How often a run may have to be resumed; once, unless the moment was one before anything was on disk."""


@dataclass(frozen=True)
class Case:
    """What happens to which run, and when.

    Args:
        seed: draws everything.
    """

    seed: int

    @property
    def algorithm(self) -> str:
        """Each comes in its turn: a named algorithm, and from `FIRST_OPTION` on a run with an option."""
        names = sorted(ALGORITHMS if self.seed < FIRST_OPTION else OPTIONS)
        return names[self.seed % len(names)]

    @property
    def injury(self) -> str:
        """Each comes in its turn, with every algorithm in the end."""
        if self.seed < FIRST_OPTION:
            return sorted(INJURIES)[(self.seed + self.seed // len(INJURIES)) % len(INJURIES)]
        # The model that gives NaN has batch norm, which several options refuse.
        kinds = sorted(INJURIES.keys() - {"NaN from a client update"})
        return kinds[(3 * self.seed + self.seed // len(OPTIONS)) % len(kinds)]

    @property
    def on_grid(self) -> bool:
        """Whether client actors make the client updates: where the injury is to them, and sometimes else."""
        if "NaN" in self.injury or self.on_own_ray:  # a node's processes do not see when
            return False
        return "actor" in self.injury or "node" in self.injury or random.Random(self.seed).random() < 0.2

    @property
    def on_own_ray(self) -> bool:
        """Whether client actors of a Ray that the run starts make the client updates."""
        return "own Ray" in self.injury

    def __str__(self) -> str:
        place = "on nodes" if self.on_grid else "on its own Ray" if self.on_own_ray else "inline"
        return f"{self.seed}: {self.algorithm}, {self.injury}, {place}"


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Args:
        injured: whether the injury was done: the run had not ended before, and the actors were there.
        resumed: how often it was resumed.
        wrong: what is not as it should be; nothing where all bytes are equal.
    """

    injured: bool
    resumed: int
    wrong: str = ""


def survive(case: Case, folder: Path, grid: Grid | None) -> Outcome:
    """Run a case: disturbed at its moment, resumed until it is done, compared with a run that was left in peace.

    Args:
        case: which.
        folder: for its files, empty.
        grid: where its actors are; one that needs none runs in one process.
    """
    draw = random.Random(case.seed)
    own_ray = ("--actors", "2")
    options = (*own_ray, "--address", grid.address) if grid else own_ray if case.on_own_ray else ("--inline",)
    own_model = case.injury == "NaN from a client update"
    with SmallDisk(folder / "disk") if case.injury == "the disk full" else nullcontext(folder) as home:
        run = Run(home / "run", experiment(case.algorithm, own_model), options)
        injured = run.reaches(draw.randint(1, ROUNDS - 2))
        if injured:
            time.sleep(0.05 * draw.random())
            injured = INJURIES[case.injury](run, grid, draw)
        resumed = 0
        while (status := run.ends()) and resumed < RESUMED:
            if "Traceback" in run.said:
                return Outcome(injured, resumed, f"status {status} with a traceback: {run.said}")
            run.resume()
            resumed += 1
        if status:
            return Outcome(injured, resumed, f"status {status}: {run.said}")
        theirs, ours = undisturbed(case.algorithm, own_model), left(run.folder)
    wrong = [name for name in theirs if theirs[name] != ours[name]]
    return Outcome(injured, resumed, f"{', '.join(wrong)} differ" if wrong else "")


@cache
def undisturbed(algorithm: str, own_model: bool) -> dict[str, Any]:
    """What the run leaves that nothing happens to, in this process."""
    file = _peace() / f"{algorithm.replace(' ', '-')}-{own_model}.toml"
    file.write_text(tomli_w.dumps(experiment(algorithm, own_model)))
    quick_run(file, file.with_suffix(""), inline=True)
    return left(file.with_suffix(""))


@cache
def _peace() -> Path:
    """A folder for the runs that nothing happens to, and for the module that they import only once."""
    folder = Path(mkdtemp())
    atexit.register(rmtree, folder)
    (folder / "brittle.py").write_text(BRITTLE)
    return folder
