"""Rounds without a server: clients train models of their own, and mix them with those that neighbours send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Block, Fleet, Function, Output, Reference, cut, map_joined
from algorithms.core.layout import Floats, Layout, Packed
from algorithms.core.layouts import BESIDE
from algorithms.core.personal import Location, PersonalStore
from algorithms.core.rows import UpdateRows
from algorithms.core.state import State
from algorithms.core.sums import Sum
from algorithms.options.topology import Gossip, Mixing, Topology, message_bytes
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.cohort import Training, blocks_of, client_updates
from algorithms.parts.option import Draft
from algorithms.parts.trained import Trained
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
    surplus = dict(zip(clients.tolist(), (weights - 1).tolist(), strict=True))
    updates = SentModels(draft.wrapped(client_updates(draft)), surplus, settings.order == "combine-then-adapt")
    training = Training(draft, updates, blocks_of(draft, draft.drawn))

    def finish() -> State:
        received = training.received()
        blocks = mixing_blocks(draft, mixing, after, received.objects)
        parameters = fleet.layouts.personal.parameters
        mixed: MixedModels = map_joined(fleet, MixMessages(parameters), blocks, [draft.start])[0]
        state.personal.add_all(draft.number, clients.tolist(), mixed.locations)
        drawn, nbytes = np.searchsorted(clients, draft.drawn), message_bytes(fleet.layouts.personal)
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
class SentModels(Function):
    """Client updates that leave each client's message behind, instead of storing its model.

        m_k = y_k + (v_k - 1) z_k,   with z_k the model that client k began with, and y_k the one that it trained

    Batch-norm statistics and buffers are sent as v_k y_k, so that a mixed variance is never negative. If models are
    sent as they began, each client leaves two objects, its message z_k and y_k.

    Args:
        updates: client updates.
        surplus: v_k - 1, by client; v_k = 1 without push-sum.
        begun: whether models are sent as they began.
    """

    updates: Function
    surplus: Mapping[int, float]
    begun: bool

    def objects(self, block: Block) -> int:
        return len(block.clients) * (2 if self.begun else 1)

    def join(self, left: Any, right: Any) -> Any:
        return self.updates.join(left, right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        messages: list[Packed] = []
        layout = worker.resident.layouts.personal
        travels = travelling(layout)

        def keep(trained: Trained, rows: UpdateRows) -> None:
            for client, lane, begun in zip(trained.clients, trained.lanes, trained.personal, strict=True):
                own = trained.trainer.personal(lane)
                kept = np.where(layout.parameters, begun.floats, own.floats)
                floats = own.floats + self.surplus[client] * travels * kept
                messages.extend([begun] if self.begun else [])
                messages.append(Packed(floats, own.integers.copy()))

        watching = replace(worker, personal=Unstored(worker.personal), watches=(*worker.watches, keep))
        value = self.updates(watching, block, *values).value
        rows = replace(value.rows, personal=(None,) * len(value.rows))
        return Output(replace(value, rows=rows), tuple(messages))


@dataclass(frozen=True)
class MixInput:
    """Input of the mixing of one client's model.

    Args:
        location: location of its model if the client takes no part; None for the initial one.
        shares: messages that it mixes: the place of each among the block's values, and its share, by sender.
        own: place of its own message; -1 if it takes no part.
        trained: place of the model that it trained.
        weight: its push-sum weight afterwards.
    """

    location: Location | None
    shares: tuple[tuple[int, float], ...] = ()
    own: int = -1
    trained: int = -1
    weight: float = 1.0


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
    """

    parameters: NDArray[np.bool_]

    def join(self, left: MixedModels, right: MixedModels) -> MixedModels:
        return left.plus(right, self.parameters)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        (_, initial), *messages = values
        layout = worker.resident.layouts.personal
        block_models = MixedModels(Sum.zero(layout))
        for given in block.inputs:
            if given.own >= 0:
                model = mix(layout, given, messages)
                location = worker.personal.append(model)
            else:
                location = given.location
                model = worker.personal.read(location) if location else initial
            one = MixedModels(Sum.zero(layout), 0.0, [location])
            one.models.add(model, 1.0)
            block_models = block_models.plus(one, self.parameters)
        return Output(block_models)


def mix(layout: Layout, given: MixInput, messages: list[Packed]) -> Packed:
    """Return a client's model after mixing; entries beside the model stay its own."""
    models, own, trained = Sum.zero(layout), messages[given.own], messages[given.trained]
    for message, share in given.shares:
        models.add(messages[message], share)
    floats = (models.floats / given.weight).astype(layout.floating) + (trained.floats - own.floats)
    integers = np.maximum(models.integers, trained.integers)
    for entry, place in layout.places():
        if entry.kind in BESIDE:
            vector, kept = (integers, trained.integers) if entry.integer else (floats, trained.floats)
            vector[place] = kept[place]
    return Packed(floats, integers)


def mixing_blocks(
    draft: Draft, mixing: Mixing, weights: NDArray[np.float64], objects: Sequence[Reference]
) -> list[Block]:
    """Return blocks of all training clients, each with the messages that it needs.

    Args:
        draft: the round.
        mixing: mixing of the clients that take part.
        weights: push-sum weight of each client afterwards, [n].
        objects: objects that the clients left behind, equally many of each.
    """
    clients, state, fleet = draft.fleet.census.clients, draft.state, draft.fleet
    taking_part = np.searchsorted(clients, draft.drawn).tolist()
    each = len(objects) // max(1, len(taking_part))
    sent = {place: each * number for number, place in enumerate(taking_part)}
    blocks: list[Block] = []
    for some in cut(len(clients), fleet.block_size(len(clients))):
        members, ids = range(len(clients))[some], tuple(clients[some].tolist())
        received = {place: mixing.received_by(place) for place in members if place in sent}
        wanted = {sent[sender] for pairs in received.values() for sender, _ in pairs}
        values = sorted(wanted | {sent[place] + each - 1 for place in received})
        at = {number: place for place, number in enumerate(values)}
        inputs = tuple(
            MixInput(
                None,
                tuple((at[sent[sender]], share) for sender, share in received[place]),
                at[sent[place]],
                at[sent[place] + each - 1],
                float(weights[place]),
            )
            if place in received
            else MixInput(state.personal.latest(client, state.round))
            for place, client in zip(members, ids, strict=True)
        )
        references = tuple(objects[number] for number in values)
        blocks.append(Block(len(blocks), ids, len(references), inputs, references))
    return blocks


def sent_so_far(memory: Mapping[str, NDArray[np.int64]], mixing: Mixing) -> dict[str, NDArray[np.int64]]:
    """Return the arcs of all rounds, sender x n + receiver, ascending, and the messages that each carried."""
    arcs = mixing.senders * len(mixing.own) + mixing.receivers
    before = memory.get("arcs", arcs[:0])
    found = np.union1d(before, arcs)
    messages = np.isin(found, arcs).astype(np.int64)
    messages[np.searchsorted(found, before)] += memory.get("messages", arcs[:0])
    return {"arcs": found, "messages": messages}


def travelling(layout: Layout) -> Floats:
    """Return 1 for each floating value that clients send each other, and 0 for their own, [floats]."""
    travels = np.ones(layout.floats, layout.floating)
    for entry, place in layout.places():
        if entry.kind in BESIDE and not entry.integer:
            travels[place] = 0
    return travels
