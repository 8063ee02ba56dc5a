"""`python -m tests.fuzz long`: long runs, killed and resumed; their time a round, memory, and files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq
import tomli_w

from raysim.store.journal import batches
from tests.fuzz.processes import client_actors, send

BASE: dict[str, Any] = {
    "seed": 3,
    "data": {"dataset": "digits", "test": 0.1},
    "partition": {"scheme": "iid", "clients": 4},
    "model": {"name": "mlp", "hidden": [8], "norm": "batch"},
    "local": {"steps": 1, "batch_size": 4, "lr": 0.01},
    "evaluate": {"every": 500},
}

ALGORITHMS = ("fedavg", "fedbn", "radfed", "fedprox")


@click.group()
def main() -> None:
    """Measure long runs."""


@main.command()
@click.option("--count", default=100_000, show_default=True, help="Rounds.")
@click.option("--algorithm", default="fedavg", show_default=True)
def rounds(count: int, algorithm: str) -> None:
    """Run so many rounds, kill the run in the middle, and resume it."""
    with TemporaryDirectory() as home:
        folder = Path(home) / "run"
        config = {**BASE, "rounds": count, "algorithm": {"name": algorithm}}
        process = _start(config, folder, "--inline")
        _wait(process, folder, count // 2)
        send(process.pid, signal.SIGKILL)
        process.wait()
        _resumed(folder)
        seconds = pq.read_table(folder / algorithm / "metrics.parquet")["seconds"].to_numpy()
        # The fastest tenth of the rounds: the others waited for a busy machine.
        tenths = [f"{1e3 * np.quantile(part, 0.1):.2f}" for part in np.array_split(seconds, 10)]
        _show(f"{len(seconds)} rounds, milliseconds a round by tenths of the run: {' '.join(tenths)}")


@main.command()
@click.option("--count", default=2000, show_default=True, help="Rounds.")
@click.option("--algorithm", default="fedbn", show_default=True)
@click.option("--actors", default=0, show_default=True, help="Client actors; 0 runs inline.")
def memory(count: int, algorithm: str, actors: int) -> None:
    """Print the memory of the driver and of the actors at each tenth of the rounds."""
    with TemporaryDirectory() as home:
        folder = Path(home) / "run"
        config = {**BASE, "rounds": count, "algorithm": {"name": algorithm}}
        process = _start(config, folder, *(["--actors", str(actors)] if actors else ["--inline"]))
        for tenth in range(1, 10):
            _wait(process, folder, tenth * count // 10)
            held = [_mebibytes(each) for each in (process.pid, *client_actors(process.pid))]
            _show(f"{tenth * count // 10} rounds: {', '.join(held)}")
        process.wait()


@main.command()
@click.option("--count", default=200, show_default=True, help="Algorithms.")
def algorithms(count: int) -> None:
    """Run a file of so many algorithms, kill the run in the middle, and resume it."""
    tables = [{"name": ALGORITHMS[each % 4], "local": {"lr": 0.01 + each / 1000}} for each in range(count)]
    with TemporaryDirectory() as home:
        folder = Path(home) / "run"
        started = time.monotonic()
        process = _start({**BASE, "rounds": 3, "algorithm": tables}, folder, "--inline")
        while process.poll() is None and len(list(folder.glob("*/summary.json"))) < count // 2:
            if started and list(folder.glob("*/metrics.journal")):
                _show(f"first round after {time.monotonic() - started:.1f} s, {_mebibytes(process.pid)}")
                started = 0.0
            time.sleep(0.1)
        _show(f"killed after {len(list(folder.glob('*/summary.json')))} algorithms, {_mebibytes(process.pid)}")
        send(process.pid, signal.SIGKILL)
        process.wait()
        _resumed(folder)


def _start(config: dict[str, Any], folder: Path, *options: str) -> subprocess.Popen[bytes]:
    file = folder.with_suffix(".toml")
    file.write_text(tomli_w.dumps(config))
    return _raysim("run", str(file), "--out", str(folder), *options)


def _raysim(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "raysim", *arguments], stdout=subprocess.DEVNULL)


def _resumed(folder: Path) -> None:
    """Resume a run; print its time until the next row, its log's times, and the size of its report."""
    started, before = time.monotonic(), _written(folder)
    process = _raysim("resume", str(folder), "--inline")
    while process.poll() is None and _written(folder) == before:
        time.sleep(0.05)
    _show(f"resumed after {time.monotonic() - started:.1f} s")
    if process.wait():
        raise SystemExit(f"resume ended with {process.returncode}")
    for line in (folder / "run.log").read_text().splitlines()[-4:]:
        _show(line.partition("INFO ")[2])
    _show(f"report: {(folder / 'report.html').stat().st_size / 1e6:.2f} MB")


def _written(folder: Path) -> int:
    """Return the bytes of all journals and finished tables."""
    files: Iterator[Path] = (path for name in ("journal", "parquet") for path in folder.glob(f"*/metrics.{name}"))
    return sum(path.stat().st_size for path in files if path.exists())


def _wait(process: subprocess.Popen[bytes], folder: Path, number: int) -> None:
    while process.poll() is None:
        journals = list(folder.glob("*/metrics.journal"))
        if journals and sum(1 for _ in batches(journals[0])) >= number:
            return
        time.sleep(1)


def _mebibytes(pid: int) -> str:
    """Return a process's own memory, and its part in huge pages, which the kernel fills up at its own times."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return "ended"
    fields = {line.split()[0]: int(line.split()[1]) // 1024 for line in lines[1:]}
    return f"{fields['Anonymous:']} MiB (huge pages {fields['AnonHugePages:']})"


def _show(text: str) -> None:
    click.echo(text)


if __name__ == "__main__":
    main()
