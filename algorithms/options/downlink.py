"""The option `downlink`: stages on the way of the global model's change to all clients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import Fleet
from algorithms.core.keys import Purpose, torch_seed
from algorithms.core.layout import Floats, Packed
from algorithms.core.state import State
from algorithms.options.chain import StageChain
from algorithms.options.stages import Changes, layer_sizes
from algorithms.parts.option import Conflict, Draft
from algorithms.parts.received import Received

WHOLE = "remove [downlink], or use another algorithm"


@dataclass(frozen=True)
class Downlink(StageChain):
    """Chain of stages on the change of the global model that the server sends to all clients.

        v = server(w, ...) - w + e,   w <- w + chain(v),   e <- v - chain(v)

    w is the global model that all clients have, and the one that is evaluated and written. e is the server's residual:
    error feedback is always on. Other entries are sent whole, as by `Uplink`.

    Args:
        chain: stages in their order.

    Paper: Tang et al., 2019, "DoubleSqueeze", Algorithm 1, the server's part.
    """

    feedback: bool = field(default=True, init=False)

    name: ClassVar[str] = "downlink"
    setting: ClassVar[str] = "[downlink]"
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(*("downlink", "own rounds"), "be used with rounds that begin with one global model", WHOLE),
        Conflict(
            *("downlink", "aggregate_every > 1"),
            "be used with aggregate_every = 1, because models travel from client to client",
            WHOLE,
        ),
        Conflict(
            *("downlink", "weights that stay with the clients"), "be left out, because no weights are sent", WHOLE
        ),
        Conflict(*("downlink", "candidates"), "be left out, because all candidates receive the whole model", WHOLE),
        Conflict(
            *("virtual time of the devices", "downlink"),
            "not be used together, because it sends whole models",
            "remove one of the two",
        ),
    )

    def reduce(self, draft: Draft, received: Received) -> Received:
        """Count the broadcasts that each client missed, or the whole model if that is shorter."""
        whole, sent = draft.algorithm.model_bytes(draft.fleet.layouts), sent_by(draft.state, draft.fleet)
        heard = sent.heard[np.searchsorted(draft.fleet.census.clients, received.rows.clients)]
        missed = np.where(heard < 0, whole, np.minimum(sent.total - heard, whole))
        return replace(received, down=received.down - whole + missed)

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        import torch  # late, because the experiment file is checked before it is imported

        parts, layouts, before = draft.algorithm, draft.fleet.layouts, draft.state.model
        entries = {entry: place for entry, place in layouts.shared.places() if parts.local.trains(entry)}
        if not entries:
            return state
        columns, sent = np.concatenate([np.r_[place] for place in entries.values()]), sent_by(draft.state, draft.fleet)
        old, new = (torch.from_numpy(each.floats[columns])[None] for each in (before, state.model))
        change = new - old
        owed = change + torch.from_numpy(sent.owed[columns])
        stream = torch.Generator().manual_seed(torch_seed(state.seed, Purpose.DOWNLINK, draft.number))
        received_by_all = self.sent(Changes(owed, len(columns), layer_sizes(entries), draws=(stream,)))
        floats, residual = state.model.floats.copy(), sent.owed.copy()
        # A value that is sent unchanged stays the server's to the last bit.
        floats[columns] = torch.where(received_by_all == change, new, old + received_by_all)[0].numpy()
        residual[columns] = (owed - received_by_all)[0].numpy()
        message = parts.model_bytes(layouts) - self.shortening(parts, layouts)
        heard = sent.heard.copy()
        heard[np.searchsorted(draft.fleet.census.clients, draft.drawn)] = sent.total
        memory = Broadcasts(residual, sent.total + message, heard)
        return replace(state, model=Packed(floats, state.model.integers)).keeping(self.name, vars(memory))


@dataclass(frozen=True)
class Broadcasts:
    """Changes of the global model that the server has sent so far: the memory of `Downlink`.

    Args:
        owed: e, what the clients have not received yet, [floating values of the model].
        total: bytes of all broadcasts.
        heard: bytes of the broadcasts that each training client has received, [K]; -1 if it has no model yet.
    """

    owed: Floats
    total: int
    heard: NDArray[np.int64]


def sent_by(state: State, fleet: Fleet) -> Broadcasts:
    """Return the broadcasts of a run so far."""
    memory = state.of(Downlink.name)
    if memory:
        return Broadcasts(**memory)
    return Broadcasts(np.zeros_like(state.model.floats), 0, np.full(len(fleet.census.clients), -1))
