"""Loads D, I and J: whole jobs, from the command to the report.

uv run python -m tests.benchmarks.jobs D POPULATION        # the plain loop of load D
uv run python -m tests.benchmarks.jobs I DATA              # the plain loop of load I
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from tests.benchmarks.command import ACTORS, Command, experiment_of, run, run_on_actors, timed
from tests.benchmarks.peers.loads import LOADS, make
from tests.benchmarks.plain import PlainLoop, samples_of
from tests.benchmarks.rounds import Way, medians, population

DATA = "RAYSIM_TEST_DATA"
"""Variable with the folder of MNIST, as torchvision keeps it."""

PLAIN, COMMAND, TRAINING = "plain loop", "raysim run", "raysim run, its training alone"
TRAINING_ROUNDS = 250
"""Rounds of the run that times load I's training alone."""


def whole_job(repeats: int, folder: Path) -> dict[str, float]:
    """D: return the median seconds of the command and of a plain loop that imports the same, start included."""
    load = LOADS["D"]
    path = population(load, make("D"), folder / "D")
    experiment = experiment_of(load, {"population": str(path)})
    experiment["evaluate"]["metrics"] = ["accuracy", "loss"]
    runs = (folder / f"D-{number}" for number in count())

    def plain() -> Iterator[tuple[str, float]]:
        yield PLAIN, timed(["-m", "tests.benchmarks.jobs", "D", str(path)])

    def command() -> Iterator[tuple[str, float]]:
        return _whole(COMMAND, run(experiment, next(runs)))

    return medians([plain, command], repeats)


def evaluated_rounds(folder: Path, data: Path | None) -> list[Way]:
    """I: return three ways of the same job: by hand, by the command, and the command's training alone.

    Training alone is the load's number of rounds times the median round of a longer run on the same data that evaluates
    nothing, once both actors are there: no start, no evaluation, no other work beside it.

    Args:
        folder: folder for the runs.
        data: folder of MNIST; None reads `RAYSIM_TEST_DATA`.
    """
    load, root = LOADS["I"], mnist(data)
    experiment = experiment_of(load, {"dataset": "mnist", "root": str(root)})
    experiment["partition"] = {"clients": load.clients + load.held_out, "test_clients": load.held_out}
    experiment["evaluate"]["on"] = ["held_out"]
    longer = {**experiment, "rounds": TRAINING_ROUNDS, "evaluate": {**experiment["evaluate"], "every": 0}}
    runs = (folder / f"I-{number}" for number in count())

    def plain() -> Iterator[tuple[str, float]]:
        yield PLAIN, timed(["-m", "tests.benchmarks.jobs", "I", str(root)])

    def command() -> Iterator[tuple[str, float]]:
        return _whole(COMMAND, run(experiment, next(runs), "--actors", str(ACTORS)))

    def training() -> Iterator[tuple[str, float]]:
        done = run_on_actors(longer, runs)
        yield TRAINING, load.rounds * statistics.median(done.round_seconds())

    return [plain, command, training]


def quickstart(repeats: int, folder: Path) -> dict[str, float]:
    """J: return the median seconds of the README's command, of its stages, and the share of training.

    The first run of each kind warms the file system's cache and Python's bytecode, and does not count.
    """
    runs = (folder / f"J-{number}" for number in count())

    def way(*options: str, bytecode: bool = True) -> Iterator[tuple[str, float]]:
        title = " ".join(["quickstart", *options]) + ("" if bytecode else ", no bytecode")
        return _whole(title, run("quickstart", next(runs), *options, bytecode=bytecode))

    ways: list[Way] = [way, partial(way, "--inline")]
    for warm in ways:
        list(warm())
    bare: list[Way] = [partial(way, bytecode=False), partial(way, "--inline", bytecode=False)]
    return medians([*ways, *bare], repeats)


def _whole(title: str, done: Command) -> Iterator[tuple[str, float]]:
    """Yield the seconds of a command and of its stages, and the share of training."""
    yield title, done.seconds
    stages = done.stages()
    yield f"{title}: share of training", stages["training"] / done.seconds
    for stage, seconds in stages.items():
        yield f"{title}: {stage}", seconds


def mnist(data: Path | None) -> Path:
    """Return the folder of MNIST.

    Raises:
        SystemExit: it is not there.
    """
    folder = data or Path(os.environ.get(DATA, "."))
    if not (folder / "MNIST" / "raw" / "train-images-idx3-ubyte").is_file():
        raise SystemExit(f"{folder}: holds no MNIST/raw/train-images-idx3-ubyte; give --data, or set {DATA}")
    return folder.resolve()


def run_plain_d(path: Path) -> None:
    """Train load D by hand and print its tests."""
    from raysim.data.shards import Shards

    load, shards = LOADS["D"], Shards(path)
    plain = PlainLoop(samples_of(path, load), load)
    for number in range(1, load.rounds + 1):
        plain.round(number)
        if number % load.test_every == 0:
            plain.module.load_state_dict(plain.start)
            x, y = shards.test_slice(0)
            with torch.no_grad():
                print(number, float((plain.module(x).argmax(1) == y).double().mean()))


def run_plain_i(root: Path) -> None:
    """Train load I by hand; print accuracy, loss and both F1 of the held-out clients after each round."""
    load, raw = LOADS["I"], root / "MNIST" / "raw"
    pixels = np.frombuffer((raw / "train-images-idx3-ubyte").read_bytes(), np.uint8, offset=16)
    x = torch.from_numpy(pixels.astype(np.float32).reshape(-1, *load.shape) / np.float32(255))
    labels = np.frombuffer((raw / "train-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8)
    y = torch.from_numpy(labels.astype(np.int64))
    parts = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).split(load.samples)
    plain = PlainLoop([(x[part], y[part]) for part in parts[: load.clients]], load)
    held_out = parts[load.clients : load.clients + load.held_out]
    rows, owners = torch.cat(held_out), torch.arange(load.held_out).repeat_interleave(load.samples)
    x, y = x[rows], y[rows]
    for number in range(1, load.rounds + 1):
        plain.round(number)
        plain.module.load_state_dict(plain.start)
        print(number, *scores(plain.module, x, y, owners))


@torch.no_grad()
def scores(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, owners: torch.Tensor) -> tuple[float, ...]:
    """Return means over the clients of accuracy, loss, macro F1 and weighted F1.

    Args:
        module: model.
        x: inputs, [n, *shape].
        y: labels, int64 [n].
        owners: client of each sample, from 0, int64 [n].
    """
    logits = torch.cat([module(part) for part in x.split(1_000)])
    clients, classes = int(owners.max()) + 1, logits.shape[1]
    cells = (owners * classes + y) * classes + logits.argmax(1)
    confusion = cells.bincount(minlength=clients * classes**2).reshape(clients, classes, classes).double()
    hits, true, predicted = confusion.diagonal(dim1=1, dim2=2), confusion.sum(2), confusion.sum(1)
    f1 = 2 * hits / (true + predicted).clamp(min=1)
    samples = true.sum(1)
    losses = torch.zeros(clients).index_add_(0, owners, cross_entropy(logits, y, reduction="none")) / samples
    macro = f1.sum(1) / (true + predicted > 0).sum(1)
    each = (hits.sum(1) / samples, losses, macro, (f1 * true).sum(1) / samples)
    return tuple(float(values.mean()) for values in each)


if __name__ == "__main__":
    {"D": run_plain_d, "I": run_plain_i}[sys.argv[1]](Path(sys.argv[2]))
