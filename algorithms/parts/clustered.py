"""Several global models: their number, which phases share, and a user's rule by which clients choose one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.returned import Returned


@dataclass(frozen=True)
class ChoiceContext:
    """Everything that a rule of choice knows. Its arrays are read-only copies.

    Args:
        round: rounds that have ended.
        clients: ids of the clients that choose, int64 [n].
        losses: mean loss of each client's samples under each model, float64 [n, k]; infinite if it is not finite.
        chosen: each client's choice of the last round in which it took part, int64 [n]; -1 if it took part in none.
        rng: random generator of the rule and the round.
    """

    round: int
    clients: NDArray[np.int64]
    losses: NDArray[np.float64]
    chosen: NDArray[np.int64]
    rng: np.random.Generator


@dataclass(frozen=True)
class OwnChoice:
    """Rule of a user: a function of a `ChoiceContext` that returns the number of a model for each client.

    Args:
        title: name in the experiment file.
        rule: the function, or a class whose instances are one and are made anew for each choice.
    """

    title: str
    rule: Callable[..., Any] = field(repr=False)

    def __call__(self, context: ChoiceContext) -> NDArray[np.int64]:
        """Return the choices, int64 [n]; raise InputError if the rule returns anything else."""
        rule = self.rule() if isinstance(self.rule, type) else self.rule
        count, most = context.losses.shape
        returned, chosen = Returned(f"algorithm.choose = {self.title!r}", rule), rule(context)
        try:
            found = np.asarray(chosen)
        except (ValueError, TypeError) as error:
            raise returned.fault(f"return {count} whole numbers, one for each client ({error})") from None
        if found.dtype.kind not in "iu" or found.shape != (count,):
            raise returned.fault(
                f"return {count} whole numbers, one for each client, and returns {found.dtype} of shape {found.shape}"
            )
        if wrong := found[(found < 0) | (found >= most)].tolist():
            raise returned.fault(f"return numbers of models from 0 to {most - 1}, and returns {wrong[0]}")
        return found.astype(np.int64)


@dataclass(frozen=True)
class Clustered:
    """Part of a round of several global models.

    Args:
        clusters: number of models, k.
        choose: rule by which a client chooses a model; None for the lowest loss.
    """

    clusters: int
    choose: OwnChoice | None = None
