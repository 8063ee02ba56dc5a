"""`python -m tests.fuzz writes`: strike one of the system calls with which a command changes files."""

from __future__ import annotations

import ctypes
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.fuzz.record import keep
from tests.fuzz.writes.workloads import Arguments, Workload, workloads

SOURCE = Path(__file__).with_name("writes.c")

ACTIONS = {
    "process killed before a call": 1,
    "process killed within a call": 2,
    "disk full from a call on": 3,
    "input/output error of a call": 4,
    "clock set back a year at a call": 5,
    "clock set forth a year at a call": 6,
}
"""Actions of the library, by name of the fault."""

OF_THE_PARTITIONER = ("cvxpy", "partitioning.cli.make", "partitioning.making.make")
OF_RUNS = (
    *("raysim.cli.commands", "raysim.data.sets.small_images", "raysim.report.curves", "raysim.report.page"),
    *("raysim.reproduction.reproducing", "raysim.simulation.api"),
)
"""Modules that forked processes need, and that take seconds to import."""

SECONDS = 300
"""Time after which a command counts as hung."""

CONTINUED = 3
"""Times that a command may have to be continued: once, unless it had left nothing to continue."""


def main_in_library(arguments: list[str]) -> int:
    """Run this program again in a process that has the library loaded before libc."""
    with TemporaryDirectory() as folder:
        library = Path(folder) / "writes.so"
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        command = [sys.executable, "-m", "tests.fuzz.writes", *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


@dataclass(frozen=True)
class Peace:
    """Undisturbed command.

    Args:
        workload: command.
        calls: number of its system calls that can be struck.
        result: see `Workload.result`.
    """

    workload: Workload
    calls: int
    result: Mapping[str, Any]


def in_peace(workload: Workload) -> Peace:
    """Run a command without a strike."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "out").mkdir()
        status, said = call(workload.arguments(home), home)
        if status:
            raise RuntimeError(f"{workload.name}: status {status}: {said}")
        return Peace(workload, int((home / "calls").read_text()), workload.result(home))


@dataclass(frozen=True)
class Strike:
    """Fault in one system call.

    Args:
        peace: undisturbed command.
        fault: name of an action.
        call: number of the call, starting at 1.
    """

    peace: Peace
    fault: str
    call: int

    def __str__(self) -> str:
        return f"{self.peace.workload.name}, {self.fault}, call {self.call}"


def survive(strike: Strike) -> str:
    """Strike a command, and continue it until it is done.

    Returns:
        the difference from the undisturbed result, or the wrong end of a process; "" if all is well.
    """
    workload, expected = strike.peace.workload, strike.peace.result
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "out").mkdir()
        status, said = call(workload.arguments(home), home, strike.call, ACTIONS[strike.fault])
        for _ in range(CONTINUED):
            if wrong := _bad_end(status, said, strike):
                return wrong
            if status == 0:
                break
            status, said = call(_continued(workload, home), home)
        if status:
            return f"status {status}: {said}"
        found = workload.result(home)
    wrong = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    return f"{', '.join(wrong)} differ" if wrong else ""


def _continued(workload: Workload, home: Path) -> Arguments:
    """Return the command that goes on; if nothing is left to continue, begin anew in an empty folder."""
    again = workload.again(home)
    if again is not None:
        return again
    shutil.rmtree(home / "out")
    (home / "out").mkdir()
    return workload.arguments(home)


def _bad_end(status: int, said: str, strike: Strike) -> str:
    """Return the fault of a command's end, which is an exit status with at most one line of error; "" if none."""
    if "Traceback" in said:
        return f"status {status} with a traceback: {said}"
    killed = strike.fault.startswith("process killed") and status == -signal.SIGKILL
    return "" if killed or status in (0, 1, 2) else f"status {status}: {said}"


def call(arguments: Arguments, home: Path, number: int = 0, action: int = 0) -> tuple[int, str]:
    """Run a command in a forked process, with a strike if `number` is positive; return its status and its output."""
    process = get_context("fork").Process(target=_command, args=(arguments, home, number, action))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"no end in {SECONDS} s: {' '.join(arguments)}")
    return process.exitcode, (home / "output").read_text(errors="replace")


def _command(arguments: Arguments, home: Path, number: int, action: int) -> None:
    from partitioning.cli.commands import main as partitioning_main
    from partitioning.cli.exit_status import run_command
    from raysim.cli.commands import cli

    program, *given = arguments
    output = os.open(home / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.pop("LD_PRELOAD", None)
    os.environ["RAYSIM_CACHE"] = str(home / "out" / "cache")
    os.chdir(home)
    library = ctypes.CDLL(None)
    library.faults_calls.restype = ctypes.c_long
    library.faults_arm(os.fsencode(home / "out"), ctypes.c_long(number), action)
    try:
        partitioning_main(given) if program == "partitioning" else run_command(cli, program, given)
    finally:
        (home / "calls").write_text(str(library.faults_calls()))


def drawn(seed: int, peaces: Sequence[Peace]) -> Strike:
    """Draw a strike; the commands come in turn."""
    peace, draw = peaces[seed % len(peaces)], random.Random(seed)
    return Strike(peace, draw.choice(list(ACTIONS)), draw.randint(1, peace.calls))


def on_each_call(peaces: Sequence[Peace], fault: str, calls: int) -> list[Strike]:
    """Return a strike on each of the first calls of each command."""
    return [Strike(peace, fault, number) for peace in peaces for number in range(1, min(calls, peace.calls) + 1)]


@click.command()
@click.option("--first", default=0, show_default=True, help="First seed.")
@click.option("--count", default=100, show_default=True, help="Number of seeds.")
@click.option("--only", default="", help="Name of the only command.")
@click.option(
    "--each", type=click.Choice(list(ACTIONS)), help="Strike each of the first --count calls with this fault."
)
@click.option("--beside", default=3, show_default=True, help="Number of commands that run side by side.")
@click.option("--write", metavar="NAME", help="Keep the counts in NAME.json, with the commit and the machine.")
def main(first: int, count: int, only: str, each: str | None, beside: int, write: str | None) -> None:
    """Strike commands, continue them, and compare their results with those of undisturbed commands."""
    for name in OF_THE_PARTITIONER if only == "population" else (*OF_THE_PARTITIONER, *OF_RUNS):
        importlib.import_module(name)
    console, started = Console(stderr=True), time.perf_counter()
    chosen = [workload for workload in workloads() if only in ("", workload.name)]
    struck: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    with ProcessPoolExecutor(beside, get_context("fork")) as side_by_side:
        peaces = list(side_by_side.map(in_peace, chosen))
        numbers = range(first, first + count)
        strikes = on_each_call(peaces, each, count) if each else [drawn(number, peaces) for number in numbers]
        outcomes = side_by_side.map(survive, strikes)
        for strike, wrong in zip(strikes, track(outcomes, "striking", len(strikes), console=console), strict=True):
            struck[strike.fault] += 1
            survived[strike.fault] += not wrong
            if wrong:
                console.print(f"{strike}: {wrong}", highlight=False, markup=False)
    table = Table("fault", "injected", "survived, results equal")
    for fault in sorted(struck):
        table.add_row(fault, str(struck[fault]), str(survived[fault]))
    console.print(table, f"{time.perf_counter() - started:.0f} s")
    if write:
        faults = {name: {"injected": struck[name], "bytes equal": survived[name]} for name in sorted(struck)}
        keep(write, {"faults": faults})
    raise SystemExit(int(struck != survived))


if __name__ == "__main__":
    if hasattr(ctypes.CDLL(None), "faults_arm"):
        main()
    else:
        sys.exit(main_in_library(sys.argv[1:]))
