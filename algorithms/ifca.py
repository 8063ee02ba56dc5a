"""IFCA: Ghosh, Chung, Yin and Ramchandran, "An Efficient Framework for Clustered Federated Learning", 2020."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from algorithms.core.errors import require
from algorithms.core.fleet import Fleet
from algorithms.core.returned import name_of
from algorithms.core.state import State
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.clustered import Clustered, OwnChoice
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.training.local import Local

if TYPE_CHECKING:
    from algorithms.rounds.round import PendingRound


@dataclass(frozen=True)
class ClusteredRound(Clustered):
    """Round of several global models; see `ifca`."""

    def __call__(self, state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
        """Start a round; arguments as in `start_round`."""
        from algorithms.rounds.clusters import start_clustered

        return start_clustered(state, algorithm, fleet, self.clusters)


def ifca(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    clusters: int = 2,
    choose: str | Callable[..., Any] = "loss",
) -> Algorithm:
    """Train k global models; each client trains the one with the lowest loss on its samples (clustered learning).

        j_i <- argmin_j F_i(w_j)                            for each client i of the cohort
        w_j <- sum_(i: j_i = j) n_i w_i / sum_(i: j_i = j) n_i

    A client receives all k models, and sends its update with the number of its choice. In an evaluation a client has
    the model with the lowest loss on its training part; one that never trains chooses by the samples that it is
    scored on. A global test set is scored under each model, and counts as many times as clients chose it last.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model; each model has a memory of its own.
        clusters: number of models, k >= 2.
        choose: "loss" for the lowest loss, as in the paper, or a function of a `ChoiceContext` of your own.

    Raises:
        InputError: `clusters` is below 2, or `choose` is unknown.

    Paper: Algorithm 1, option II (model averaging).

    Deviations: the paper draws k initial models; here the second and later ones are the first with the values of each
    parameter permuted, which keeps the distribution of the initialisation. Models are weighted by samples, the paper's
    equally. A model that no client chooses stays as it is. The paper's variant in which clusters share
    layers is left out.
    """
    whole = isinstance(clusters, int) and clusters >= 2
    require(whole, "algorithm.clusters", clusters, "a whole number >= 2", "set it to 2, or use fedavg")
    known = callable(choose) or choose == "loss"
    require(known, "algorithm.choose", choose, '"loss", or a function of your own', 'set it to "loss"')
    own = OwnChoice(name_of(choose), choose) if callable(choose) and not isinstance(choose, OwnChoice) else choose
    rule = own if isinstance(own, OwnChoice) else None
    return replace(fedavg(participation, local, server), own_round=ClusteredRound(clusters, rule))
