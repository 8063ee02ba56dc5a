"""The arithmetic of a local step: terms and clipping that change the gradient, then the direction of the step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

from algorithms.training.terms import RECEIVED, AffineTerm

Tensors = list[torch.Tensor]
Stacks = Mapping[str, torch.Tensor]
"""Tensors [lanes, *shape] by the parameters' names."""

SlotMemory = dict[tuple[str, ...], Stacks]
"""Memory of slots that outlasts a client update, by the names of the slot and its parameters."""


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


@dataclass(frozen=True)
class GradientClip:
    """Limit on the norm of a batch's gradient, all parameters together: g <- g min(1, norm / |g|).

    Args:
        norm: largest norm, > 0.
    """

    norm: float

    def __call__(self, steps: LocalSteps, g: Tensors, lanes: slice) -> Tensors:
        squares = torch.stack([each.reshape(len(each), -1).square().sum(1) for each in g])
        # torch.nn.utils.clip_grad_norm_ adds the same number, so both clip alike.
        scale = (self.norm / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1)
        return [each * scale.view(-1, *(1 for _ in each.shape[1:])) for each in g]


@dataclass(frozen=True)
class AdamDirection:
    """Direction of Adam: m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2,  along m' / (sqrt(v') + eps).

    m' and v' are corrected for their start at 0. m, v and the number of steps are slots: "first", "second", "steps".

    Args:
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        eps: bound of the step, > 0.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __call__(self, steps: LocalSteps, g: Tensors, lanes: slice) -> Tensors:
        counts = steps.count(lanes)
        m, v = steps.view("first", lanes), steps.view("second", lanes)
        torch._foreach_mul_(m, self.beta1)
        torch._foreach_add_(m, g, alpha=1 - self.beta1)
        torch._foreach_mul_(v, self.beta2)
        torch._foreach_addcmul_(v, g, g, value=1 - self.beta2)
        roots = torch._foreach_sqrt(_corrected(v, self.beta2, counts))
        torch._foreach_add_(roots, self.eps)
        return list(torch._foreach_div(_corrected(m, self.beta1, counts), roots))


def _corrected(moments: Tensors, decay: float, counts: Sequence[int]) -> Tensors:
    """Return moments corrected for their start at 0; `counts` are the steps of each lane."""
    if len(set(counts)) == 1:
        return list(torch._foreach_div(moments, 1 - decay ** counts[0]))
    # Slots that outlast a client update have made different numbers of steps.
    parts = moments[0].new_tensor([1 - decay**count for count in counts])
    return [each / parts.view(-1, *(1 for _ in each.shape[1:])) for each in moments]


Transform: TypeAlias = "Callable[[LocalSteps, Tensors, slice], Tensors]"
"""Change the gradients [k, *shape] of some lanes, in new tensors: autograd may alias the given ones."""

Substep: TypeAlias = "Callable[[LocalSteps, Tensors, slice], None]"
"""Change the weights of some lanes along the gradients, [k, *shape] each."""


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic of a local step: with g the gradient, apply the terms in order, then w <- w - lr direction(g).

    Args:
        terms: `AffineTerm`, or a transform such as `GradientClip`.
        direction: `MomentumDirection` (plain SGD with beta 0) or `AdamDirection`.
        substeps: substeps that take the steps in turn, in place of the direction; none for the direction.
        keeps_received: whether to store the received weights, even if no term reads them.
    """

    terms: tuple[AffineTerm | Transform, ...] = ()
    direction: Transform = MomentumDirection()
    substeps: tuple[Substep, ...] = ()
    keeps_received: bool = False

    @property
    def affine(self) -> list[AffineTerm]:
        """The affine terms, in order."""
        return [term for term in self.terms if isinstance(term, AffineTerm)]

    @property
    def is_foldable(self) -> bool:
        """Whether `Fused` can run the arithmetic: SGD without look-ahead, and only affine terms."""
        direction = self.direction
        plain = isinstance(direction, MomentumDirection) and not direction.nesterov
        return plain and not self.substeps and len(self.affine) == len(self.terms)

    @property
    def read(self) -> list[str]:
        """Slots that terms read, and that momentum needs."""
        direction = self.direction
        momentum = ["momentum"] if isinstance(direction, MomentumDirection) and direction.beta else []
        return [*momentum, *(term.v for term in self.affine if term.v is not None)]

    @property
    def reads_slots(self) -> bool:
        """Whether an affine term reads a slot."""
        return any(term.v not in (None, RECEIVED) for term in self.affine)


class LocalSteps:
    """Local steps of a stack of client updates. Tensors are [lanes, *shape]; lanes are independent.

    Args:
        arithmetic: arithmetic of a step.
        weights: parameters, changed in place.
        slots: values beside the parameters, by the slot's name, changed in place.
        lr: learning rate of the round.
        counters: slots of one number for each lane, [lanes], changed in place.
        tracked: stacks of entries that never train, the model's and the client's second model's.
        apart: parameters whose steps are taken elsewhere, along gradients that never reach this place.
        reused: memory of the slots that are made here; None for new memory.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        weights: Stacks,
        slots: Mapping[str, Stacks],
        lr: float,
        counters: Stacks = MappingProxyType({}),
        tracked: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
        apart: Collection[str] = (),
        reused: SlotMemory | None = None,
    ) -> None:
        self.arithmetic, self.weights, self.lr, self.counters, self.tracked = arithmetic, weights, lr, counters, tracked
        self.reused = reused
        self.slots: dict[str, Stacks] = {
            slot: {name: stacks[name] for name in weights} for slot, stacks in slots.items()
        }
        if arithmetic.keeps_received or any(term.v == RECEIVED for term in arithmetic.affine):
            self._make(RECEIVED, {name: w.detach().clone() for name, w in weights.items()})
        for slot in () if reused is None else arithmetic.read:
            self.stacks(slot)
        self._names = [name for name in weights if name not in apart]
        self._counted = counters.get("steps")
        self.counts: dict[int, int] = {} if self._counted is None else dict(enumerate(self._counted.tolist()))
        """Steps that each lane has taken, if there are substeps or the direction counts them."""
        self.turn = 0
        """Number of times that the lanes of the present step have passed through all substeps before."""
        self.memory: list[Any] = []
        """State of an optimiser of `torch.optim` for each parameter."""
        self._views: dict[tuple[int, int, str | None], Tensors] = {}

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor], lanes: slice) -> None:
        """Take one step along the gradients, [k, *shape] each."""
        g = list(gradients)
        for term in self.arithmetic.terms:
            g = self._plus(term, g, lanes) if isinstance(term, AffineTerm) else term(self, g, lanes)
        if substeps := self.arithmetic.substeps:
            # All lanes have taken as many: only Adam's steps outlast a client update.
            self.turn, place = divmod(self.count(lanes)[0] - 1, len(substeps))
            substeps[place](self, g, lanes)
        else:
            self.move(self.arithmetic.direction(self, g, lanes), lanes, self.lr)

    def move(self, direction: Tensors, lanes: slice, rate: float) -> None:
        """Move the weights of some lanes: w <- w - rate direction."""
        torch._foreach_add_(self.view(None, lanes), direction, alpha=-rate)

    def copy(self, to: str | None, source: str | None, lanes: slice) -> None:
        """Copy some lanes of a slot's stacks, or of the weights for None, to those of another."""
        torch._foreach_copy_(self.view(to, lanes), self.view(source, lanes))

    @torch.no_grad()
    def finish(self, change: Callable[[LocalSteps, int, int], None], taken: Sequence[int]) -> None:
        """Call `Method.finish` for each lane that took a step, given the number of steps of each lane."""
        for lane, count in enumerate(taken):
            if count:
                change(self, lane, count)

    def values(self, lane: int, *slots: str) -> Iterator[tuple[torch.Tensor, ...]]:
        """Yield the weights of each parameter in a lane, and its values in some slots, to change in place."""
        stacks = [self.weights, *map(self.stacks, slots)]
        for name in self.weights:
            yield tuple(stack[name][lane] for stack in stacks)

    def count(self, lanes: slice) -> list[int]:
        """Count a step of some lanes; return its number in each."""
        for lane in range(lanes.start, lanes.stop):
            self.counts[lane] = self.counts.get(lane, 0) + 1
        if self._counted is not None:
            self._counted[lanes] += 1
        return [self.counts[lane] for lane in range(lanes.start, lanes.stop)]

    def stacks(self, slot: str | None) -> Stacks:
        """Return the stacks of a slot, or the weights for None; a new slot starts at 0."""
        if slot is None:
            return self.weights
        if slot not in self.slots:
            self._make(slot, {name: torch.zeros_like(w) for name, w in self.weights.items()})
        return self.slots[slot]

    def _make(self, slot: str, values: Stacks) -> None:
        """Make a slot with some first values."""
        self.slots[slot] = kept = values if self.reused is None else self.reused.setdefault((slot, *values), values)
        if kept is not values:
            torch._foreach_copy_(list(kept.values()), list(values.values()))

    def view(self, slot: str | None, lanes: slice) -> Tensors:
        """Return some lanes of a slot's stacks, or of the weights for None."""
        key = lanes.start, lanes.stop, slot
        if key not in self._views:
            stacks = self.stacks(slot)
            self._views[key] = [stacks[name][lanes] for name in self._names]
        return self._views[key]

    def _plus(self, term: AffineTerm, g: Tensors, lanes: slice) -> Tensors:
        w = self.view(None, lanes)
        if term.v is None:
            return list(torch._foreach_add(g, w, alpha=term.a))
        v = self.view(term.v, lanes)
        if term.a and term.a == -term.b:
            # Take the difference first: near v it loses no digits.
            return list(torch._foreach_add(g, list(torch._foreach_sub(w, v)), alpha=term.a))
        g = list(torch._foreach_add(g, w, alpha=term.a)) if term.a else g
        return list(torch._foreach_add(g, v, alpha=term.b))
