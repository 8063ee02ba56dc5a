"""GPU memory of a run, measured, and the number of actors that share a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import ceil, floor, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms import Block, ClientInput, begin
from algorithms.core.clients import SamplePart
from algorithms.parts.cohort import client_updates
from algorithms.parts.option import Draft
from partitioning import Population
from raysim.common.errors import InputError, of_algorithm
from raysim.common.log import LOG
from raysim.data.shards import DEVICE_SHARE
from raysim.fleet.calls import START_SECONDS, fetch_results
from raysim.fleet.inline import InlineFleet
from raysim.fleet.resources import ActorDemand, RayNode, capacity
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.scoring import Evaluate, block_samples

MARGIN = 0.1
"""Free share of an actor's part of a GPU: torch's allocator does not fill every gap."""

MAX_SHARERS = 16
"""Largest number of actors on a GPU. More gain nothing, because their kernels run one after the other."""

UNIT = 10_000
"""Smallest parts of a GPU that Ray counts."""


def sharers(peak: int, total: int, margin: float = MARGIN + DEVICE_SHARE) -> int:
    """Return the number of actors that fit a GPU of `total` bytes, if one process took at most `peak`.

    It is the largest k from 1 to 16 with

        peak <= (1 - margin) total / k

    The margin is for gaps and for the data that actors keep. If no k fits, it is 1, because one actor did reach this
    peak on the GPU.
    """
    return min(MAX_SHARERS, max(1, floor((1 - margin) * total / peak)))


def arranged(sharers: int, gpus: int, places: int, actors: int | None = None) -> tuple[int, int]:
    """Return the number of actors, by default as many as fit GPUs and `places` on CPUs, and how many share a GPU.

    Spread the actors over all GPUs: Ray packs, and would leave whole GPUs idle.

    Raises:
        InputError: the GPUs do not hold the wanted number.
    """
    most = sharers * gpus
    if actors is not None and actors > most:
        raise InputError(
            f"fleet.actors = {actors}: must be at most {most}, because the memory of a GPU holds {sharers} and Ray has "
            f"{gpus}; set fleet.actors = {most}"
        )
    actors = actors or max(1, min(most, places))
    return actors, ceil(actors / gpus)


def shared_gpus(demand: ActorDemand, peak: int, total: int, nodes: Sequence[RayNode], blocks: int) -> ActorDemand:
    """Return a demand of actors with whole GPUs with its number of actors, and each actor's share of a GPU.

    An actor takes `peak` of the `total` bytes of a GPU. A round has at most `blocks` blocks, and an actor without one
    would be idle.

    Raises:
        InputError: the GPUs do not hold the wanted number.
    """
    held, nodes = sharers(peak, total), [node for node in nodes if demand.each.on(node)]
    gpus = gpus_of(nodes)
    places = min(blocks, replace(demand.each, gpus=0).room(nodes))
    number, shared = arranged(held, gpus, places, demand.number)
    each = replace(demand.each, gpus=fraction(shared))
    LOG.info(
        'fleet.gpus_per_actor = "auto": an actor takes %d of %d MiB, so a GPU holds %d actors; %d of %g GPU each',
        *(peak >> 20, total >> 20, held, number, each.gpus),
    )
    return replace(demand, number=number, each=each)


def gpus_of(nodes: Sequence[RayNode]) -> int:
    """Return the number of whole GPUs of some nodes."""
    return int(capacity(1, [node["Resources"].get("GPU", 0) for node in nodes]))


def idle_notice(places: int, plans: Mapping[str, WorkerPlan]) -> str:
    """Return the notice that a round has fewer blocks than GPUs or actors; "" if smaller blocks would not help."""
    plan = max(plans.values(), key=lambda each: each.blocks)
    smaller = ceil(plan.cohort / places)
    if plan.blocks >= places or smaller >= plan.block_size(plan.cohort):
        return ""
    return (
        f"blocks a round: {plan.blocks}, for {places} GPUs or actors, so some train nothing; "
        f"set fleet.block = {smaller} (a new run, whose last digits differ)"
    )


def fraction(sharers: int) -> float:
    """Return the part of a GPU for each sharer, rounded down to Ray's unit to let the last one fit."""
    return UNIT // sharers / UNIT


def measured_by(
    probe: Any, plans: Mapping[str, WorkerPlan], copy_to: Callable[[str, WorkerPlan], Any]
) -> tuple[int, int]:
    """Return the most bytes that plans take of a GPU, and the GPU's, as an actor with a whole one measures them."""
    fetch_results([probe.fingerprint.remote()], START_SECONDS)
    found: list[tuple[int, int]] = []
    for name, plan in plans.items():
        with of_algorithm(name):
            taken, node = fetch_results(probe.measure.remote(plan))
            if taken is None:
                taken, _ = fetch_results(probe.measure.remote(plan, copy_to(node, plan)))
            found.append(taken)
    return max(found)


def measured(plan: WorkerPlan) -> tuple[int, int]:
    """Return the most bytes of its GPU that this process takes for a plan, and the GPU's bytes.

    The CUDA context and loaded kernels count, as does all that other programs hold.
    """
    # Leave out memory of an earlier plan, which cycles may keep alive.
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rehearse(plan)
    free, total = torch.cuda.mem_get_info()
    beside = total - free - torch.cuda.memory_reserved()
    return torch.cuda.max_memory_reserved() + beside, total


def rehearse(plan: WorkerPlan) -> None:
    """Run the largest block's client updates, and the largest evaluations; keep no result.

    A twin of `evaluate.measures`, whose batches are larger, and models of sizes that no client of the block has take
    memory beyond that.

    Raises:
        OutOfMemoryError: they do not fit.
    """
    with TemporaryDirectory() as personal:
        rehearsed = replace(plan, personal=Path(personal))
        with closing(InlineFleet(rehearsed.build(), rehearsed.census, rehearsed.block_size)) as fleet:
            state = begin(rehearsed.module(), fleet, seed=0, rounds=1)
            block = largest_block(rehearsed)
            draft = replace(Draft.of(state, rehearsed.algorithm, fleet), cohort=np.array(block.clients))
            updates = draft.wrapped(client_updates(draft))
            list(fleet.map(updates, [block], [(state.model, state.initial)]))
            shape = rehearsed.model.whole or rehearsed.model.shape
            for function, block in _evaluations(rehearsed, prod(shape)):
                list(fleet.map(function, [block], [(state.model, state.average)]))


def largest_block(plan: WorkerPlan) -> Block:
    """Return a block of the clients with the most samples; no cohort has a larger one."""
    census = plan.census
    largest = _largest(census.samples, min(plan.block_size(plan.cohort), plan.cohort))
    clients = tuple(int(client) for client in census.clients[largest])
    return Block(0, clients, int(census.samples[largest].sum()), (ClientInput(None, 0.0),) * len(clients))


def _evaluations(plan: WorkerPlan, values: int) -> Iterator[tuple[Evaluate, Block]]:
    """Yield an evaluation of the largest clients, and one of slices of the global test set."""
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
