"""One synchronous round, as FedAvg's paper writes it: cohort, client updates, sum, server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.fleet import Block, Fleet, Reference, cut, map_joined
from algorithms.core.layout import Memory, Packed
from algorithms.core.rows import UpdateRows
from algorithms.core.state import State, TravellingModel
from algorithms.core.sums import Sum
from algorithms.options.broadcast import broadcast
from algorithms.options.choice import PowerOfChoice
from algorithms.options.kept import KeptUpdates, aggregate_kept, guarded
from algorithms.options.noise import spent_by, with_noise
from algorithms.options.scores import Scores
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.client_update import NO_INPUT, BlockResult, ClientInput, ClientUpdates
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
    round_number = state.round + 1
    cohort = sample_cohort(state, algorithm, fleet)
    dealt, waiting = deal(state, algorithm, len(cohort))
    updates = client_updates(state, algorithm, fleet, last or algorithm.rounds.aggregates(round_number))
    if algorithm.keeps_models or algorithm.attack is not None:
        updates = guarded(state, algorithm, fleet, updates, cohort)
    result, models = _train(state, algorithm, fleet, updates, cohort, dealt)
    if isinstance(updates, KeptUpdates):
        result = aggregate_kept(state, algorithm, fleet, updates, result, models)
    for client, location in zip(result.rows.clients.tolist(), result.rows.personal, strict=True):
        if location is not None:
            state.personal.add(round_number, client, location)
    if result.models is None:
        return redistributed(state, dealt, models, result.rows, waiting)
    total = result.models.plus(sum_models(waiting, fleet)) if waiting else result.models
    if state.attending is not None:
        total = total.plus(state.attending.late)
    if algorithm.privacy is not None:
        total, spent = with_noise(state, algorithm, algorithm.privacy, fleet, total, result.rows)
        state = replace(state, privacy=spent)
    model, memory = aggregate(state, algorithm, fleet, total, result.rows)
    state = broadcast(state, algorithm, fleet, model, cohort)
    # A mean of personal entries has no noise, and the average is written and evaluated.
    average = state.average if algorithm.privacy else result.personal.mean() or state.average
    return replace(state, round=round_number, memory=memory, average=average, travelling_models=())


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
    number, uplink = state.round + 1, algorithm.uplink
    if algorithm.privacy is not None:
        uplink = uplink.clipped(spent_by(state, algorithm.privacy).clip)
    return ClientUpdates(local, algorithm.weighting, state.seed, number, aggregate, state.rounds, needs, uplink)


def round_input(state: State, algorithm: Algorithm, fleet: Fleet) -> tuple[Packed | None, Packed]:
    """Return the global model and the personal entries of a newcomer, as `ClientUpdates` takes them."""
    newcomer = fleet.layouts.begun(state.average) if algorithm.sharing.newcomer == "average" else state.initial
    return (None if state.travelling_models else state.model), newcomer


def aggregate(
    state: State, algorithm: Algorithm, fleet: Fleet, models: Sum, updates: UpdateRows
) -> tuple[Packed, Memory]:
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
        return state.model, state.memory
    layout, rule = algorithm.local.trained(fleet.layouts.shared), algorithm.server
    if hasattr(rule, "fitted"):
        rule = rule.fitted(fleet.census)
    return next_model(rule, state.model, mean, models.total, state.memory, layout, state.round + 1, updates)


def _train(
    state: State,
    algorithm: Algorithm,
    fleet: Fleet,
    updates: ClientUpdates,
    cohort: NDArray[np.int64],
    dealt: Sequence[TravellingModel],
) -> tuple[BlockResult, list[Reference]]:
    """Train the cohort; return its rows and sums, and references to models that are not summed."""
    start = fleet.put(round_input(state, algorithm, fleet))
    blocks = blocks_of(state, fleet, cohort, dealt)
    return map_joined(fleet, updates, blocks, [start]) if blocks else (updates.nothing(fleet.layouts), [])


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
