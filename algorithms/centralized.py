"""Centralised training: mini-batches of all clients' data together, by which the papers measure a federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from algorithms.engine.client_update import RoundInput
from algorithms.engine.errors import InputError, require
from algorithms.engine.fleet import Fleet, block_over
from algorithms.engine.round import client_updates, observed
from algorithms.engine.state import RoundReport, State
from algorithms.engine.stopwatch import Stopwatch
from algorithms.engine.union import UnionUpdate
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server

NOBODY = -1
"""The client of a visit that is of all clients' data."""


@dataclass(frozen=True)
class United(Rounds):
    """Rounds of one visit each, which is of all clients' data."""

    def size(self, clients: int) -> int:
        """Visits a round."""
        return 1


@dataclass(frozen=True)
class UnionRound:
    """A round that is one visit of the union of all training clients' samples, in one block."""

    def __call__(
        self, state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]
    ) -> State:
        """Do the round; see `algorithms.parts.algorithm.Step`."""
        watch, number, census = Stopwatch(), state.round + 1, fleet.census
        if census.joins is not None:
            raise InputError(
                "algorithm.joins with centralized: must be left out where the data are united from the first round; "
                "remove it"
            )
        block = block_over(census.clients, fleet)
        watch.lap("sample")
        update = UnionUpdate(client_updates(state, algorithm, fleet, aggregate=True))
        outcomes = fleet.map(update, [block], [fleet.put(RoundInput(state.model, state.average))])
        watch.lap("send")
        meanwhile()
        watch.lap("meanwhile")
        (outcome,) = outcomes
        watch.lap("train")
        (row,) = outcome.value.rows
        model = outcome.value.models.mean() or state.model
        average = outcome.value.personal.mean() or state.average
        watch.lap("sum")
        updates = ((0, replace(row, client=NOBODY), outcome.machine[0]),)
        report = RoundReport(updates, True, 0, 0, state.phase, exchanges=0)
        watch.lap("aggregate")
        report.seconds.update(watch.seconds)
        after = replace(state, round=number, model=model, average=average, report=report)
        return observed(state, after, algorithm, fleet, outcome.value)


def centralized(sample: Sample, local: Local, server: Server = Assign()) -> Algorithm:
    """Mini-batch training on the union of all training clients' data; a round is one visit of it.

        w <- w - lr grad F(w; batch),  batches drawn from D = D_1 + ... + D_K

    Args:
        sample: all clients, for all their data are trained on.
        local: what a visit of the union does: its epochs or steps, or the next `batches` of a pass over it.
        server: no model arrives there, so it has to be `Assign`.

    Raises:
        InputError: not all clients are in the cohort, or another rule is given.

    Paper: the centralised counterpart of FedMMB, section 3.1, and of RADFed, section V. With one client it is FedAvg.

    Deviations: none. The draws are those of the first client. One actor gathers the union, which must fit its memory;
    nothing is sent, so no bytes are counted.
    """
    remedy = "leave it out"
    require(sample.cohort is None, "algorithm.cohort", sample.cohort, "all clients where the data are united", remedy)
    plain = sample.active == 1 and sample.by == "uniform"
    what = (sample.active, sample.by)
    allowed = "left out where the data are united"
    require(plain, "algorithm.active, algorithm.sampling", what, allowed, "remove them")
    whole = sample.fraction in (None, 1)
    require(whole, "algorithm.fraction", sample.fraction, "1 where the data are united", remedy)
    holds = isinstance(server, Assign)
    require(holds, "server.rule", server, "'assign' where no models are merged", "remove the table [server]")
    return replace(fedavg(Sample(), local, server), schedule=United(), own_round=UnionRound())
