"""Rounds of a worker in this process, on the device: for kernels and for what they take, not for a run's speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from algorithms import Algorithm, Compute, Local, Participation, Purpose, begin, fedavg, next_round, torch_seed
from raysim.fleet.inline import InlineFleet
from raysim.fleet.machine import settled
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan
from tests.benchmarks.gpu.setting import MIB
from tests.benchmarks.peers.loads import Load
from tests.benchmarks.plain import WARM

NUMBERS = count()


@dataclass(frozen=True)
class Rounds:
    """Rounds that were measured.

    Args:
        seconds: seconds of a round, the median.
        mib: most memory that torch took of the GPU, in MiB; None on the CPU.
        model: shared entries after the last round.
        execution: execution that ran.
    """

    seconds: float
    mib: int | None
    model: Any
    execution: str


def plan_of(
    path: Path, load: Load, device: str, model: ModelPlan, algorithm: Algorithm | None = None, block: int | str = "auto"
) -> WorkerPlan:
    """Return a resolved plan; FedAvg with the load's local training by default."""
    algorithm = algorithm or fedavg(Participation(cohort=load.cohort), local_of(load))
    personal = path.parent / f"personal-{next(NUMBERS)}"
    return WorkerPlan(path, model, algorithm, personal, block, device).resolved()


def local_of(load: Load, execution: Any = "auto") -> Local:
    """Return a load's local training with an execution."""
    return Local(lr=load.lr, epochs=load.epochs, batch_size=load.batch, compute=Compute(execution))


def model_of(name: str, load: Load, **parameters: object) -> ModelPlan:
    """Return a model with the first initial weights of seed 0."""
    return ModelPlan(name, dict(parameters), load.shape, load.classes, torch_seed(0, Purpose.INITIALISE))


@contextmanager
def fleet_of(plan: WorkerPlan) -> Iterator[InlineFleet]:
    """Set up a worker in this process, with one thread and deterministic kernels."""
    with settled(1), closing(InlineFleet(plan.build(), plan.census, plan.block_size)) as fleet:
        yield fleet


def measured(plan: WorkerPlan, rounds: int) -> Rounds:
    """Run rounds in this process."""
    if plan.device == "cuda":
        torch.cuda.init()  # else there are no statistics to reset
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with fleet_of(plan) as fleet:
        state, seconds = begin(plan.module(), fleet, seed=0), []
        for _ in range(WARM + rounds):
            started = time.perf_counter()
            state = next_round(state, plan.algorithm, fleet)
            synchronise(plan.device)
            seconds.append(time.perf_counter() - started)
    mib = torch.cuda.max_memory_reserved() // MIB if plan.device == "cuda" else None
    execution = plan.algorithm.local.compute.execution
    return Rounds(statistics.median(seconds[WARM:]), mib, state.model, execution)


def with_execution(algorithm: Algorithm, execution: str) -> Algorithm:
    """Return the algorithm with another execution."""
    return algorithm.computed(replace(algorithm.local.compute, execution=execution))  # type: ignore[arg-type]


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()
