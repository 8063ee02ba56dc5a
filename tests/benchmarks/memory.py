"""The memory of `raysim run`, beside plain loops and other simulators: every process of a way, while it trains a load.

    uv run python -m tests.benchmarks.memory [--loads ABCKN] [--peers .peers]

A process has its proportional set size (PSS): pages that several processes share are divided among them, so that the
sum over all processes is what the machine must have. Each figure is the largest that was seen in a run, in MiB. The
record are the entries `memory A` and so on of `speed.json`. Seconds are measured apart, because looking costs time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
import tomli_w
from rich.console import Console
from rich.table import Table

from tests.benchmarks.command import ACTORS, Command, experiment_of
from tests.benchmarks.peers.loads import LOADS, make
from tests.benchmarks.record import IDEAL, MEMORY, keep
from tests.benchmarks.rounds import PEERS, RAYSIM, ROUNDS, SCRIPTS, population

MIB = 2**20
BETWEEN = 0.25
"""Seconds from one look at the processes to the next."""

COUNTED = 3
"""Rounds of plain loops and peers."""


@dataclass(frozen=True)
class Memory:
    """Memory of a command's processes, in MiB.

    Args:
        main: the process that was started.
        largest: the largest of the processes that it started; 0 if there is none.
        total: all of them.
    """

    main: float = 0.0
    largest: float = 0.0
    total: float = 0.0

    def at_most(self, other: Memory) -> Memory:
        """Return the larger of two values, one by one."""
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return Memory(*(max(pair) for pair in pairs))


def seen(main: psutil.Process) -> Memory:
    """Return the memory of a process and of those that it started."""
    own, *others = [_pss(each) for each in (main, *main.children(recursive=True))]
    return Memory(own, max(others, default=0.0), own + sum(others))


def watched(command: Sequence[str | Path]) -> Memory:
    """Run a command to its end; return the most memory that its processes had.

    Raises:
        SystemExit: the command failed.
    """
    most = Memory()
    with tempfile.TemporaryFile("w+") as said:
        process = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        while process.poll() is None:
            try:
                most = most.at_most(seen(process))
            except psutil.NoSuchProcess:  # it ended between the two lines
                break
            time.sleep(BETWEEN)
        if process.wait():
            said.seek(0)
            last = (said.read().strip().splitlines() or ["no message"])[-1]
            raise SystemExit(f"{' '.join(map(str, command))}: {last}")
    return most


def commands(name: str, environments: Path | None, folder: Path) -> dict[str, list[str | Path]]:
    """Return the commands of a load by title; a load's data are written to the folder."""
    load, arrays = LOADS[name], make(name)
    path, data, file = population(load, arrays, folder / name), folder / f"{name}.npz", folder / f"{name}.toml"
    np.savez(data, **arrays)
    file.write_text(tomli_w.dumps(experiment_of(load, {"population": str(path)}, ROUNDS[name])), encoding="utf-8")
    found: dict[str, list[str | Path]] = {
        title: [sys.executable, "-m", "tests.benchmarks.plain", loops, name, path, str(COUNTED)]
        for title, loops in (("plain loop", "1"), (IDEAL, "2"))
    }
    out = ["--out", folder / f"{name}-run", "--actors", str(ACTORS)]
    found[RAYSIM] = [sys.executable, "-m", "raysim", "run", file, *out]
    for title, (environment, script, more, loads) in SCRIPTS.items() if environments else ():
        if name in loads:
            python = Path(str(environments)) / environment / "bin" / "python"
            asked = ["--data", data, "--load", name, "--rounds", str(COUNTED), "--warm", "1"]
            found[title] = [python, PEERS / script, *asked, *more]
    return found


def check_actors(name: str, run: Path) -> None:
    """Refuse a run of a load that ended before all actors were warm: its memory is that of the driver alone."""
    if not Command(run, 0.0).round_seconds():
        text = f"its {ROUNDS[name]} rounds ended before all {ACTORS} actors had trained"
        raise SystemExit(f"load {name}: {text}; raise tests.benchmarks.rounds.ROUNDS[{name!r}]")


def rounded(memory: Memory) -> dict[str, float]:
    """Return the values of a record."""
    return {part: round(value, 1) for part, value in asdict(memory).items()}


def _pss(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().pss) / MIB
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # it ended, or is a zombie
        return 0.0


def main() -> None:
    """Measure, print a table for each load, and write the record, load by load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loads", default="ABCKN")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    asked = parser.parse_args()
    for name in asked.loads:
        with tempfile.TemporaryDirectory() as folder:
            found = {}
            for title, way in commands(name, asked.peers, Path(folder)).items():
                found[title] = watched(way)
                if title == RAYSIM:
                    check_actors(name, Path(folder) / f"{name}-run")
        show(name, found)
        keep(f"{MEMORY}{name}", {"figures": {title: rounded(each) for title, each in found.items()}, "repeats": 1})


def show(name: str, found: Mapping[str, Memory]) -> None:
    """Print a load's figures."""
    table = Table(title=f"load {name}, MiB")
    for column in ("", "main process", "largest other", "all"):
        table.add_column(column, justify="right" if column else "left")
    for title, memory in found.items():
        table.add_row(title, *(f"{value:,.0f}" for value in asdict(memory).values()))
    Console().print(table)


if __name__ == "__main__":
    main()
