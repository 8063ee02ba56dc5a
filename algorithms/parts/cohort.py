"""Client updates of a cohort: their settings, their blocks, and their training under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Block, Function, Outcome, blocks_over, joined
from algorithms.core.state import State, TravellingModel
from algorithms.parts.client_update import NO_INPUT, ClientInput, ClientUpdates
from algorithms.parts.option import Draft
from algorithms.parts.received import Received


def client_updates(draft: Draft) -> ClientUpdates:
    """Return the client updates of a round, before the options change them."""
    state, algorithm = draft.state, draft.algorithm
    local = algorithm.local.fitted(draft.fleet.census, draft.size)
    given = state.seed, draft.number, state.rounds, algorithm.needs
    return ClientUpdates(local, algorithm.weighting, *given, dispatches=state.dispatches)


def blocks_of(draft: Draft, clients: NDArray[np.int64], models: Sequence[TravellingModel] = ()) -> list[Block]:
    """Cut clients into blocks; each client has its personal entries, and its model if models travel."""
    dealt, blocks = iter(models), blocks_over(clients, draft.fleet)
    return [_with_inputs(block, draft.state, list(islice(dealt, len(block.clients)))) for block in blocks]


def _with_inputs(block: Block, state: State, models: Sequence[TravellingModel]) -> Block:
    """Return a block with its clients' personal entries, and their models if models travel."""
    if not models and not state.personal.newest:
        return replace(block, inputs=(NO_INPUT,) * len(block.clients))
    weights = [model.weight for model in models] or [0.0] * len(block.clients)
    personal = [state.personal.latest(client, state.round) for client in block.clients]
    inputs = tuple(ClientInput(*each) for each in zip(personal, weights, strict=True))
    return replace(block, inputs=inputs, references=tuple(model.reference for model in models))


class Training:
    """Client updates of a round, under way.

    Args:
        draft: the round.
        updates: client updates, as the options changed them.
        blocks: blocks of the cohort.
    """

    def __init__(self, draft: Draft, updates: Function, blocks: Sequence[Block]) -> None:
        self._draft, self._updates, self._blocks = draft, updates, blocks
        draft.laps.lap("sample")
        self._outcomes = draft.fleet.map(updates, blocks, [draft.start]) if blocks else iter(())
        draft.laps.lap("send")

    def received(self, arrival: int | None = None) -> Received:
        """Wait for the client updates; return what the server receives, and keep the clients' personal entries.

        Args:
            arrival: round in which the updates arrive; None for the round of the draft.
        """
        draft, blocks, machine = self._draft, self._blocks, list[Mapping[str, float]]()
        draft.laps.lap("meanwhile")
        layouts = draft.fleet.layouts
        if blocks:
            value, objects = joined(self._updates, blocks, self._timed(machine))
        else:
            value, objects = client_updates(draft).nothing(layouts), []
        draft.laps.lap("sum")
        count = len(value.rows)
        whole = draft.algorithm.model_bytes(layouts)
        down, up = np.full(count, whole), np.full(count, whole - draft.algorithm.saved_bytes(layouts))
        if layouts.personal.entries:
            draft.state.personal.add_all(arrival or draft.number, value.rows.clients.tolist(), value.rows.personal)
        numbers = np.repeat(np.arange(len(blocks)), [len(block.clients) for block in blocks])
        facts = dict(enumerate(machine))
        return Received(value.rows, value.models, value.personal, numbers, facts, up, down, objects, value.beside)

    def _timed(self, machine: list[Mapping[str, float]]) -> Iterator[Outcome]:
        laps = self._draft.laps
        for outcome in self._outcomes:
            laps.lap("train")
            machine.extend(outcome.machine)
            yield outcome
            laps.lap("sum")
