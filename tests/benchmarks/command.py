"""The command `raysim run` as a user gives it: seconds of the whole, and of its rounds once all actors work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from raysim.store.wall_clock import read_commands
from tests.benchmarks import stamps
from tests.benchmarks.peers.loads import Load
from tests.benchmarks.plain import WARM, model_table

ACTORS = 2
STAMPS = "tests.benchmarks.stamps:Stamps"
"""Entry of `watch.loggers` that notes the end of each round."""

LEAST, COUNTED_SECONDS, LONGER = 8, 3.0, 3
"""Fewest rounds of a median, fewest seconds that they take, and factor by which a run with less is repeated longer."""


@dataclass(frozen=True)
class Command:
    """A command that has ended.

    Args:
        folder: folder of the run.
        seconds: duration from exec to exit.
    """

    folder: Path
    seconds: float

    def round_seconds(self, name: str = "fedavg") -> list[float]:
        """Return the sum of each round's stages after the first rounds of an algorithm that all actors took part in."""
        first, table = self._first(name), pq.read_table(self.folder / name / "metrics.parquet")
        rounds, seconds = (table[column].to_numpy() for column in ("round", "seconds"))
        return list(seconds[rounds > first])

    def wall_seconds(self, name: str = "fedavg") -> list[float]:
        """Return the wall-clock time of the same rounds, each from the end of the one before; needs `STAMPS`."""
        first, ends = self._first(name), stamps.read(self.folder, name)
        return [ends[number] - ends[number - 1] for number in sorted(ends) if number > first]

    def stages(self) -> dict[str, float]:
        """Return the seconds of each stage of the command, from `wall-clock.json`; all algorithms together."""
        found: dict[str, float] = {}
        for stage in read_commands(self.folder)[-1].stages:
            found[stage.stage] = found.get(stage.stage, 0.0) + stage.seconds
        return found

    def counts(self, name: str = "fedavg") -> bool:
        """Return whether enough rounds of an algorithm follow the first ones that all actors took part in."""
        counted = self.round_seconds(name)
        return len(counted) >= LEAST and sum(counted) >= COUNTED_SECONDS

    def _first(self, name: str) -> int:
        """Return the last round that does not count: all actors have taken part, and are warm."""
        table = self._updates(name)
        rounds, owners = (table[column].to_numpy() for column in ("round", "machine_actor"))
        return max(int(rounds[owners == actor].min(initial=sys.maxsize - WARM)) for actor in range(ACTORS)) + WARM

    def _updates(self, name: str) -> pa.Table:
        return pq.read_table(self.folder / name / "updates.parquet", columns=["round", "machine_actor"])


def run(experiment: Mapping[str, Any] | str, folder: Path, *options: str, bytecode: bool = True) -> Command:
    """Run a command to its end.

    Args:
        experiment: tables of an experiment file, or the name of a recipe.
        folder: new folder for the experiment file and the run.
        options: options of the command.
        bytecode: whether Python has compiled modules on disk; else it compiles all that it imports.

    Raises:
        SystemExit: the command failed.
    """
    folder.mkdir(parents=True)
    file = experiment if isinstance(experiment, str) else str(folder / "experiment.toml")
    if not isinstance(experiment, str):
        Path(file).write_text(tomli_w.dumps(experiment), encoding="utf-8")
    arguments = ["-m", "raysim", "run", file, "--out", str(folder / "run"), *options]
    return Command(folder / "run", timed(arguments, bytecode=bytecode))


def timed(arguments: list[str], *, bytecode: bool = True) -> float:
    """Run Python; return its seconds from exec to exit.

    Raises:
        SystemExit: it failed; the message ends with its last line.
    """
    keeps = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Below a file Python finds no compiled module.
    bare = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": os.devnull}
    environment = keeps if bytecode else {**keeps, **bare}
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        said = process.stderr.read() if process.stderr else ""
        process.wait()
        seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {(said.strip().splitlines() or ['no message'])[-1]}")
    return seconds


def experiment_of(load: Load, data: Mapping[str, Any], rounds: int | None = None) -> dict[str, Any]:
    """Return the experiment file of a load, with raysim's defaults for everything else.

    Args:
        load: load.
        data: table `[data]`.
        rounds: number of rounds, instead of the load's.
    """
    return {
        "rounds": rounds or load.rounds,
        "data": dict(data),
        "model": model_table(load),
        "algorithm": {"name": "fedavg", "cohort": load.cohort},
        "local": {"lr": load.lr, "epochs": load.epochs, "batch_size": load.batch},
        "evaluate": {"every": load.test_every},
    }


def run_on_actors(experiment: dict[str, Any], folders: Iterator[Path], names: Sequence[str] = ("fedavg",)) -> Command:
    """Run a command on client actors, with enough rounds that count.

    Until Ray's actors are there, which takes 8 to 25 s, the driver trains alone. If too few rounds follow, repeat the
    run with more; the experiment keeps their number.

    Args:
        experiment: tables of the experiment file.
        folders: new folders.
        names: algorithms whose rounds are to count.
    """
    while True:
        done = run(experiment, next(folders), "--actors", str(ACTORS))
        if all(done.counts(name) for name in names):
            return done
        experiment["rounds"] *= LONGER
