"""Drawn commands in processes of their own, each refused in one line, or done.

A case runs a command in a process of its own. It holds if the command ends with status 0, 1 or 2, and one line unless
it is 0; with no traceback; with nothing new on disk if it is 2; within its time, or soon after SIGTERM; and with at
most 1 GiB more memory than an undisturbed run.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp

import partitioning
from partitioning.cli.commands import main as partitioning_main
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from tests.fuzz.inputs import places
from tests.fuzz.inputs.commands import Command, command

GIB = 2**30
SECONDS = 30
"""Seconds until a case is sent SIGTERM; all are tiny, and a machine may be busy."""

PATIENCE = 30
"""Seconds that it then has to end."""

LONGEST_LINE = 4000
"""Characters of a message."""

PROGRESS = re.compile(
    r"notice: |reading the data|decoding|checking the algorithms|writing the report|stopping after| rounds",
    re.IGNORECASE,
)
"""Lines that may stand before the last one."""

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "raysim.simulation.api",
        "raysim.cli.commands",
        "raysim.report.page",
        "raysim.studies.studying",
        "tests.fuzz.inputs.refusals",
    ]
)


@dataclass(frozen=True)
class Outcome:
    """End of a case.

    Args:
        status: exit status; negative for a signal.
        wrong: the fault; "" if the case holds.
        said: last line of the command.
        gib: largest memory.
        seconds: time of the command.
    """

    status: int
    wrong: str
    said: str
    gib: float
    seconds: float


def _run(drawn: Command, home: Path, output: Path) -> None:
    """Run a command in this process, with its output in a file, and note the largest memory."""
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.environ["RAYSIM_CACHE"] = str(home.parent / "cache")
    os.chdir(home)
    status: object = 1
    try:
        if drawn.program == "raysim":
            run_command(cli, "raysim", drawn.arguments)
        else:
            partitioning_main(drawn.arguments)
    except SystemExit as ended:
        status = ended.code or 0
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        output.with_suffix(".memory").write_text(f"{status} {memory}")


class Workplace:
    """Folders of the cases, with a sound table, population and run."""

    def __init__(self) -> None:
        self.root = Path(mkdtemp(prefix="raysim-inputs-"))
        table = places.table(self.root / "table.parquet")
        text = f'rounds = 1\n[data]\ndataset = "file:{table}"\n[partition]\nclients = 4\n'
        (self.root / "sound.toml").write_text(text + "[algorithm]\nname = 'fedavg'\n[model]\nhidden = [3]\n")
        partitioning.make(str(table), self.root / "population", scheme="iid", clients=4)
        sound = Command("raysim", ["run", str(self.root / "sound.toml"), "--inline", "--out", str(self.root / "run")])
        outcome = self.judged(sound, self._home("sound"), 10.0)
        assert not outcome.status, outcome
        self.memory = outcome.gib

    def close(self) -> None:
        """Remove all."""
        shutil.rmtree(self.root)

    def _home(self, name: str) -> Path:
        (home := self.root / name).mkdir()
        places.furnish(home)
        return home

    def case(self, number: int) -> Outcome:
        """Draw and run a case, and remove its folder."""
        home = self._home(f"case-{number}")
        try:
            return self.judged(command(number, home, self.root), home, self.memory)
        finally:
            shutil.rmtree(home)

    def judged(self, drawn: Command, home: Path, memory: float) -> Outcome:
        """Run a command and compare its end with what must hold.

        Args:
            drawn: the command.
            home: its folder.
            memory: GiB of an undisturbed run.
        """
        before, output, began = _tree(home), self.root / f"{home.name}.txt", time.monotonic()
        process = FORKS.Process(target=_run, args=(drawn, home, output))
        process.start()
        hung, peak = _ended(process, memory)
        seconds, status = time.monotonic() - began, process.exitcode
        lines = output.read_text(errors="backslashreplace").splitlines() if output.exists() else []
        noted = output.with_suffix(".memory")
        if noted.exists():  # a forkserver that starts two processes at once may lose the status of one
            status, most = map(int, noted.read_text().split())
            peak = max(peak, most / GIB)
        for path in (output, noted):
            path.unlink(missing_ok=True)
        last = lines[-1] if lines else ""
        wrong = hung or _fault(status, lines, drawn, sorted(_tree(home) - before))
        if peak > memory + 1 and not wrong:
            wrong = f"{peak:.1f} GiB, and {memory:.1f} undisturbed"
        return Outcome(-99 if status is None else status, wrong, last, peak, seconds)


def _tree(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if "__pycache__" not in path.parts}


def _ended(process: object, memory: float) -> tuple[str, float]:
    """Wait for the end of a process; return its fault and the largest memory seen, in GiB."""
    peak, deadline, asked = 0.0, time.monotonic() + SECONDS, False
    while process.exitcode is None:  # type: ignore[attr-defined]
        process.join(0.02 if not asked else 0.1)  # type: ignore[attr-defined]
        peak = max(peak, _memory(process.pid))  # type: ignore[attr-defined]
        if peak > memory + 1.5:
            process.kill()  # type: ignore[attr-defined]
            process.join()  # type: ignore[attr-defined]
            return f"{peak:.1f} GiB and growing", peak
        if time.monotonic() > deadline:
            if asked:
                process.kill()  # type: ignore[attr-defined]
                process.join()  # type: ignore[attr-defined]
                return f"no end {PATIENCE} s after SIGTERM", peak
            os.kill(process.pid, signal.SIGTERM)  # type: ignore[attr-defined]
            asked, deadline = True, time.monotonic() + PATIENCE
    return "", peak


def _memory(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) * 1024 / GIB if found else 0.0


def _fault(status: int | None, lines: list[str], drawn: Command, new: list[str]) -> str:
    text = "\n".join(lines)
    if "Traceback" in text:
        return "a traceback:\n" + text[-3000:]
    if status == 0:
        return ""
    if status == 128 + signal.SIGTERM:
        return ""
    if status not in (1, 2):
        return f"status {status}: {text[-1000:]}"
    if not lines or not lines[-1].startswith(f"{drawn.program}: "):
        return f"status {status} without its line: {text[-1000:]}"
    if len(lines[-1]) > LONGEST_LINE:
        return f"a line of {len(lines[-1])} characters"
    # Each mistake has a line of its own.
    said = [
        line
        for line in lines[:-1]
        if not (PROGRESS.search(line) or "own module says" in line or line == "forward")
        if not (status == 2 and line.startswith(f"{drawn.program}: ") and len(line) <= LONGEST_LINE)
    ]
    if said:
        return f"lines of no mistake: {text[-1000:]}"
    if status == 2 and new:
        return f"left {new[:5]}: {lines[-1]}"
    return ""
