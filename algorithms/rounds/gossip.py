"""Rounds without a server: clients train models of their own, and mix them with those that neighbours send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Around, Block, Fleet, Function, Output, Reference, cut, map_joined
from algorithms.core.layout import BESIDE, Layout, Packed
from algorithms.core.personal import Location, PersonalStore
from algorithms.core.report import UpdateRows
from algorithms.core.state import State
from algorithms.core.sums import Sum
from algorithms.options.topology import Gossip, Mixing, Topology, message_bytes
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.client_update import Trained
from algorithms.parts.cohort import Training, blocks_of, client_updates
from algorithms.parts.option import Draft
from algorithms.rounds.round import PendingRound
from algorithms.training.worker import Worker

NOWHERE = Location("", 0)
"""Location of personal entries that are not stored."""


def start_gossip(state: State, algorithm: Algorithm, fleet: Fleet, settings: Gossip) -> PendingRound:
    """Start a round in which clients send each other their models; see `algorithms.dpsgd` and `algorithms.sgp`.

    A client's model lies in the store of personal entries, where the round's first map reads it and its second map
    writes it. In between, each message is an object that goes from the sender's worker to its receivers' workers.

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        settings: settings of the round.
    """
    topology, clients = algorithm.option(Topology), fleet.census.clients
    if topology is None:
        raise RuntimeError("a round of gossip has a topology")
    draft = Draft.of(state, algorithm, fleet).attended()
    mixing = topology.matrix(clients, state.seed, draft.number).among(np.isin(clients, draft.drawn))
    weights = state.of(topology.name).get("weights", np.ones(len(clients)))
    after = mixing.applied(weights) if settings.push_sum else weights
    drawn = np.searchsorted(clients, draft.drawn)
    surplus = dict(zip(draft.drawn.tolist(), (weights[drawn] - 1).tolist(), strict=True))
    begun = settings.order == "combine-then-adapt"
    updates = SentModels(draft.wrapped(client_updates(draft)), surplus, begun)
    training = Training(draft, updates, blocks_of(draft, draft.drawn))

    def finish() -> State:
        received = training.received()
        blocks = mixing_blocks(draft, mixing, after, received.objects)
        mix = MixMessages(fleet.layouts.personal.parameters, begun)
        mixed: MixedModels = map_joined(fleet, mix, blocks, [draft.start])[0]
        state.personal.add_all(draft.number, clients.tolist(), mixed.locations)
        nbytes = message_bytes(fleet.layouts.personal)
        up, down = (
            nbytes * np.bincount(ends, minlength=len(clients))[drawn] for ends in (mixing.senders, mixing.receivers)
        )
        received = draft.reduced(replace(received, up=up, down=down))
        memory = {"weights": after, **sent_so_far(state.of(topology.name), mixing)}
        next_state = replace(state, round=draft.number, average=mixed.models.mean() or state.average)
        done = draft.published(received, next_state.keeping(topology.name, memory))
        return done.measuring({"consensus": mixed.scatter / len(clients)})

    return PendingRound(finish)


class Unstored(PersonalStore):
    """Store of personal entries for client updates whose models are not final: it reads, and writes nothing.

    Args:
        store: store that is read.
    """

    def __init__(self, store: PersonalStore) -> None:
        self.read = store.read  # type: ignore[method-assign]

    def append(self, personal: Packed) -> Location:
        return NOWHERE


@dataclass(frozen=True)
class SentModels(Around):
    """Client updates that leave each client's message behind, and store no model.

        m_k = y_k + (v_k - 1) z_k,   with z_k the model that client k began with, and y_k the one that it trained

    Batch-norm statistics and buffers are always sent as v_k y_k, so that a mixed variance is never negative. If models
    are sent as they began, y_k is left beside the message.

    Args:
        surplus: v_k - 1, by client that takes part; v_k = 1 without push-sum.
        begun: whether models are sent as they began: m_k = z_k.
    """

    surplus: Mapping[int, float]
    begun: bool

    def objects(self, block: Block) -> int:
        return len(block.clients)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        sent: list[tuple[Packed, ...]] = []
        layout = worker.resident.layouts.personal
        travels, _ = travelling(layout)

        def keep(trained: Trained, rows: UpdateRows) -> None:
            for client, lane, begun in zip(trained.clients, trained.lanes, trained.personal, strict=True):
                own = trained.trainer.personal(lane).copy()
                started = Packed(np.where(layout.parameters, begun.floats, own.floats), begun.integers)
                pushed = self.surplus[client] * started.floats * travels
                sent.append((started, own) if self.begun else (Packed(own.floats + pushed, own.integers),))

        watching = replace(worker, personal=Unstored(worker.personal), watches=(*worker.watches, keep))
        value = self.inner(watching, block, *values).value
        rows = replace(value.rows, personal=(None,) * len(value.rows))
        return Output(replace(value, rows=rows, personal=Sum.zero(Layout(()))), tuple(sent))


@dataclass(frozen=True)
class MixInput:
    """Input of the mixing of one client's model.

    Args:
        location: location of its model before the round; None for the initial one.
        shares: messages that it mixes, by sender: the place of each among the block's values, and its share; empty if
            the client takes no part.
        own: place of its own message.
        weight: its push-sum weight afterwards.
    """

    location: Location | None
    shares: tuple[tuple[int, float], ...]
    own: int
    weight: float


@dataclass
class MixedModels:
    """Models of some clients after a round.

    Args:
        models: their sum.
        scatter: sum of the squared distances of their parameters from their mean.
        locations: location of each model in the store.
    """

    models: Sum
    scatter: float = 0.0
    locations: list[Location | None] = field(default_factory=list)

    def plus(self, part: MixedModels, parameters: NDArray[np.bool_]) -> MixedModels:
        """Return the models of both; `parameters` says which values count as distance."""
        one, other, between = self.models.total, part.models.total, 0.0
        if one and other:
            gap = (self.models.floats / one - part.models.floats / other) * parameters
            between = float(np.square(gap).sum()) * one * other / (one + other)
        scatter = self.scatter + part.scatter + between
        return MixedModels(self.models.plus(part.models), scatter, self.locations + part.locations)


@dataclass(frozen=True)
class MixMessages(Function):
    """Mixing of the messages that the clients of a block received.

        z_i <- 1 / v_i sum_j P[i, j] m_j + (y_i - m_i if models are sent as they began)

    Args:
        parameters: whether each value of a model belongs to a parameter, [floats].
        begun: whether models are sent as they began.
    """

    parameters: NDArray[np.bool_]
    begun: bool

    def join(self, left: MixedModels, right: MixedModels) -> MixedModels:
        return left.plus(right, self.parameters)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        (_, initial), *sent = values
        layout = worker.resident.layouts.personal
        mixed = MixedModels(Sum.zero(layout))
        for given in block.inputs:
            location = given.location
            if given.shares:
                model = self._mixed(layout, given, sent)
                location = worker.personal.append(model)
            else:
                model = worker.personal.read(location) if location else initial
            one = MixedModels(Sum.zero(layout), 0.0, [location])
            one.models.add(model, 1.0)
            mixed = mixed.plus(one, self.parameters)
        return Output(mixed)

    def _mixed(self, layout: Layout, given: MixInput, sent: Sequence[tuple[Packed, ...]]) -> Packed:
        """Return a client's model after mixing; entries beside the model stay its own."""
        models, message, trained = Sum.zero(layout), sent[given.own][0], sent[given.own][-1]
        for place, share in given.shares:
            models.add(sent[place][0], share)
        floats = (models.floats / given.weight).astype(layout.floating)
        if self.begun:
            floats += trained.floats - message.floats
        travels, counts = travelling(layout)
        integers = np.maximum(models.integers, trained.integers)
        return Packed(np.where(travels, floats, trained.floats), np.where(counts, integers, trained.integers))


def mixing_blocks(
    draft: Draft, mixing: Mixing, weights: NDArray[np.float64], objects: Sequence[Reference]
) -> list[Block]:
    """Return blocks of all training clients, each with the messages that it needs.

    Args:
        draft: the round.
        mixing: mixing of the clients that take part.
        weights: push-sum weight of each client afterwards, [n].
        objects: what each client that takes part left behind.
    """
    clients, state, fleet = draft.fleet.census.clients, draft.state, draft.fleet
    sent = dict(zip(np.searchsorted(clients, draft.drawn).tolist(), objects, strict=True))
    blocks: list[Block] = []
    for some in cut(len(clients), fleet.block_size(len(clients))):
        places, ids = range(len(clients))[some], tuple(clients[some].tolist())
        received = {place: mixing.received_by(place) for place in places if place in sent}
        wanted = sorted({sender for shares in received.values() for sender, _ in shares})
        at = {sender: number for number, sender in enumerate(wanted)}
        inputs = tuple(
            MixInput(
                state.personal.latest(client, state.round),
                tuple((at[sender], share) for sender, share in received.get(place, ())),
                at.get(place, -1),
                float(weights[place]),
            )
            for place, client in zip(places, ids, strict=True)
        )
        references = tuple(sent[sender] for sender in wanted)
        blocks.append(Block(len(blocks), ids, len(references), inputs, references))
    return blocks


def sent_so_far(memory: Mapping[str, NDArray[np.int64]], mixing: Mixing) -> dict[str, NDArray[np.int64]]:
    """Return the arcs of all rounds, sender x n + receiver, ascending, and the messages that each carried."""
    arcs = np.sort(mixing.senders * len(mixing.own) + mixing.receivers)
    before, messages = memory.get("arcs", arcs[:0]), memory.get("messages", arcs[:0]).copy()
    places = np.searchsorted(before, arcs)
    again = np.append(before, -1)[places] == arcs
    messages[places[again]] += 1
    added = places[~again]
    return {"arcs": np.insert(before, added, arcs[~again]), "messages": np.insert(messages, added, 1)}


def travelling(layout: Layout) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which floating values and which counters clients send each other, [floats] and [integers]."""
    floats, integers = np.ones(layout.floats, bool), np.ones(layout.integers, bool)
    for entry, place in layout.places():
        (integers if entry.integer else floats)[place] = entry.kind not in BESIDE
    return floats, integers
