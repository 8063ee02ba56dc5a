"""Rounds of edges below a cloud: each edge averages its clients' models, and the cloud those of the edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Fleet
from algorithms.core.layout import Packed
from algorithms.core.state import EDGES, State
from algorithms.core.sums import Sum
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.option import Draft
from algorithms.parts.received import Received
from algorithms.rounds.round import PendingRound, aggregate
from algorithms.rounds.several import grouped, joined, start_groups


def start_hierarchical(
    state: State, algorithm: Algorithm, fleet: Fleet, edge: NDArray[np.int64], aggregates: bool
) -> PendingRound:
    """Start a round of edges; see `algorithms.hierfavg.Edges`.

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        edge: edge of each training client, int64 [K].
        aggregates: whether the round ends in an aggregation of the cloud.
    """
    memory, draft = state.of(EDGES), Draft.of(state, algorithm, fleet).attended()
    models: Sequence[Packed] = memory.get("models") or (state.model,) * (int(edge.max()) + 1)
    weights = memory["weights"] if "models" in memory else np.zeros(len(models))
    wait = start_groups(grouped(draft, models, edge[np.searchsorted(fleet.census.clients, draft.drawn)]))

    def finish() -> State:
        received = wait()
        sums = [each.models or Sum.zero(fleet.layouts.shared) for each in received]
        means = tuple(each.mean() or model for each, model in zip(sums, models, strict=True))
        now = weights + np.array([each.total for each in sums])
        cloud = Sum.zero(fleet.layouts.shared)
        for model, weight in zip(means, now.tolist(), strict=True):
            cloud.add(model, weight)
        rounds = memory["rounds"] + 1 if "models" in memory else 1
        whole = replace(joined(received), models=cloud if aggregates else None)
        average = whole.personal.mean() or state.average
        after = replace(state, round=draft.number, average=average).keeping(
            EDGES, {"edge": edge, "weights": now, "rounds": rounds}
        )
        return draft.published(whole, _served(after, draft, whole, cloud, means))

    return PendingRound(finish)


def _served(state: State, draft: Draft, received: Received, cloud: Sum, means: tuple[Packed, ...]) -> State:
    """Return the run after the cloud's step, or else with the mean of the edges' models."""
    then = draft.state.of(EDGES).get("model", draft.state.model)
    if received.models is None:
        memory = {**state.of(EDGES), "model": then, "models": means}
        return replace(state, model=cloud.mean() or state.model).keeping(EDGES, memory)
    before, rounds = replace(draft.state, model=then), state.of(EDGES)["rounds"]
    # The rule sees the weight of a round: FedDyn's step grows with it.
    mean = cloud if rounds == 1 else replace(cloud, floats=cloud.floats / rounds, total=cloud.total / rounds)
    model, server = aggregate(before, draft.algorithm, draft.fleet, mean, received.rows)
    return replace(state, model=model).keeping("server", server)
