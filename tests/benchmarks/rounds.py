"""Seconds a round, loads A, B, C, E, G and K to Q: plain loops, the command, and the peers, in turn in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

import partitioning
from partitioning.sources.arrays import nested
from raysim.data.targets import class_metadata
from raysim.data.tokens import NEXT, TOKENS
from tests.benchmarks.command import ACTORS, STAMPS, experiment_of, run_on_actors
from tests.benchmarks.peers.loads import LOADS, Load, make
from tests.benchmarks.plain import WARM, one_loop, two_loops

PEERS = Path(__file__).parent / "peers"
SCRIPTS: dict[str, tuple[str, str, list[str], str]] = {
    "FedJAX": ("fedjax", "fedjax_.py", [], "AB"),
    "pfl, 1 process": ("pfl", "pfl_.py", ["--processes", "1"], "AB"),
    "pfl, 2 processes": ("pfl", "pfl_.py", ["--processes", "2"], "ABCKLMN"),
    "BlazeFL 3, 2 threads": ("blazefl", "blazefl_.py", [], "ABC"),
    "fluke": ("fluke", "fluke_.py", [], "ABC"),
    "Flower, 2 workers": ("flower", "flower.py", [], "ABCKLMN"),
}
"""Peers: the environment, the script, its arguments, and the loads on which it is compared."""

ROUNDS = {"A": 200, "B": 300, "C": 16, "E": 300, "G": 30, "K": 60, "L": 60, "M": 16, "N": 20, "O": 30, "P": 40, "Q": 30}
"""Rounds of the command: some follow after Ray's actors are there."""

SLOW = {"C": 4, "G": 2, "M": 3, "N": 3, "O": 6, "P": 6, "Q": 6}
"""Most counted rounds of plain loops and peers, on loads whose rounds take seconds."""

Way = Callable[[], Iterator[tuple[str, float]]]
"""A measurement: it yields titles and figures."""

RAYSIM = f"raysim run, {ACTORS} actors"
"""Sum of a round's stages: the driver's work between them does not count while actors idle."""

WALL = f"{RAYSIM}, wall clock"
"""From the end of a round to the end of the next, as the peers' rounds are timed."""


def table_of(load: Load, x: np.ndarray, y: np.ndarray) -> pa.Table:
    """Return images [..., channels, height, width] and labels [...], or texts and their next tokens, as a table."""
    if load.model == "gpt2":
        columns = [nested(each.reshape(-1, *load.shape)) for each in (x, y)]
        following = pa.field(NEXT, columns[1].type, metadata=class_metadata(load.classes))
        return pa.table(columns, schema=pa.schema([pa.field(TOKENS, columns[0].type), following]))
    image = pa.array(x.reshape(-1))
    for size in reversed(x.shape[-3:]):
        image = pa.FixedSizeListArray.from_arrays(image, size)
    return pa.table({"image": image, "label": pa.array(y.reshape(-1))})


def population(load: Load, arrays: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Write a load's population: clients of equal size, and a global test set if the load has one."""
    test = table_of(load, arrays["x_test"], arrays["y_test"]) if load.test_samples else None
    table = table_of(load, arrays["x"], arrays["y"])
    label = NEXT if load.model == "gpt2" else "label"
    partitioning.make(table, folder, scheme="iid", clients=load.clients, test=test, label=label)
    return folder


def peer(python: Path, script: str, more: list[str], data: Path, name: str, rounds: int) -> float:
    """Return the median seconds of a round of a peer, in its own environment."""
    arguments = ["--data", str(data), "--load", name, "--rounds", str(rounds), "--warm", str(WARM), *more]
    done = subprocess.run([python, PEERS / script, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script}: {done.stderr.strip().splitlines()[-1]}")
    return statistics.median(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])


def measure(
    name: str, environments: Path | None, repeats: int, rounds: int, folder: Path, own: int | None = None
) -> dict[str, float]:
    """Return the medians over repeats of seconds a round, all ways in turn in each repeat.

    Args:
        name: load.
        environments: folder of the peers' environments; None leaves the peers out.
        repeats: number of repeats.
        rounds: counted rounds of plain loops and peers.
        folder: folder for data and runs.
        own: rounds of the command; default `ROUNDS`.
    """
    load, arrays, rounds = LOADS[name], make(name), min(rounds, SLOW.get(name, rounds))
    data, path = folder / f"{name}.npz", population(load, arrays, folder / name)
    np.savez(data, **arrays)
    experiment = experiment_of(load, {"population": str(path)}, own or ROUNDS[name])
    experiment["watch"] = {"loggers": [STAMPS]}
    runs = (folder / f"{name}-{number}" for number in count())

    def command() -> Iterator[tuple[str, float]]:
        done = run_on_actors(experiment, runs)
        seconds = statistics.median(done.round_seconds())
        yield WALL, statistics.median(done.wall_seconds())
        yield RAYSIM, seconds
        yield f"{RAYSIM}, microseconds a client update", 1e6 * seconds / load.cohort

    ways: list[Way] = [
        lambda: iter([("plain loop", one_loop(path, load, rounds))]),
        lambda: iter([("two plain loops", two_loops(path, load, rounds))]),
        command,
    ]
    for title, (environment, script, more, loads) in SCRIPTS.items() if environments else ():
        if name in loads:
            python = Path(str(environments)) / environment / "bin" / "python"
            ways.append(partial(_named, title, partial(peer, python, script, more, data, name, rounds)))
    return medians(ways, repeats)


def medians(ways: Sequence[Way], repeats: int) -> dict[str, float]:
    """Return the median of each figure; all ways take turns, so a busy machine slows all of them alike."""
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for way in ways:
            for title, value in way():
                found.setdefault(title, []).append(value)
    return {title: statistics.median(values) for title, values in found.items()}


def _named(title: str, way: Callable[[], float]) -> Iterator[tuple[str, float]]:
    yield title, way()
