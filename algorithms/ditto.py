"""Ditto: Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", 2021."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from algorithms.core.entries import SECOND_MODEL
from algorithms.core.errors import require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import WeightingName, weighting_of
from algorithms.training.local import Local, require_defaults

if TYPE_CHECKING:
    from algorithms.training.chain import Chain
    from algorithms.training.work import Trainer, Work


def ditto(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    attraction: float = 0.1,
    weighting: WeightingName = "samples",
) -> Algorithm:
    """Run FedAvg, and beside it train a model of each client's own that is held near the received one.

        v_k <- v_k - lr (grad F_k(v_k) + attraction (v_k - w_t)),   w_k and w as in FedAvg

    Args:
        sample: rule that draws a round's cohort.
        local: content of a client update, for both models.
        server: step from the mean to the next global model.
        attraction: the paper's lambda, >= 0; with 0 the clients' own models are those of SingleSet.
        weighting: share of a model in the mean: "samples", as in FedAvg, or "equal".

    Raises:
        InputError: `attraction` is negative, or `local` has a client update of the user's own.

    Paper: Algorithm 1.

    Deviations: v_k takes the batches of w_k, as many steps at the same rate. It starts at the initial model. The
    authors' code averages the changes of a cohort equally; `weighting = "equal"` does so.
    """
    require(attraction >= 0, "algorithm.attraction", attraction, ">= 0", "set algorithm.attraction = 0.1")
    require_defaults(local, "ditto")
    sharing = Sharing(slots={SECOND_MODEL: "personal"})
    return Algorithm(
        Rounds(sample), Beside(**vars(local), attraction=attraction), sharing, weighting_of(weighting), server
    )


@dataclass(frozen=True)
class Beside(Local):
    """`Local` for the client's own model, held near the received one, and then for the received one alone."""

    attraction: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return (*super().slots, SECOND_MODEL)

    @property
    def models(self) -> int:
        return 2

    def train(self, trainer: Trainer, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        # The models change places, so the slot holds the received one while the client's own one trains.
        trainer.exchange(len(works))
        trainer.train(Attracted(**vars(self)), works, lr)
        trainer.exchange(len(works))
        return trainer.train(self, works, lr)


@dataclass(frozen=True)
class Attracted(Beside):
    """`Local` with the term attraction (w - v) in each step; v is the slot of the second model."""

    @property
    def chain(self) -> Chain:
        from algorithms.training.chain import AffineTerm

        plain, a = super().chain, self.attraction
        return replace(plain, terms=(*plain.terms, AffineTerm(a=a, b=-a, v=SECOND_MODEL)))
