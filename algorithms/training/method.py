"""The part `method` of the local steps: additions of a method to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.errors import InputError, require
from algorithms.core.layout import COUNTERS, Scope
from algorithms.training.terms import RECEIVED, AffineTerm

if TYPE_CHECKING:
    import torch
    from torch import nn

    from algorithms.training.contrast import Contrast
    from algorithms.training.steps import LocalSteps, Substep


RESERVED_SLOTS = (RECEIVED, "momentum", "first", "second", *COUNTERS)
"""Names of the local steps' own slots, which a user's own method may not have; "first" and "second" are Adam's."""


@dataclass(frozen=True)
class Method:
    """Additions to the local steps of `Local`, here none. A method overrides some hooks in its own file."""

    models: ClassVar[int] = 1
    """Number of models that train on each batch."""

    personal: ClassVar[tuple[str, ...]] = ()
    """Slots that a client keeps: values beside each parameter, which outlast a client update; not `RESERVED_SLOTS`."""

    shared: ClassVar[tuple[str, ...]] = ()
    """Slots that the server averages."""

    first_terms: ClassVar[tuple[AffineTerm, ...]] = ()
    """Terms of the gradient, before clipping."""

    @property
    def slots(self) -> dict[str, Scope | float]:
        """Scope of each slot, or the first value of a personal number."""
        return {**dict.fromkeys(self.personal, "personal"), **dict.fromkeys(self.shared, "shared")}

    @property
    def terms(self) -> tuple[AffineTerm, ...]:
        """Terms of the gradient, after clipping and weight decay."""
        return ()

    @property
    def substeps(self) -> tuple[Substep, ...]:
        """Substeps that take the steps in turn, in place of SGD; all substeps take one batch before the next."""
        return ()

    @property
    def repeats(self) -> int:
        """Number of steps in a row on each batch."""
        return max(1, len(self.substeps))

    def plan(self, batches: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Return the rows of each step, given those of each batch."""
        repeats = self.repeats
        return [batch for batch in batches for _ in range(repeats)]

    def loss_term(self, module: nn.Module, steps: LocalSteps) -> Contrast | None:
        """Return a further term of the loss that reads the model's features, such as `Contrast`; None for none.

        A regulariser that is affine in the weights belongs in `terms`, any other one in `local.update`.
        """
        return None

    def checked_loss_term(self, module: nn.Module, steps: LocalSteps) -> Contrast | None:
        """Return the further term of the loss; raise InputError if a user's own hook returns no such term."""
        term = self.loss_term(module, steps)
        if term is None or all(callable(getattr(term, hook, None)) for hook in ("anchors", "__call__", "close")):
            return term
        raise InputError(
            f"{type(self).__name__}.loss_term returns a {type(term).__name__}: must return None, or a term such as "
            "algorithms.training.contrast.Contrast; write other terms as `terms`, local.loss or local.update"
        )

    def finish(self, steps: LocalSteps, lane: int, count: int) -> None:
        """Change the weights and slots of a lane after the last of its `count` > 0 steps; nothing here."""

    def train(self, local: Any, trainer: Any, works: Sequence[Any], lr: float) -> NDArray[np.float64]:
        """Make one client update in each lane, in one pass or several; see `Trainer.train`."""
        losses: NDArray[np.float64] = trainer.train(local, works, lr)
        return losses

    def fitted(self, census: Census, reporting: int | None) -> Self:
        """Return the method for these training clients, of whom `reporting` take part in the round; None if unknown."""
        return self

    def check_terms(self) -> None:
        """Raise InputError for a term that is no AffineTerm, or reads values that the method does not have."""
        known = (RECEIVED, *self.slots)
        for hook in ("first_terms", "terms"):
            terms, name = getattr(self, hook), f"{type(self).__name__}.{hook}"
            listed = isinstance(terms, tuple) and all(isinstance(each, AffineTerm) for each in terms)
            require(listed, name, terms, "a tuple of AffineTerm", "write (AffineTerm(a=0.1),)")
            for term in terms:
                holds = term.v is None or term.v in known
                allowed = f"{' or '.join(map(repr, known))}, the received weights or a slot of the method"
                require(holds, f"{name} with AffineTerm.v", term.v, allowed, "name one of them")

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        """Raise InputError if the local steps cannot train a model; nothing here. See `Algorithm.check_model`."""

    def overrides(self, *hooks: str) -> bool:
        """Return whether the method has a hook of its own among these."""
        return any(getattr(type(self), hook) is not getattr(Method, hook) for hook in hooks)
