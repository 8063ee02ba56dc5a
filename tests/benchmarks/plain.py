"""Plain PyTorch loops over the same client updates: one loop, and two side by side.

uv run python -m tests.benchmarks.plain 2 A POPULATION 5        # loops, load, population, counted rounds
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms import Local, Participation, Purpose, generator, torch_seed
from raysim.data.shards import Shards
from raysim.models.build import build
from tests.benchmarks.peers.loads import LOADS, Load

WARM = 2
"""Rounds that are not counted: first touch of memory, data read into caches."""


def local_of(load: Load) -> Local:
    """Train on one client's samples."""
    return Local(lr=load.lr, epochs=load.epochs, batch_size=load.batch)


def model_table(load: Load) -> dict[str, Any]:
    """Return the keys of `[model]` for a load."""
    tables: dict[str, dict[str, Any]] = {
        "cnn": {"name": "cnn_dropout"},
        "mlp": {"name": "mlp", "hidden": list(load.hidden), "norm": load.norm},
        "gpt2": {"name": "transformer", "architecture": "gpt2", "options": dict(load.network)},
    }
    table = tables.get(load.model, {"name": load.model})
    return {**table, "train": "lora"} if load.adapters else table


def model_of(load: Load) -> nn.Module:
    """The load's model, initialised as the engine does it."""
    parameters = model_table(load)
    seed, labels = torch_seed(0, Purpose.INITIALISE), "sequence" if load.model == "gpt2" else "class"
    return build(parameters.pop("name"), shape=load.shape, classes=load.classes, seed=seed, labels=labels, **parameters)


class PlainLoop:
    """Federated averaging by hand: resident tensors, `torch.optim.SGD`, a running weighted sum.

    Args:
        data: inputs and labels of each client.
        load: load.
    """

    def __init__(self, data: Sequence[tuple[torch.Tensor, torch.Tensor]], load: Load) -> None:
        torch.set_num_threads(1)
        self.data = data
        self.module = model_of(load)
        self.load, self.local = load, local_of(load)
        self.start = {name: value.clone() for name, value in self._sent().items()}

    def _sent(self) -> dict[str, torch.Tensor]:
        """Parameters that train, and buffers."""
        named = self.module.named_parameters(remove_duplicate=False)
        frozen = {name for name, value in named if not value.requires_grad}
        return {name: value for name, value in self.module.state_dict().items() if name not in frozen}

    def updates(self, number: int, share: slice = slice(None)) -> dict[str, torch.Tensor]:
        """Make the share's client updates of a round and sum them by samples."""
        cohort = Participation(cohort=self.load.cohort).draw(np.arange(self.load.clients), 0, number)
        total = {name: torch.zeros_like(value) for name, value in self.start.items()}
        for client in cohort[share]:
            self.module.load_state_dict(self.start, strict=not self.load.adapters)
            optimiser = torch.optim.SGD(self.module.parameters(), lr=self.local.lr)
            x, y = self.data[client]
            for rows in self.local.passes(len(y), generator(0, Purpose.BATCHES, number, int(client))):
                if self.load.norm == "batch" and len(rows) == 1:  # batch norm has no variance there
                    continue
                batch = torch.from_numpy(rows)
                optimiser.zero_grad()
                cross_entropy(self.module(x[batch]), y[batch]).backward()
                optimiser.step()
            for name, value in self._sent().items():
                total[name] += len(y) * value
        return total

    def round(self, number: int) -> None:
        """A whole round: the mean of the cohort's models is the next one."""
        samples = self.load.cohort * self.load.samples
        self.start = {name: value / samples for name, value in self.updates(number).items()}


def samples_of(path: Path, load: Load) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return inputs and labels of each client of a population."""
    shards = Shards(path)
    return [shards.samples(client, "train") for client in range(load.clients)]


def one_loop(path: Path, load: Load, rounds: int) -> float:
    """Median seconds of a round of the loop in this process."""
    loop, seconds = PlainLoop(samples_of(path, load), load), []
    for number in range(1, WARM + rounds + 1):
        started = time.perf_counter()
        loop.round(number)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARM:])


def two_loops(path: Path, load: Load, rounds: int) -> float:
    """The ideal on two cores: median seconds of a round that two loops share; the slower one's, nothing to combine."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    halves = [context.Process(target=_half, args=(path, load, rounds, which, barrier, results)) for which in range(2)]
    for half in halves:
        half.start()
    found = [results.get(timeout=600) for _ in range(2 * (WARM + rounds))]
    for half in halves:
        half.join()
    slower = [max(s for n, s in found if n == number) for number in range(1, WARM + rounds + 1)]
    return statistics.median(slower[WARM:])


def _half(path: Path, load: Load, rounds: int, which: int, barrier: Any, results: Any) -> None:
    loop = PlainLoop(samples_of(path, load), load)
    for number in range(1, WARM + rounds + 1):
        barrier.wait()
        started = time.perf_counter()
        loop.updates(number, slice(which, None, 2))
        results.put((number, time.perf_counter() - started))


if __name__ == "__main__":
    loops, name, path, rounds = sys.argv[1:]
    print({"1": one_loop, "2": two_loops}[loops](Path(path), LOADS[name], int(rounds)))
