"""The way to the clients: a new global model becomes the one that all clients have; see `Downlink`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.keys import Purpose, torch_seed
from algorithms.core.layout import Packed
from algorithms.options.stages import Changes
from algorithms.options.uplink import Broadcasts
from algorithms.training.statistics import statistics_of

if TYPE_CHECKING:
    from algorithms.core.fleet import Fleet
    from algorithms.core.layouts import Layouts
    from algorithms.core.state import State
    from algorithms.parts.algorithm import Algorithm


def model_bytes(algorithm: Algorithm, layouts: Layouts) -> int:
    """Return the bytes of a whole model on its way; statistics that nobody tracks are not sent."""
    untracked = statistics_of(layouts.shared).nbytes if algorithm.local.statistics == "untracked" else 0
    return layouts.shared.nbytes - untracked


def bytes_down(state: State, algorithm: Algorithm, fleet: Fleet, clients: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes that each client of a cohort receives: missed broadcasts, or the whole model if shorter."""
    whole, sent = model_bytes(algorithm, fleet.layouts), state.broadcasts
    if sent is None:
        return np.full(len(clients), whole)
    heard = sent.heard[np.searchsorted(fleet.census.clients, clients)]
    return np.where(heard < 0, whole, np.minimum(sent.total - heard, whole))


def broadcast(state: State, algorithm: Algorithm, fleet: Fleet, model: Packed, cohort: NDArray[np.int64]) -> State:
    """Return the state with a new global model as the clients receive it.

    Args:
        state: the run before the round.
        algorithm: parts of the current phase.
        fleet: fleet that ran the blocks.
        model: global model after the server's step.
        cohort: clients of the round.
    """
    layouts, census = fleet.layouts, fleet.census
    places = [place for entry, place in layouts.shared.places() if algorithm.local.trains(entry)]
    if not algorithm.downlink.chain or not places:
        return replace(state, model=model)
    columns = np.concatenate([np.r_[place] for place in places])
    nothing = Broadcasts(np.zeros_like(model.floats), 0, np.full(len(census.clients), -1))
    before, heard = state.broadcasts or nothing, (state.broadcasts or nothing).heard.copy()
    heard[np.searchsorted(census.clients, cohort)] = before.total
    old, new = (torch.from_numpy(each.floats[columns])[None] for each in (state.model, model))
    change = new - old
    owed = change + torch.from_numpy(before.owed[columns])
    stream = torch.Generator().manual_seed(torch_seed(state.seed, Purpose.DOWNLINK, state.round + 1))
    sent = algorithm.downlink.sent(Changes(owed, len(columns), (len(columns),), draws=(stream,)))
    floats, residual = model.floats.copy(), before.owed.copy()
    # A value that is sent unchanged stays the server's to the last bit.
    floats[columns] = torch.where(sent == change, new, old + sent)[0].numpy()
    residual[columns] = (owed - sent)[0].numpy()
    message = model_bytes(algorithm, layouts) - algorithm.saved_bytes(layouts, algorithm.downlink)
    broadcasts = Broadcasts(residual, before.total + message, heard)
    return replace(state, model=Packed(floats, model.integers), broadcasts=broadcasts)
