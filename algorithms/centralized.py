"""Centralised training: mini-batches of all clients' data together, the papers' yardstick for a federation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from algorithms.core.errors import InputError, require
from algorithms.core.fleet import Fleet
from algorithms.core.state import State
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_no_rule
from algorithms.parts.schedule import Participation, Rounds
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Samples
from algorithms.training.local import Local

if TYPE_CHECKING:
    from algorithms.rounds.round import PendingRound

ALL_CLIENTS = -1
"""Client id of an update on all clients' data."""


@dataclass(frozen=True)
class UnionRounds(Rounds):
    """Rounds of one update each, on all clients' data."""

    sends: ClassVar[bool] = False

    def size(self, clients: int) -> int:
        """Return the number of updates a round."""
        return 1


def start_union(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
    """Start one update on the union of all training clients' samples, in one block; see `start_round`."""
    from algorithms.core.fleet import block_over
    from algorithms.parts.cohort import Training, client_updates
    from algorithms.parts.option import Draft
    from algorithms.rounds.round import PendingRound
    from algorithms.rounds.union import UnionUpdate

    census = fleet.census
    if census.joins is not None:
        raise InputError(
            "algorithm.joins with centralized: must be left out, because the data are united from the first round on; "
            "remove it"
        )
    draft = replace(Draft.of(state, algorithm, fleet), newcomer=state.average)
    training = Training(draft, UnionUpdate(client_updates(draft)), [block_over(census.clients, fleet)])

    def finish() -> State:
        received = training.received()
        models, personal = received.models and received.models.mean(), received.personal.mean()
        rows, nothing = replace(received.rows, clients=np.array([ALL_CLIENTS])), np.zeros(1, np.int64)
        received = replace(received, rows=rows, blocks=nothing, up=nothing, down=nothing)
        after = replace(state, round=draft.number, model=models or state.model, average=personal or state.average)
        after = draft.published(received, after)
        return replace(after, report=after.report and replace(after.report, exchanges=0))

    return PendingRound(finish)


def centralized(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    """Train on mini-batches of the union of all training clients' data; a round is one update on it.

        u <- momentum u + grad F(w; batch),   w <- w - lr u,   batches drawn from D = D_1 + ... + D_K

    u goes on from round to round, and so do Adam's moments.

    Args:
        participation: all clients.
        local: content of an update on the union: its epochs or steps, or the next `batches` of a pass over it.
        server: `Assign`, because no model arrives there.

    Raises:
        InputError: not all clients are in the cohort, or another rule is given.

    Paper: the centralised counterpart of FedMMB, section 3.1, and of RADFed, section V. With one client it is FedAvg
    with maintained momentum.

    Deviations: other optimisers than SGD and Adam start anew in each round. The draws are the first client's. One actor
    gathers the union, which must fit its memory. No bytes are counted, because nothing is sent.
    """
    cohort, allowed, remedy = participation.cohort, "left out for united data, to take all clients", "leave it out"
    require(cohort is None, "algorithm.cohort", cohort, allowed, remedy)
    plain = participation.active == 1 and participation.by == "uniform"
    what = (participation.active, participation.by)
    allowed = "left out for united data"
    require(plain, "algorithm.active, algorithm.sampling", what, allowed, "remove them")
    whole = participation.fraction in (None, 1)
    require(whole, "algorithm.fraction", participation.fraction, "1 for united data", remedy)
    require_no_rule(server, "if no models are aggregated")
    kept = Sharing(slots={slot: "shared" for slot in local.slots if slot != "batches"})
    rounds = UnionRounds(Participation(reporting=participation.reporting))  # virtual time refuses its keys
    return Algorithm(rounds, local, kept, Samples(), server, own_round=start_union)
