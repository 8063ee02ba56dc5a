"""The chain of a local step: terms that change the gradient, then the direction of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import torch

Tensors = list[torch.Tensor]
Stacks = Mapping[str, torch.Tensor]
"""Tensors [lanes, *shape] by the parameters' names."""

RECEIVED = "received"
"""Name under which terms read the weights that the client update received."""


@dataclass(frozen=True)
class AffineTerm:
    """Term that is affine in the weights w: g <- g + a w + b v.

    Weight decay is `AffineTerm(a=decay)`; FedProx's proximal term is `AffineTerm(a=mu, b=-mu, v=RECEIVED)`.

    Args:
        a: factor of the weights.
        b: factor of v.
        v: name of stacks that stay constant during a client update: a slot of `Local.slots`, or `RECEIVED`.
    """

    a: float = 0.0
    b: float = 0.0
    v: str | None = None

    def __call__(self, steps: LocalSteps, g: Tensors, lanes: slice) -> Tensors:
        w = steps.view(None, lanes)
        if self.v is None:
            return list(torch._foreach_add(g, w, alpha=self.a))
        v = steps.view(self.v, lanes)
        if self.a and self.a == -self.b:
            # Take the difference first: near v it loses no digits.
            return list(torch._foreach_add(g, list(torch._foreach_sub(w, v)), alpha=self.a))
        g = list(torch._foreach_add(g, w, alpha=self.a)) if self.a else g
        return list(torch._foreach_add(g, v, alpha=self.b))


@dataclass(frozen=True)
class MomentumDirection:
    """Direction of SGD: along u <- beta u + g, or g + beta u with Nesterov's look-ahead; along g without momentum.

    u is the slot "momentum". It starts at 0 in each client update, unless `Sharing` lists it.

    Args:
        beta: momentum, in [0, 1).
        nesterov: whether to look ahead along u.
    """

    beta: float = 0.0
    nesterov: bool = False

    def __call__(self, steps: LocalSteps, g: Tensors, lanes: slice) -> Tensors:
        if not self.beta:
            return g
        u = steps.view("momentum", lanes)
        torch._foreach_mul_(u, self.beta)
        torch._foreach_add_(u, g)
        return list(torch._foreach_add(g, u, alpha=self.beta)) if self.nesterov else u


Stage: TypeAlias = "Callable[[LocalSteps, Tensors, slice], Tensors]"
"""Change the gradients [k, *shape] of some lanes, in new tensors: autograd may alias the given ones."""


class Optimiser(Protocol):
    """Optimiser that changes the weights itself."""

    def step(self, steps: LocalSteps, g: Tensors, lanes: slice) -> None:
        """Change the weights of some lanes along the gradients, [k, *shape] each."""
        ...


@dataclass(frozen=True)
class Chain:
    """Arithmetic of a local step: with g the gradient, apply the terms in order, then w <- w - lr direction(g).

    Args:
        terms: `AffineTerm`, `GradientClip`, or a method's own stages.
        direction: `MomentumDirection` (plain SGD with beta 0), `AdamDirection`, or a method's own stage.
        optimiser: optimiser that takes the step in place of the direction; None for the direction.
        keeps_received: whether to store the received weights for `Local.finish`, even if no term reads them.
    """

    terms: tuple[Stage, ...] = ()
    direction: Stage = MomentumDirection()
    optimiser: Optimiser | None = None
    keeps_received: bool = False

    @property
    def affine(self) -> list[AffineTerm]:
        """The affine terms, in order."""
        return [term for term in self.terms if isinstance(term, AffineTerm)]

    @property
    def is_foldable(self) -> bool:
        """Whether `Fused` can run the chain: SGD without look-ahead, and only affine terms."""
        direction = self.direction
        plain = isinstance(direction, MomentumDirection) and not direction.nesterov
        return plain and self.optimiser is None and len(self.affine) == len(self.terms)

    @property
    def reads_slots(self) -> bool:
        """Whether an affine term reads a slot."""
        return any(term.v not in (None, RECEIVED) for term in self.affine)


class LocalSteps:
    """Local steps of a stack of client updates. Tensors are [lanes, *shape]; lanes are independent.

    Args:
        chain: arithmetic of a step.
        weights: parameters, changed in place.
        slots: values beside the parameters, by the slot's name, changed in place.
        lr: learning rate of the round.
        counters: slots of one number for each lane, [lanes], changed in place.
        tracked: stacks of entries that never train, the model's and the client's second model's.
    """

    def __init__(
        self,
        chain: Chain,
        weights: Stacks,
        slots: Mapping[str, Stacks],
        lr: float,
        counters: Stacks = MappingProxyType({}),
        tracked: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
    ) -> None:
        self.chain, self.weights, self.lr, self.counters, self.tracked = chain, weights, lr, counters, tracked
        self.slots = {slot: {name: stacks[name] for name in weights} for slot, stacks in slots.items()}
        if chain.keeps_received or any(term.v == RECEIVED for term in chain.affine):
            self.slots[RECEIVED] = {name: w.detach().clone() for name, w in weights.items()}
        self._counted = counters.get("steps")
        self.counts: dict[int, int] = {} if self._counted is None else dict(enumerate(self._counted.tolist()))
        """Steps that each lane has taken, if the direction or the optimiser counts them."""
        self.memory: list[Any] = []
        """State of `Chain.optimiser` for each parameter."""
        self._views: dict[tuple[int, int, str | None], Tensors] = {}

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor], lanes: slice) -> None:
        """Take one step along the gradients, [k, *shape] each."""
        g = list(gradients)
        for term in self.chain.terms:
            g = term(self, g, lanes)
        if self.chain.optimiser is not None:
            self.chain.optimiser.step(self, g, lanes)
            return
        torch._foreach_add_(self.view(None, lanes), self.chain.direction(self, g, lanes), alpha=-self.lr)

    def count(self, lanes: slice) -> int:
        """Count a step of some lanes, which have all taken equally many; return its number."""
        count = self.counts.get(lanes.start, 0) + 1
        self.counts |= dict.fromkeys(range(lanes.start, lanes.stop), count)
        if self._counted is not None:
            self._counted[lanes] = count
        return count

    def stacks(self, slot: str | None) -> Stacks:
        """Return the stacks of a slot, or the weights for None; a new slot starts at 0."""
        if slot is None:
            return self.weights
        if slot not in self.slots:
            self.slots[slot] = {name: torch.zeros_like(w) for name, w in self.weights.items()}
        return self.slots[slot]

    def view(self, slot: str | None, lanes: slice) -> Tensors:
        """Return some lanes of a slot's stacks, or of the weights for None."""
        key = lanes.start, lanes.stop, slot
        if key not in self._views:
            self._views[key] = [stack[lanes] for stack in self.stacks(slot).values()]
        return self._views[key]
