"""`python -m tests.fuzz files`: hostile data files, drawn, through every command that reads data."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import tomli_w
from rich.console import Console
from rich.progress import track

from partitioning.cli.exit_status import run_command
from tests.fuzz.files.bombs import BOMBS
from tests.fuzz.files.forms import BYTES, FORMS, INSPECT, VERIFY, Form, Rng, file_of
from tests.fuzz.files.tables import TABLES, hostile_table

SECONDS = 120
"""Seconds that a command may take on a busy machine; a sound one takes one or two."""

MEMORY = 2**30
"""Bytes that a command may take more than one that reads a sound file of the same form."""

EXPERIMENT = {
    "seed": 3,
    "rounds": 1,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 3},
    "model": {"name": "mlp", "hidden": [4]},
}

GROUPS: Mapping[str, Mapping[str, object]] = {"bytes": BYTES, "table": TABLES, "bomb": BOMBS}

WRITERS = {"parquet": pq.write_table, "feather": lambda table, path: feather.write_feather(table, str(path))}
"""Writers of hostile tables; delimited text and archives hold only a part of them."""

KINDS = [f"{group}: {name}" for group, names in GROUPS.items() for name in names]

OWN_FILES = {"data", "cache", "experiment.toml", "output", "peak"}
"""Entries of a case's folder that no command wrote there."""

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["tests.fuzz.files.preload"])


@dataclass(frozen=True)
class Ended:
    """End of a command: exit status, output, and largest memory in bytes; a status of None was a hang or too much."""

    status: int | None
    output: str
    peak: int


@dataclass(frozen=True)
class Outcome:
    """Result of a case: what was drawn, the exit status, and the first failure or nothing."""

    kind: str
    what: str
    status: int | None
    wrong: str = ""


def survive(seed: int, home: Path) -> Outcome:
    """Draw a hostile file, give it to a command that reads it, and judge the end.

    Args:
        seed: draws everything.
        home: an empty folder.
    """
    rng = np.random.default_rng(seed)
    data = home / "data"
    data.mkdir()
    kind = KINDS[seed % len(KINDS)]
    form, path, what = _drawn(kind, data, rng)
    # A run takes ten times as long as the others, but only a run decodes pictures.
    rare = 5.0 if kind.startswith("bomb: pi") else 0.2
    weights = np.array([rare if text.startswith("raysim run") else 1.0 for text in form.commands])
    text = str(rng.choice(form.commands, p=weights / weights.sum()))
    limit = peak_of_sound(form.name, text) + MEMORY
    ended = run(text, home, path, limit)
    wrong = _wrong(ended, home)
    for check in (INSPECT, VERIFY) if (home / "made").exists() else ():
        wrong = wrong or _wrong(run(check, home, path, limit), home)
    return Outcome(kind, f"{form.name}, {what}", ended.status, wrong and f"{text}: {wrong}")


def _drawn(kind: str, data: Path, rng: Rng) -> tuple[Form, Path, str]:
    """Write the file of a case; return its form, its path, and what it is."""
    group, name = kind.split(": ")
    if group == "bomb":
        form = FORMS[BOMBS[name][0]]
        return form, BOMBS[name][1](data, rng), name
    if group == "bytes":
        form = FORMS[str(rng.choice(sorted(FORMS)))]
        path = form.write(data)
        chosen = file_of(path, rng)
        return form, path, f"{chosen.name}: {BYTES[name](chosen, rng)}"
    table = hostile_table(name, rng)
    form = FORMS[str(rng.choice(["parquet", "parquet", "feather", "csv", "npz"]))]
    path = _written(table, form, data)
    if path is None:
        form = FORMS["feather"]
        path = _written(table, form, data)
    if path is None:  # Feather refuses some types that Arrow's own files hold
        form, path = FORMS["arrow"], data / "data.arrow"
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return form, path, f"{name}: {str(table.schema)[:300]!r}"


def _written(table: pa.Table, form: Form, data: Path) -> Path | None:
    """Write a table; None if the form cannot hold it."""
    path = data / f"data.{form.name}"
    try:
        if form.name == "csv":
            csv.write_csv(table, path)
        elif form.name == "npz":
            columns = {name: table[name].to_numpy() for name in table.column_names}
            np.savez(path, **columns)
        else:
            WRITERS[form.name](table, path)
    except Exception:
        path.unlink(missing_ok=True)
        return None
    return path


def _wrong(ended: Ended, home: Path) -> str:
    """Return what is wrong with the end of a command; empty if nothing is."""
    if ended.status not in (0, 1, 2):
        return f"status {ended.status}: {ended.output[-2000:]}"
    said = ended.output.splitlines()
    if "Traceback" in ended.output or "Warning" in ended.output:
        return f"a traceback: {ended.output[-3000:]}"
    if ended.status and not (said and said[-1].startswith(("raysim: ", "partitioning: "))):
        return f"the last line is no error: {ended.output[-500:]!r}"
    if ended.status and len(said[-1]) > 2000:
        return f"a line of {len(said[-1])} characters: {said[-1][:400]!r}"
    if not all(character.isprintable() for line in said for character in line):
        return f"a line that is not printable: {ended.output[-500:]!r}"
    if ended.status == 1:
        return f"status 1: {said[-1]}"
    if ended.status and (left := sorted({path.name for path in home.iterdir()} - OWN_FILES)):
        return f"it left {left}: {said[-1]}"
    return ""


def run(text: str, home: Path, path: Path, limit: int) -> Ended:
    """Run a command in a process of its own, in `home`; end it if it takes too long or too much memory."""
    (home / "experiment.toml").write_text(tomli_w.dumps(EXPERIMENT))
    root = next(folder for folder in (path, *path.parents) if folder.parent == home)
    arguments = [word.replace("{path}", str(path)).replace("{root}", str(root)) for word in text.split()]
    process = FORKS.Process(target=_act, args=(arguments, home))
    process.start()
    end, peak = time.monotonic() + SECONDS, 0
    while process.exitcode is None and time.monotonic() < end and peak <= limit:
        process.join(0.05)
        peak = max(peak, _memory(process.pid or 0, "VmRSS:"))
    late = process.exitcode is None
    if late:
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    output = (home / "output").read_text(errors="replace") if (home / "output").exists() else "no output"
    with suppress(OSError, ValueError):
        peak = max(peak, int((home / "peak").read_text()))
    if peak > limit:
        return Ended(None, f"{peak / 2**20:.0f} MiB, more than {limit / 2**20:.0f}\n{output}", peak)
    return Ended(None if late else process.exitcode, f"no end in {SECONDS} s\n{output}" if late else output, peak)


def _act(arguments: list[str], home: Path) -> None:
    """Run a command in a fork of a process that has imported everything: that takes seconds each time."""
    os.setsid()
    os.chdir(home)
    os.environ["RAYSIM_CACHE"] = str(home / "cache")
    descriptor = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    Path("/proc/self/clear_refs").write_text("5")  # the peak of this process alone
    from partitioning.cli.commands import _group
    from raysim.cli.commands import cli

    try:
        run_command({"raysim": cli, "partitioning": _group}[arguments[0]], arguments[0], arguments[1:])
    finally:
        Path("peak").write_text(str(_memory(os.getpid(), "VmHWM:")))


def _memory(pid: int, field: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/status").read_text().partition(field)[2].split()[0]) * 1024
    except (OSError, IndexError):
        return 0


@cache
def peak_of_sound(name: str, text: str) -> int:
    """Return the largest memory of a command on a sound file."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "data").mkdir()
        ended = run(text, home, FORMS[name].write(home / "data"), 2**36)
        if ended.status != 0 and "mask" not in name:  # no small model learns masks
            raise RuntimeError(f"{name}: {text}: {ended}")
        return ended.peak


def outcomes(first: int, count: int) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcome of each seed."""
    for seed in range(first, first + count):
        with TemporaryDirectory(prefix="hostile-") as folder:
            yield seed, survive(seed, Path(folder))


@click.command()
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--count", default=1000, show_default=True, help="How many seeds.")
def main(first: int, count: int) -> None:
    """Give so many hostile files to the commands that read data; print failures, and counts by kind."""
    console = Console()
    started, drawn, failed = time.monotonic(), Counter[str](), Counter[str]()
    statuses: Counter[int | None] = Counter()
    for seed, outcome in track(outcomes(first, count), "hostile files", total=count, console=console):
        drawn[outcome.kind] += 1
        failed[outcome.kind] += bool(outcome.wrong)
        statuses[outcome.status] += 1
        if outcome.wrong:
            console.print(f"{seed}: {outcome.kind}: {outcome.what}: {outcome.wrong}", highlight=False, markup=False)
    for kind in sorted(drawn):
        console.print(f"{kind}: {drawn[kind]} drawn, {failed[kind]} failed", highlight=False)
    seconds = time.monotonic() - started
    console.print(f"{drawn.total()} files, {failed.total()} failed, statuses {dict(statuses)}, {seconds:.0f} s")
    raise SystemExit(int(failed.total() > 0))
