"""Redistribution: between two aggregations models move on to other clients (RADFed)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from algorithms.core.fleet import Block, Fleet, Function, Output, cut, map_joined
from algorithms.core.state import State, TravellingModel
from algorithms.core.sums import Sum
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.client_update import ClientInput
from algorithms.parts.cohort import Training, blocks_of, client_updates
from algorithms.parts.option import Draft
from algorithms.parts.received import Received
from algorithms.rounds.round import PendingRound, served
from algorithms.training.worker import Worker


def start_redistributing(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
    """Start one round of delayed aggregation: models move on to other clients, or are aggregated; see `start_round`.

    The cohort has at most as many clients as models travel. The last round always aggregates.

    Paper: RADFed, Algorithm 1.
    """
    models, begun = state.travelling_models, Draft.of(state, algorithm, fleet)
    size = min(begun.size, len(models) or begun.size)
    draft = replace(begun, size=size, models_travel=bool(models)).attended()
    aggregates = last or algorithm.rounds.aggregates(draft.number)
    dealt, waiting = deal(draft, models)
    updates = draft.wrapped(replace(client_updates(draft), aggregate=aggregates))
    training = Training(draft, updates, blocks_of(draft, draft.drawn, dealt))

    def finish() -> State:
        received = training.received()
        if aggregates:
            if waiting and received.models is not None:
                received = replace(received, models=received.models.plus(sum_models(waiting, fleet)))
            received = draft.reduced(received)
            return draft.published(received, served(draft, received).keeping("redistribution", {}))
        received = draft.reduced(replace(received, models=None))
        after = replace(state, round=draft.number)
        return draft.published(received, after.keeping("redistribution", {"models": moved(dealt, received) + waiting}))

    return PendingRound(finish)


def deal(
    draft: Draft, models: tuple[TravellingModel, ...]
) -> tuple[Sequence[TravellingModel], tuple[TravellingModel, ...]]:
    """Deal the travelling models to a cohort; return the model of each client, and the models that wait.

    Models with fewer client updates go first, so that all have made about as many at the next aggregation. If the
    schedule drops models, none waits, except in a round without any client: then all models wait.
    """
    clients, rounds = len(draft.drawn), draft.algorithm.rounds
    if not models or not clients:
        return (), models
    order = rounds.deal(len(models), draft.state.seed, draft.number)
    going = set(sorted(order, key=lambda i: models[i].updates)[:clients])
    dealt = [models[i] for i in order if i in going]
    if rounds.fewer == "drop":
        return dealt, ()
    return dealt, tuple(models[i] for i in order if i not in going)


def moved(dealt: Sequence[TravellingModel], received: Received) -> tuple[TravellingModel, ...]:
    """Return the models after a round's client updates.

    Args:
        dealt: models before them; empty in the first round after an aggregation.
        received: reports of the client updates, and references to the models.
    """
    rows = received.rows
    made = [model.updates for model in dealt] or [0] * len(rows)
    return tuple(
        TravellingModel(reference, weight, updates + 1)
        for reference, weight, updates in zip(received.objects, rows.weights.tolist(), made, strict=True)
    )


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
    count = len(travelling_models)
    blocks: list[Block] = []
    for part in cut(count, fleet.block_size(count)):
        inputs = tuple(ClientInput(None, model.weight) for model in travelling_models[part])
        references = tuple(model.reference for model in travelling_models[part])
        blocks.append(Block(len(blocks), tuple(range(count)[part]), len(inputs), inputs, references))
    models: Sum = map_joined(fleet, SumModels(), blocks)[0]
    return models
