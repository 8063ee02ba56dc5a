"""Measured GPU memory of a run's largest block and evaluations."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms import Block, ClientInput, begin
from algorithms.core.clients import SamplePart
from algorithms.parts.cohort import client_updates
from algorithms.parts.option import Draft
from partitioning import Population
from raysim.fleet.inline import InlineFleet
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.scoring import Evaluate, block_samples


def measured(plan: WorkerPlan) -> tuple[int, int]:
    """Return the most bytes of this process's GPU that torch takes for a plan, and the GPU's bytes."""
    # Leave out memory of an earlier plan, which cycles may keep alive.
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rehearse(plan)
    return torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info()[1]


def rehearse(plan: WorkerPlan) -> None:
    """Run the steps that take most memory, the largest block's client updates and evaluations; keep no result.

    Raises:
        OutOfMemoryError: they do not fit.
    """
    with TemporaryDirectory() as personal:
        own = replace(plan, personal=Path(personal))
        with closing(InlineFleet(own.build(), own.census, own.block_size)) as fleet:
            state = begin(own.module(), fleet, seed=0, rounds=1)
            block = largest_block(own)
            draft = replace(Draft.of(state, own.algorithm, fleet), cohort=np.array(block.clients))
            updates = draft.wrapped(client_updates(draft))
            list(fleet.map(updates, [block], [(state.model, state.initial)]))
            shape = own.model.whole or own.model.shape
            for function, block in _evaluations(own, prod(shape)):
                list(fleet.map(function, [block], [(state.model, state.average)]))


def largest_block(plan: WorkerPlan) -> Block:
    """Return a block of the clients with the most samples; no cohort has a larger one."""
    census = plan.census
    largest = _largest(census.samples, min(plan.block_size(plan.cohort), plan.cohort))
    clients = tuple(int(client) for client in census.clients[largest])
    return Block(0, clients, int(census.samples[largest].sum()), (ClientInput(None, 0.0),) * len(clients))


def _evaluations(plan: WorkerPlan, values: int) -> Iterator[tuple[Evaluate, Block]]:
    """Yield an evaluation of the largest clients, and one of slices of the global test set.

    Args:
        plan: plan of the worker.
        values: values of one sample.
    """
    population = Population.open(plan.population)
    parts: tuple[SamplePart | None, ...] = ("all", None)
    for part, sizes in zip(parts, (population.sizes, np.array(population.test_slices, np.int64)), strict=True):
        if len(sizes):
            most = block_samples(int(sizes.sum()), values)
            count = int(np.searchsorted(np.cumsum(-np.sort(-sizes)), most)) + 1
            yield Evaluate(part, (), plan.algorithm.local.loss), Block(0, tuple(_largest(sizes, count).tolist()), 1)


def _largest(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the positions of the largest sizes, ascending."""
    return np.sort(np.argsort(-sizes, kind="stable")[:count])
