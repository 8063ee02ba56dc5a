"""Power-of-choice: of some candidates, the clients with the largest losses train."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require
from algorithms.core.state import State
from algorithms.parts.option import Draft, Option
from algorithms.parts.received import Received


@dataclass(frozen=True)
class PowerOfChoice(Option):
    """Cohort of the m clients with the largest losses of d candidates, which are drawn in proportion to their samples.

    All candidates receive the model and send the loss of their training samples under it; the cohort then trains. With
    d = m it is sampling by size.

    Args:
        candidates: d, from m to the number of training clients; if fewer clients have samples, all of those.

    Paper: Cho, Wang and Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
    Selection Strategies", 2020, section 4: the variant pow-d, whose authors weight models equally.

    Deviations: batch norm normalises by its running statistics for the losses, and personal entries are the client's
    own. Of equal losses the lower client id comes first. A loss that is NaN comes last, and so does a client without
    a batch to train on.
    """

    candidates: int

    name: ClassVar[str] = "candidates"
    draws_cohort: ClassVar[bool] = True
    setting: ClassVar[str] = "algorithm.candidates"

    def __post_init__(self) -> None:
        whole = isinstance(self.candidates, int) and self.candidates >= 1
        name = "algorithm.candidates"
        require(whole, name, self.candidates, "a whole number >= 1", "set it to twice the cohort")

    def check_cohort(self, size: int, clients: int) -> None:
        """Raise InputError if the number of candidates does not lie between the cohort's size and all clients."""
        fits = size <= self.candidates <= clients
        allowed = f"from {size}, the cohort, to {clients}, the number of training clients"
        require(fits, "algorithm.candidates", self.candidates, allowed, f"set algorithm.candidates = {clients}")

    def attend(self, draft: Draft) -> Draft:
        from algorithms.options.scores import scores_of
        from algorithms.parts.cohort import blocks_of, client_updates

        candidates = self.drawn(draft)
        losses = scores_of(draft, client_updates(draft), "loss_after", blocks_of(draft, candidates), nan)
        return replace(draft, cohort=self.largest(candidates, losses, draft.size)).noting(self.name, candidates)

    def reduce(self, draft: Draft, received: Received) -> Received:
        return replace(received, down=np.zeros_like(received.down))  # they received the model as candidates

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        from algorithms.options.scores import scored_by

        return scored_by(draft, draft.notes[self.name], state)

    def drawn(self, draft: Draft) -> NDArray[np.int64]:
        """Draw the candidates of a round in proportion to their samples, in id order."""
        participation = replace(
            draft.algorithm.schedule.participation, fraction=None, cohort=self.candidates, by="size"
        )
        given = draft.clients, draft.state.seed, draft.counter, draft.weights, self.candidates
        return participation.draw(*given, fixed=False)

    def largest(self, candidates: NDArray[np.int64], losses: NDArray[np.float64], size: int) -> NDArray[np.int64]:
        """Return the clients with the largest losses.

        Args:
            candidates: ids of clients in ascending order, [n].
            losses: loss of each, [n].
            size: number of clients, m.

        Returns:
            Ids in ascending order, [m], or [n] if n is less.
        """
        order = np.argsort(-np.nan_to_num(losses, nan=-np.inf, posinf=np.inf), kind="stable")
        return np.sort(candidates[order[:size]])
