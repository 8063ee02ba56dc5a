"""The loads that all peers are timed on, and what their scripts share: data, arguments, the line that they print.

    python loads.py A a.npz          # writes the load's data: random pixels and labels

Each peer has an environment of its own, so this module needs numpy and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

DEVICE = os.environ.get("BENCHMARK_DEVICE", "cpu")
"""Device of the peers that train in PyTorch: "cpu" or "cuda"."""

HIDDEN = (200, 200)
"""Widths of the perceptron's hidden layers."""


@dataclass(frozen=True)
class Load:
    """A population, the cohort of a round, the model, and the work of a client update.

    Args:
        model: "mlp", "cnn", "gpt2", or a model of raysim by its name.
        shape: shape of an image, or (length,) of a text of tokens, each of which predicts the next one.
        clients: number of training clients.
        samples: samples of a client.
        cohort: clients of a round.
        hidden: widths of the hidden layers of the "mlp".
        norm: normaliser of the "mlp": "none" or "batch".
        network: settings of the "gpt2".
        adapters: whether only low-rank adapters of rank 8 train.
        rounds: rounds of a whole job; 0 if only the time of a round is asked for.
        test_every: rounds from one evaluation to the next; 0 evaluates nothing.
        test_samples: samples of the global test set.
        held_out: clients beside the training clients that only serve for evaluation.
    """

    model: str
    shape: tuple[int, ...]
    clients: int
    samples: int
    cohort: int
    classes: int = 10
    batch: int = 10
    epochs: int = 1
    lr: float = 0.1
    hidden: tuple[int, ...] = HIDDEN
    norm: str = "none"
    network: Mapping[str, int] = field(default_factory=dict)
    adapters: bool = False
    rounds: int = 0
    test_every: int = 0
    test_samples: int = 0
    held_out: int = 0


MNIST, CIFAR, DIGITS, SMALL = (1, 28, 28), (3, 32, 32), (3, 28, 28), (1, 8, 8)

TOKENS = 256
"""Tokens of a text: bytes."""

LENGTH = 64
"""Tokens of a sample of text."""


def gpt2(layers: int, heads: int, width: int, cohort: int, *, adapters: bool = False) -> Load:
    """A language model on 100 clients of 20 texts: 2 steps each."""
    network = {"n_layer": layers, "n_head": heads, "n_embd": width, "n_positions": LENGTH, "vocab_size": TOKENS}
    return Load("gpt2", (LENGTH,), 100, 20, cohort, classes=TOKENS, network=network, adapters=adapters)


LOADS = {
    # Long client updates: 60 steps each.
    "A": Load("mlp", MNIST, clients=100, samples=600, cohort=10),
    # Short client updates: 2 steps each, so the work around them weighs most.
    "B": Load("mlp", MNIST, clients=1000, samples=20, cohort=100),
    # Convolutions: arithmetic weighs most.
    "C": Load("cnn", CIFAR, clients=1000, samples=50, cohort=50),
    # Language models of 0.12 and of 10.8 million parameters, all of them or adapters alone.
    "K": gpt2(2, 4, 64, cohort=20),
    "L": gpt2(2, 4, 64, cohort=20, adapters=True),
    "M": gpt2(6, 6, 384, cohort=4),
    "N": gpt2(6, 6, 384, cohort=4, adapters=True),
    # The peers' scripts run none of the loads below.
    # Networks of the papers: FedBN's for digits, LeNet, and a residual one; the first and the last have batch norm.
    "O": Load("digit_cnn", DIGITS, clients=100, samples=64, cohort=10, batch=32, lr=0.01),
    "P": Load("lenet", MNIST, clients=100, samples=640, cohort=10, batch=64),
    "Q": Load("resnet20", CIFAR, clients=100, samples=60, cohort=10, batch=20),
    # A whole job: logistic regression with its tests.
    "D": Load("logistic", MNIST, clients=1000, samples=60, cohort=10, rounds=100, test_every=20, test_samples=10_000),
    # Empty client updates: batch norm trains on no batch of one sample, so an update takes no step.
    "E": Load("mlp", SMALL, clients=2000, samples=1, cohort=1000, hidden=(8,), norm="batch"),
    # A large cohort.
    "G": Load("mlp", MNIST, clients=10_000, samples=10, cohort=10_000),
    # A whole job on MNIST: 60,000 samples of 2,000 clients, half of them held out, evaluated in every round.
    "I": Load("mlp", MNIST, clients=1000, samples=30, cohort=100, rounds=50, test_every=1, held_out=1000),
}


def make(load: str) -> dict[str, np.ndarray]:
    """The load's arrays: `x` [K, n, *shape], `y` int64 [K, n], and a test set where the load has tests.

    Pixels are uint8. Tokens are int32, and `y` [K, n, length] has the token that follows each of them.
    """
    this, rng = LOADS[load], np.random.default_rng(0)

    def part(*size: int) -> tuple[np.ndarray, np.ndarray]:
        if this.model == "gpt2":
            tokens = rng.integers(0, TOKENS, (*size, LENGTH + 1), dtype=np.int32)
            return tokens[..., :-1], tokens[..., 1:].astype(np.int64)
        pixels = rng.integers(0, 256, (*size, *this.shape), dtype=np.uint8)
        return pixels, rng.integers(0, this.classes, size, dtype=np.int64)

    arrays = dict(zip(("x", "y"), part(this.clients, this.samples), strict=True))
    if this.test_samples:
        arrays |= zip(("x_test", "y_test"), part(this.test_samples), strict=True)
    return arrays


def check(path: str | Path, load: str) -> None:
    """Refuse a file without the load's arrays; it reads their headers only."""
    this = LOADS[load]
    try:
        with zipfile.ZipFile(path) as file:
            x, y = (_shape(file, name) for name in ("x.npy", "y.npy"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise SystemExit(f"{path}: cannot be read as the data of load {load}: {error}") from None
    if x != (this.clients, this.samples, *this.shape) or y[:2] != x[:2]:
        raise SystemExit(f"{path}: x {x} and y {y} are not load {load}'s")


def _shape(file: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    with file.open(name) as array:
        np.lib.format.read_magic(array)
        return np.lib.format.read_array_header_1_0(array)[0]


def read(path: str | Path, load: str) -> tuple[np.ndarray, np.ndarray]:
    """The clients' data as training wants it: pixels as float32 in [0, 1], or tokens, and labels.

    They are made once, before any round is timed.
    """
    check(path, load)
    with np.load(path) as file:
        x, y = file["x"], file["y"]
    if LOADS[load].model == "gpt2":
        return x.astype(np.int64), y
    # Pixels as table entries: one pass, and no float64 between.
    return (np.arange(256, dtype=np.float32) / np.float32(255))[x], y


def parser(description: str | None, default_rounds: int = 5) -> argparse.ArgumentParser:
    """The arguments that every peer's script takes."""
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("--data", required=True, help="the .npz file that loads.py wrote")
    made.add_argument("--load", required=True, choices=[*"ABCKLMN"])
    made.add_argument("--rounds", type=_at_least_one, default=default_rounds, help="rounds that count")
    made.add_argument("--warm", type=_at_least_one, default=2, help="rounds before them, not counted")
    return made


def _at_least_one(text: str) -> int:
    """The first round compiles, reads data and evaluates: no peer's may count."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


@contextmanager
def needed(environment: str) -> Iterator[None]:
    """Around a peer's imports: a package that is missing ends in one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        remedy = f"run this with the environment that environments.sh makes for {environment}"
        raise SystemExit(f"{error}: {remedy}") from None


def report(
    peer: str, version: str, arguments: argparse.Namespace, workers: int, stamps: Sequence[float], **more: str
) -> None:
    """Print the one line from the times of the merges; the first is the start, before round 1."""
    if len(stamps) != 1 + arguments.warm + arguments.rounds:
        raise SystemExit(f"{peer} ended after {len(stamps) - 1} rounds of {arguments.warm + arguments.rounds}")
    counted = stamps[arguments.warm :]
    seconds = [round(after - before, 6) for before, after in pairwise(counted)]
    record = {"peer": peer, "version": version, "load": arguments.load, "workers": workers, "seconds": seconds, **more}
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in LOADS:
        raise SystemExit(f"usage: python loads.py {'|'.join(LOADS)} FILE.npz")
    np.savez(sys.argv[2], **make(sys.argv[1]))
