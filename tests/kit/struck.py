"""Work whose actor is struck while it runs, and what a few rounds come to all the same."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import partitioning
from algorithms import Algorithm, Block, Fleet, Function, Output, PersonalStore, State, Worker, begin, next_round
from partitioning import Population
from raysim.data.sources import load
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.inline import InlineWorkplace
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.evaluate import Targets, evaluate
from raysim.measures.metrics import METRICS as BY_NAME

MODEL = ModelPlan("mlp", {"hidden": (12,), "norm": "batch"}, (1, 8, 8), 10, seed=1)
ROUNDS = 4

ROW_BYTES = 7 * 8
"""Bytes of an update's row on its way to the driver: its client, five numbers of its report, and its weight."""


@dataclass(frozen=True)
class Struck(Function):
    """What a function does, in a process that a signal strikes when it is done and has not told yet; so often.

    Where it is several times, they are at once: each waits for the others.
    """

    updates: Any
    folder: Path
    signal: int = signal.SIGKILL
    times: int = 1

    def objects(self, block: Block) -> int:
        count: int = self.updates.objects(block)
        return count

    def join(self, left: Any, right: Any) -> Any:
        return self.updates.join(left, right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        output: Output = self.updates(worker, block, *values)
        for number in range(self.times):
            try:
                (self.folder / f"{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            while len(list(self.folder.iterdir())) < self.times:
                time.sleep(0.01)
            os.kill(os.getpid(), self.signal)
        return output


@dataclass(frozen=True)
class Poison(Function):
    """Ends the process of whoever works for a client."""

    client: int
    number: int = 7

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Any, right: Any) -> Any:
        return left + right

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        if self.client in block.clients:
            sys.stderr.write("this client is poison\n")
            sys.stderr.flush()
            os._exit(3)
        return Output(list(block.clients))


@dataclass(frozen=True)
class Faulty:
    """A fleet on which one kind of work is struck."""

    fleet: Any
    kind: str
    folder: Path
    signal: int = signal.SIGKILL
    times: int = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)

    def map(self, function: Any, blocks: Sequence[Block], references: Sequence[Any] = ()) -> Iterator[Any]:
        if type(function).__name__ == self.kind:
            function = Struck(function, self.folder, self.signal, self.times)
        outcomes: Iterator[Any] = self.fleet.map(function, blocks, references)
        return outcomes


def awake(actors: ClientActors, plan: WorkerPlan) -> None:
    """Wait until an actor has arrived: until then the driver would run work that strikes whoever does it."""
    with closing(actors.fleet(plan)) as fleet:
        while not actors.pool.arrived:
            list(fleet.map(Poison(-1), [Block(0, (0,), 1)]))
            time.sleep(0.1)


def population_at(folder: Path) -> Population:
    """Eight training clients, and two that are held out."""
    return partitioning.make(load("digits").train, folder, scheme="iid", clients=10, seed=5, test_clients=2)


def plan_of(population: Population, algorithm: Algorithm, personal: Path) -> WorkerPlan:
    return WorkerPlan(population.path, MODEL, algorithm, personal, block=1).resolved()


def trained(fleet: Fleet, plan: WorkerPlan, population: Population) -> tuple[object, ...]:
    """What some rounds come to, one of them evaluated on its way: models, what clients keep, metrics."""
    targets = Targets.of(population, None, [BY_NAME["loss"]])
    state, metrics = begin(plan.module(), fleet, 0, ROUNDS), []
    for number in range(1, ROUNDS + 1):
        state = next_round(state, plan.algorithm, fleet, last=number == ROUNDS)
        if number % 2 == 0:
            metrics.append(evaluate(state, plan.algorithm, fleet, targets))
    return *of_bytes(state, plan), metrics


def trained_here(plan: WorkerPlan, population: Population) -> tuple[object, ...]:
    """Return the same of rounds in this process."""
    with closing(InlineWorkplace().fleet(plan)) as fleet:
        return trained(fleet, plan, population)


def of_bytes(state: State, plan: WorkerPlan) -> tuple[object, ...]:
    """Digests of a state's model and of what its clients keep."""
    store, layout = PersonalStore(plan.personal, plan.layouts.personal), plan.layouts.personal
    personal = []
    for client in state.personal.clients(state.round):
        location = state.personal.latest(client, state.round)
        assert location is not None
        personal.append(store.read(location).floats.tobytes())
    assert personal or not layout.entries
    return tuple(sha256(b"".join(part)).hexdigest() for part in ([state.model.floats.tobytes()], personal))
