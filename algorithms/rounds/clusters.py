"""Rounds of several global models: each client trains the one that fits its samples best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.clients import SamplePart
from algorithms.core.fleet import Block, Fleet, Function, Output, map_joined
from algorithms.core.keys import Purpose, generator
from algorithms.core.layout import Layouts, Packed
from algorithms.core.returned import read_only
from algorithms.core.state import CLUSTERS, State
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.clustered import ChoiceContext
from algorithms.parts.cohort import blocks_of
from algorithms.parts.option import Draft
from algorithms.parts.received import Received
from algorithms.rounds.round import PendingRound, served
from algorithms.rounds.several import grouped, joined, start_groups
from algorithms.training.batches import batch_losses
from algorithms.training.loss import Loss
from algorithms.training.worker import Worker

CHOICE_BYTES = 8
"""Bytes of the number of a model, which a client sends beside its update."""

UNCHOSEN = -1
"""Choice of a client that has not taken part."""


@dataclass(frozen=True)
class Choices(Function):
    """Function of a fleet: the sum of the losses of each client of a block under each model, and its samples.

    Args:
        part: part of each client's samples.
        loss: loss that is compared.
        round_number: round of the models, a key of the draws of a user's own loss.
    """

    part: SamplePart
    loss: Loss
    round_number: int

    def join(self, left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([left, right])

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        data = [worker.data.samples(client, self.part) for client in block.clients]
        x, y = (torch.cat(each) for each in zip(*data, strict=True))
        counts = np.array([len(labels) for _, labels in data])
        with worker.keyed(Purpose.OWN_REPORT, self.round_number, block.number):
            losses = np.array([self._losses(worker, pair, x, y, counts) for pair in values])
        return Output(np.concatenate([losses.T, counts[:, None]], axis=1))

    @torch.no_grad()
    def _losses(
        self, worker: Worker, pair: tuple[Packed, Packed], x: torch.Tensor, y: torch.Tensor, counts: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the sum of each client's losses under a model, [clients]."""
        resident = worker.resident
        resident.load(*pair)
        module, owners, sums = resident.module.eval(), np.repeat(np.arange(len(counts)), counts), np.zeros(len(counts))
        kept: list[torch.Tensor] = []
        for part in resident.chunks(x):
            outputs = module(x[part].to(resident.floating)).double()
            if self.loss.is_of_batches(outputs, y[part]):
                kept.append(outputs)
            sums += np.bincount(owners[part], self.loss.sums(outputs, y[part]).cpu().numpy(), len(counts))
        return batch_losses(self.loss, kept, y, counts) if kept else sums


def start_clustered(state: State, algorithm: Algorithm, fleet: Fleet, clusters: int) -> PendingRound:
    """Start a round of several global models; see `algorithms.ifca`.

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        clusters: number of models.
    """
    state = state if len(state.models) > 1 else _beginning(state, fleet, clusters)
    draft = Draft.of(state, algorithm, fleet).attended()
    choices = choices_of(draft.drawn, blocks_of(draft, draft.drawn), state, algorithm, fleet)
    parts = grouped(draft, state.models, choices)
    wait = start_groups(parts)

    def finish() -> State:
        received = wait()
        whole, others = joined(received), (clusters - 1) * algorithm.model_bytes(fleet.layouts)
        whole = replace(whole, up=whole.up + CHOICE_BYTES, down=whole.down + others)
        after = replace(_served(draft, parts, received, choices), average=whole.personal.mean() or state.average)
        return draft.published(whole, after)

    return PendingRound(finish)


def choices_of(
    clients: NDArray[np.int64],
    blocks: Sequence[Block],
    state: State,
    algorithm: Algorithm,
    fleet: Fleet,
    part: SamplePart = "train",
) -> NDArray[np.int64]:
    """Return the number of the model that each client chooses, int64 [n]: by the user's rule, or by the lowest loss.

    Of equal losses the first counts, and so it does without samples of the part, or without a finite loss.

    Args:
        clients: ids of the clients, int64 [n].
        blocks: blocks of these clients, in their order.
        state: state with the models.
        algorithm: parts of the algorithm.
        fleet: fleet that runs the blocks.
        part: part of each client's samples.
    """
    if not len(clients):
        return np.zeros(0, np.int64)
    models = [fleet.put((model, state.average)) for model in state.models]
    found = map_joined(fleet, Choices(part, algorithm.local.loss, state.round), blocks, models)[0]
    sums, counts = np.where(np.isfinite(found[:, :-1]), found[:, :-1], np.inf), np.maximum(found[:, -1:], 1)
    rule = getattr(algorithm.own_round, "choose", None)
    if rule is None:
        best: NDArray[np.int64] = np.argmin(sums, axis=1)
        return best
    census, last = fleet.census.clients, np.append(state.of(CLUSTERS)["chosen"], UNCHOSEN)
    places = np.minimum(np.searchsorted(census, clients), len(census) - 1)
    chosen = last[np.where(census[places] == clients, places, len(census))]
    draws = generator(state.seed, Purpose.OWN_CHOICE, state.round)
    context = ChoiceContext(state.round, read_only(clients), read_only(sums / counts), read_only(chosen), draws)
    choices: NDArray[np.int64] = rule(context)
    return choices


def permuted(model: Packed, layouts: Layouts, seed: int, number: int) -> Packed:
    """Return a model with the values of each parameter permuted; `number` is a key of the draws."""
    made, draws = model.copy(), generator(seed, Purpose.CLUSTERS, number)
    values = layouts.shared.unpack(made)
    for entry in layouts.shared.entries:
        if entry.is_parameter:
            values[entry.name][...] = draws.permutation(values[entry.name].ravel()).reshape(entry.shape)
    return made


def _beginning(state: State, fleet: Fleet, clusters: int) -> State:
    """Return the run before its first round, with its other models."""
    others = [permuted(state.model, fleet.layouts, state.seed, number) for number in range(1, clusters)]
    chosen = np.full(len(fleet.census.clients), UNCHOSEN)
    return state.keeping(CLUSTERS, {"models": (state.model, *others), "servers": ({},) * clusters, "chosen": chosen})


def _served(draft: Draft, parts: Sequence[Draft], received: Sequence[Received], choices: NDArray[np.int64]) -> State:
    """Return the run after the server's step on each model."""
    memory = draft.state.of(CLUSTERS)
    stepped = [
        served(replace(part, state=part.state.keeping("server", own)), each)
        for part, each, own in zip(parts, received, memory["servers"], strict=True)
    ]
    models, servers = tuple(each.model for each in stepped), tuple(each.of("server") for each in stepped)
    chosen = memory["chosen"].copy()
    chosen[np.searchsorted(draft.fleet.census.clients, draft.drawn)] = choices
    after = replace(draft.state, round=draft.number, model=models[0])
    return after.keeping(CLUSTERS, {"models": models, "servers": servers, "chosen": chosen})
