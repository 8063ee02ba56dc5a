"""Redistribution: between two aggregations models move on to other clients (RADFed)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from algorithms.core.fleet import Block, Fleet, Function, Output, Reference, map_joined
from algorithms.core.rows import UpdateRows
from algorithms.core.state import State, TravellingModel
from algorithms.core.sums import Sum
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.client_update import ClientInput
from algorithms.training.worker import Worker


def deal(
    state: State, algorithm: Algorithm, clients: int
) -> tuple[Sequence[TravellingModel], tuple[TravellingModel, ...]]:
    """Deal the travelling models to a cohort; return the model of each client, and the models that wait.

    Models with fewer client updates go first, so that all have made about as many at the next aggregation. If the
    schedule drops models, none waits, except in a round without any client: then all models wait.

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        clients: number of clients in the cohort, at most as many as there are models.
    """
    models = state.travelling_models
    if not models or not clients:
        return (), models
    order = algorithm.rounds.deal(len(models), state.seed, state.round + 1)
    going = set(sorted(order, key=lambda i: models[i].updates)[:clients])
    dealt = [models[i] for i in order if i in going]
    if algorithm.rounds.fewer == "drop":
        return dealt, ()
    return dealt, tuple(models[i] for i in order if i not in going)


def redistributed(
    state: State,
    dealt: Sequence[TravellingModel],
    references: Sequence[Reference],
    rows: UpdateRows,
    waiting: tuple[TravellingModel, ...],
) -> State:
    """Return the state after a round without aggregation: its models travel on, or begin to travel.

    Args:
        state: the run before the round.
        dealt: models before their client updates; empty in the first round after an aggregation.
        references: models after their client updates.
        rows: reports of the client updates.
        waiting: models that had no client.
    """
    made = [model.updates for model in dealt] or [0] * len(rows)
    moved = tuple(
        TravellingModel(reference, weight, updates + 1)
        for reference, weight, updates in zip(references, rows.weights.tolist(), made, strict=True)
    )
    return replace(state, round=state.round + 1, travelling_models=moved + waiting)


@dataclass(frozen=True)
class SumModels(Function):
    """Weighted sum of the travelling models of a block."""

    def join(self, left: Sum, right: Sum) -> Sum:
        return left.plus(right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        models = Sum.zero(worker.resident.layouts.shared)
        for client_input, model in zip(block.inputs, values, strict=True):
            models.add(model, client_input.weight)
        return Output(models)


def sum_models(travelling_models: Sequence[TravellingModel], fleet: Fleet) -> Sum:
    """Return the weighted sum of travelling models, added up by the workers that hold them."""
    size = fleet.block_size(len(travelling_models))
    blocks: list[Block] = []
    for start in range(0, len(travelling_models), size):
        part = travelling_models[start : start + size]
        inputs = tuple(ClientInput(None, model.weight) for model in part)
        references = tuple(model.reference for model in part)
        clients = tuple(range(start, start + len(part)))
        blocks.append(Block(len(blocks), clients, len(part), inputs, references))
    models: Sum = map_joined(fleet, SumModels(), blocks)[0]
    return models
