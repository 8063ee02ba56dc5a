"""One synchronous round, as FedAvg's paper writes it: cohort, client updates, sum, server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.fleet import Block, Fleet, Function, cut, map_joined
from algorithms.core.layout import Memory, Packed
from algorithms.core.rows import NO_ROWS, UpdateRows
from algorithms.core.state import State, TravellingModel
from algorithms.core.sums import Sum
from algorithms.options.choice import PowerOfChoice
from algorithms.options.scores import Scores
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.client_update import NO_INPUT, ClientInput, ClientUpdates
from algorithms.parts.option import Draft, Parts, Received
from algorithms.parts.schedule import Sample
from algorithms.parts.server import next_model
from algorithms.rounds.redistribution import deal, redistributed, sum_models


def run_round(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> State:
    """Run one synchronous round.

        S_t     <- m clients, drawn at random
        w_k     <- ClientUpdate(k, w_t)                     for each k in S_t, in parallel
        w_(t+1) <- server(w_t, sum_k p_k w_k / sum_k p_k)

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        last: whether this is the run's last round, which always aggregates.

    Paper: McMahan et al., 2017, Algorithm 1. Between two aggregations models are redistributed: RADFed, Algorithm 1.
    """
    draft = Draft(state, algorithm, fleet, sample_cohort(state, algorithm, fleet))
    dealt, waiting = deal(state, algorithm, len(draft.cohort))
    aggregates = last or algorithm.rounds.aggregates(draft.number)
    received = _trained(draft, draft.wrapped(client_updates(state, algorithm, fleet, aggregates)), dealt)
    for client, location in zip(received.rows.clients.tolist(), received.rows.personal, strict=True):
        if location is not None:
            state.personal.add(draft.number, client, location)
    if not aggregates:
        return redistributed(state, dealt, received.objects, received.rows, waiting)
    received = draft.reduced(with_late(state, with_waiting(waiting, fleet, received)))
    after = served(draft, received)
    return draft.published(received, replace(after, memory={**after.memory, **received.memory}))


def served(draft: Draft, received: Received) -> State:
    """Return the run after the server's step."""
    state, models = draft.state, received.models
    if models is None:
        raise RuntimeError("the models of an aggregation are summed")
    model, memory = aggregate(state, draft.algorithm, draft.fleet, models, received.rows)
    average = received.personal.mean() or state.average
    after = replace(state, round=draft.number, model=model, average=average, travelling_models=())
    return after.keeping("server", memory)


def sample_cohort(state: State, algorithm: Algorithm, fleet: Fleet) -> NDArray[np.int64]:
    """Draw the clients of the next round, in id order; at most as many as there are travelling models, if any."""
    sample, census = algorithm.schedule.sample, fleet.census
    if state.attending is not None:
        return state.attending.cohort
    if isinstance(sample.by, PowerOfChoice):
        return _with_largest_losses(state, algorithm, fleet, sample.by)
    weights = census.samples if sample.by == "size" else state.importance
    most = len(state.travelling_models) or None
    return sample.draw(census.clients, state.seed, state.round + 1, weights, most, census.joins)


def draw_candidates(state: State, sample: Sample, by: PowerOfChoice, census: Census) -> NDArray[np.int64]:
    """Draw the candidates of the next round in proportion to their samples, in id order."""
    drawn = replace(sample, fraction=None, cohort=by.candidates, by="size")
    return drawn.draw(census.clients, state.seed, state.round + 1, census.samples, None, census.joins)


def _with_largest_losses(state: State, algorithm: Algorithm, fleet: Fleet, by: PowerOfChoice) -> NDArray[np.int64]:
    """Return the candidates with the largest losses under the global model and their own personal entries."""
    sample, census = replace(algorithm.schedule.sample, by="size"), fleet.census
    candidates = draw_candidates(state, sample, by, census)
    scores = Scores(client_updates(state, algorithm, fleet, aggregate=True), "loss_after", nan)
    start = fleet.put(round_input(state, algorithm, fleet))
    losses = map_joined(fleet, scores, blocks_of(state, fleet, candidates, ()), [start])[0] if len(candidates) else []
    size = sample.size(len(census.clients if sample.fraction is None else census.joined(state.round + 1)))
    return by.largest(candidates, np.array(losses), size)


def client_updates(state: State, algorithm: Algorithm, fleet: Fleet, aggregate: bool) -> ClientUpdates:
    """Return the client updates of the next round."""
    local = algorithm.local.fitted(fleet.census)
    if state.attending is not None:
        local = local.attended(fleet.census, len(state.attending.cohort))
    needs = tuple(dict.fromkeys((*algorithm.needs, *(("bn_shift",) if "bn" in state.measures else ()))))
    return ClientUpdates(local, algorithm.weighting, state.seed, state.round + 1, aggregate, state.rounds, needs)


def round_input(state: State, algorithm: Parts, fleet: Fleet) -> tuple[Packed | None, Packed]:
    """Return the global model and the personal entries of a newcomer, as `ClientUpdates` takes them."""
    newcomer = fleet.layouts.begun(state.average) if algorithm.sharing.newcomer == "average" else state.initial
    return (None if state.travelling_models else state.model), newcomer


def aggregate(state: State, algorithm: Parts, fleet: Fleet, models: Sum, updates: UpdateRows) -> tuple[Packed, Memory]:
    """Return the next global model and the memory of the server's rule.

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        fleet: fleet that ran the blocks.
        models: sum of the clients' models.
        updates: reports of the round's client updates.
    """
    mean = models.mean()
    if mean is None:  # no client had a sample to train on
        return state.model, state.of("server")
    layout, rule = algorithm.local.trained(fleet.layouts.shared), algorithm.server
    if hasattr(rule, "fitted"):
        rule = rule.fitted(fleet.census)
    return next_model(rule, state.model, mean, models.total, state.of("server"), layout, state.round + 1, updates)


def _trained(draft: Draft, updates: Function, dealt: Sequence[TravellingModel]) -> Received:
    """Train the cohort; return what the server receives."""
    state, fleet = draft.state, draft.fleet
    start = fleet.put(round_input(state, draft.algorithm, fleet))
    blocks = blocks_of(state, fleet, draft.cohort, dealt)
    if not blocks:
        return Received(NO_ROWS, Sum.zero(fleet.layouts.shared), Sum.zero(fleet.layouts.personal))
    result, objects = map_joined(fleet, updates, blocks, [start])
    return Received(result.rows, result.models, result.personal, objects)


def with_waiting(waiting: Sequence[TravellingModel], fleet: Fleet, received: Received) -> Received:
    """Return what the server receives with the models that waited."""
    if not waiting or received.models is None:
        return received
    return replace(received, models=received.models.plus(sum_models(waiting, fleet)))


def with_late(state: State, received: Received) -> Received:
    """Return what the server receives with the late updates."""
    if state.attending is None or received.models is None:
        return received
    return replace(received, models=received.models.plus(state.attending.late))


def blocks_of(state: State, fleet: Fleet, cohort: NDArray[np.int64], dealt: Sequence[TravellingModel]) -> list[Block]:
    """Cut the cohort into blocks; each client has its personal entries and, between aggregations, its model."""
    samples, sites = fleet.census.of(cohort), fleet.census.sites_of(cohort)
    blocks: list[Block] = []
    for part in cut(len(cohort), fleet.block_size(len(cohort)), sites):
        clients = tuple(cohort[part].tolist())
        inputs = (NO_INPUT,) * len(clients)
        if dealt or state.personal.newest:
            weights = [model.weight for model in dealt[part]] or [0.0] * len(clients)
            personal = [state.personal.latest(client, state.round) for client in clients]
            inputs = tuple(ClientInput(*each) for each in zip(personal, weights, strict=True))
        references = tuple(model.reference for model in dealt[part])
        site = None if sites is None else int(sites[part.start])
        blocks.append(Block(len(blocks), clients, int(samples[part].sum()), inputs, references, site))
    return blocks
