"""One synchronous round, as FedAvg's paper writes it: cohort, client updates, sum, server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from algorithms.core.fleet import Fleet
from algorithms.core.layout import Memory, Packed
from algorithms.core.report import UpdateRows
from algorithms.core.state import State
from algorithms.core.sums import Sum
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.cohort import Training, blocks_of, client_updates
from algorithms.parts.option import Draft, Parts
from algorithms.parts.received import Received
from algorithms.parts.server import fitted_rule, next_model


class PendingRound:
    """Round whose client updates are under way, or begin when it is finished in this process alone.

    Args:
        finish: function that waits for them, and returns the run after the round with its report.
    """

    def __init__(self, finish: Callable[[], State]) -> None:
        self._finish: Callable[[], State] | None = finish

    def finish(self) -> State:
        """Wait for the client updates; return the run after the round. RuntimeError if that was done before."""
        finish, self._finish = self._finish, None
        if finish is None:
            raise RuntimeError("the round is finished already; start the next one")
        return finish()


def start_synchronous(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
    """Start one synchronous round.

        S_t     <- m clients, drawn at random
        w_k     <- ClientUpdate(k, w_t)                     for each k in S_t, in parallel
        w_(t+1) <- server(w_t, sum_k p_k w_k / sum_k p_k)

    Args:
        state: the run so far.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        last: whether this is the run's last round.

    Paper: McMahan et al., 2017, Algorithm 1.
    """
    draft = Draft.of(state, algorithm, fleet).attended()
    training = Training(draft, draft.wrapped(client_updates(draft)), blocks_of(draft, draft.drawn))

    def finish() -> State:
        received = draft.reduced(training.received())
        return draft.published(received, served(draft, received))

    return PendingRound(finish)


def served(draft: Draft, received: Received) -> State:
    """Return the run after the server's step."""
    state, models = draft.state, received.models
    if models is None:
        raise RuntimeError("the models of an aggregation are summed")
    model, memory = aggregate(state, draft.algorithm, draft.fleet, models, received.rows)
    after = replace(state, round=draft.number, model=model, average=received.personal.mean() or state.average)
    return after.keeping("server", memory)


def aggregate(state: State, algorithm: Parts, fleet: Fleet, models: Sum, updates: UpdateRows) -> tuple[Packed, Memory]:
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
        return state.model, state.of("server")
    layout, rule = algorithm.local.trained(fleet.layouts.shared), fitted_rule(algorithm.server, fleet.census)
    given = state.model, mean, models.total, state.of("server"), layout
    return next_model(rule, given, state.round + 1, updates)
