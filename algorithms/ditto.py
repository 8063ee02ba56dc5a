"""Ditto: Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", 2021."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from algorithms.core.entries import SECOND_MODEL
from algorithms.fedavg import fedavg
from algorithms.fedprox import Proximal
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_float32
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults
from algorithms.training.method import Method

if TYPE_CHECKING:
    from algorithms.training.work import Trainer, Work


def ditto(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    attraction: float = 0.1,
    weighting: WeightingName = "samples",
) -> Algorithm:
    """Run FedAvg, and beside it train a model of each client's own that is held near the received one.

        v_k <- v_k - lr (grad F_k(v_k) + attraction (v_k - w_t)),   w_k and w as in FedAvg

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update, for both models.
        server: step from the mean to the next global model.
        attraction: the paper's lambda, >= 0; with 0 the clients' own models are those of SingleSet.
        weighting: share of a model in the mean: "samples", as in FedAvg, or "equal".

    Raises:
        InputError: `attraction` is out of range, or `local` has a client update of the user's own.

    Paper: Algorithm 1.

    Deviations: v_k takes the batches of w_k, as many steps at the same rate. It starts at the initial model. The
    authors' code averages the changes of a cohort equally; `weighting = "equal"` does so.
    """
    require_float32("algorithm.attraction", attraction, ">= 0", 0.1)
    require_defaults(local, "ditto", "method")
    return fedavg(participation, replace(local, method=Beside(attraction)), server, weighting=weighting)


@dataclass(frozen=True)
class Beside(Method):
    """Client update of the client's own model, held near the received one, and then of the received one alone."""

    personal = (SECOND_MODEL,)
    models = 2

    attraction: float

    def train(self, local: Local, trainer: Trainer, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        # The models change places, so the slot holds the received one while the client's own one trains.
        trainer.swap(len(works))
        trainer.train(replace(local, method=Proximal(self.attraction, SECOND_MODEL)), works, lr)
        trainer.swap(len(works))
        return trainer.train(local, works, lr)
