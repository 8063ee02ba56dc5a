"""The arithmetic of a visit's steps, on a stack of visits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from algorithms.parts.local import Local

Tensors = list[torch.Tensor]
Stacks = Mapping[str, torch.Tensor]
"""By the names of parameters: a tensor [lanes, *shape] each."""


class Update:
    """The steps that `Local` describes: every tensor is [lanes, *shape], and each lane stands alone.

    A method with other steps has a subclass of this, made by its subclass of `Local`.

    Args:
        local: the numbers.
        stacks: the parameters to change in place, as received.
        slots: what visits keep beside them, by the slot's name: what `Place` keeps or shares of `Local.slots`.
        lr: this round's learning rate.
    """

    def __init__(self, local: Local, stacks: Stacks, slots: Mapping[str, Stacks], lr: float) -> None:
        self.local, self.lr = local, lr
        self.stacks = stacks
        self.received = {name: w.detach().clone() for name, w in stacks.items()} if self.needs_received else {}
        self.slots = {name: {key: slot[key] for key in stacks} for name, slot in slots.items()}
        self._direction: Direction = MAKERS[local.optimizer](self)
        self._views: dict[tuple[int, int, str], Tensors] = {}

    @property
    def needs_received(self) -> bool:
        """Whether steps look back at the entries as they were received."""
        return self.local.proximal > 0

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor], lanes: slice) -> None:
        """Take one step along the gradients, [k, *shape] each, which are left as they are: autograd may alias them."""
        local, g, w = self.local, list(gradients), self.view("w", self.stacks, lanes)
        if local.clip is not None:
            g = _clipped(g, local.clip)
        if local.weight_decay:
            g = list(torch._foreach_add(g, w, alpha=local.weight_decay))
        if local.proximal:
            away = list(torch._foreach_sub(w, self.view("received", self.received, lanes)))
            g = list(torch._foreach_add(g, away, alpha=local.proximal))
        torch._foreach_add_(w, self._direction(g, lanes), alpha=-self.lr)

    def finish(self, steps: Sequence[int]) -> None:
        """Do what is left when a visit's steps are taken; so many in each lane."""

    def view(self, name: str, stacks: Stacks, lanes: slice) -> Tensors:
        """Stacks on some lanes, made once: a visit has many steps and few kinds of them."""
        key = lanes.start, lanes.stop, name
        if key not in self._views:
            self._views[key] = [stack[lanes] for stack in stacks.values()]
        return self._views[key]


class Direction(Protocol):
    """Turns gradients into the direction of a step."""

    def __call__(self, g: Tensors, lanes: slice) -> Tensors: ...


class Momentum:
    """u <- momentum u + g; the step is along u, or g + momentum u with Nesterov's. Without momentum along g.

    u is the slot "momentum"; where that is no entry of the model, 0 at the start of the visit.
    """

    def __init__(self, update: Update) -> None:
        self._update, self._momentum, self._ahead = update, update.local.momentum, update.local.nesterov
        if self._momentum and "momentum" not in update.slots:
            update.slots["momentum"] = zeros(update.stacks)

    def __call__(self, g: Tensors, lanes: slice) -> Tensors:
        if not self._momentum:
            return g
        velocity = self._update.view("momentum", self._update.slots["momentum"], lanes)
        torch._foreach_mul_(velocity, self._momentum)
        torch._foreach_add_(velocity, g)
        return list(torch._foreach_add(g, velocity, alpha=self._momentum)) if self._ahead else velocity


class Moments:
    """Adam: m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2; along m' / (sqrt(v') + eps).

    m' and v' are corrected for their start at 0, which they have in each visit.
    """

    def __init__(self, update: Update) -> None:
        self._update, self._first, self._second = update, zeros(update.stacks), zeros(update.stacks)
        self._taken: dict[int, int] = {}

    def __call__(self, g: Tensors, lanes: slice) -> Tensors:
        local = self._update.local
        # The lanes of one step are all at the same one.
        number = self._taken.get(lanes.start, 0) + 1
        self._taken |= dict.fromkeys(range(lanes.start, lanes.stop), number)
        m, v = self._update.view("first", self._first, lanes), self._update.view("second", self._second, lanes)
        torch._foreach_mul_(m, local.beta1)
        torch._foreach_add_(m, g, alpha=1 - local.beta1)
        torch._foreach_mul_(v, local.beta2)
        torch._foreach_addcmul_(v, g, g, value=1 - local.beta2)
        roots = torch._foreach_sqrt(torch._foreach_div(v, 1 - local.beta2**number))
        torch._foreach_add_(roots, local.eps)
        return list(torch._foreach_div(torch._foreach_div(m, 1 - local.beta1**number), roots))


MAKERS: Mapping[str, Callable[[Update], Direction]] = {"sgd": Momentum, "adam": Moments}


def zeros(stacks: Stacks) -> dict[str, torch.Tensor]:
    """Stacks of the same shapes, of zeros."""
    return {name: torch.zeros_like(stack) for name, stack in stacks.items()}


def _clipped(gradients: Tensors, most: float) -> Tensors:
    """Each lane's gradient, scaled down to a norm of at most `most`."""
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients])
    # The guard of torch.nn.utils.clip_grad_norm_, so that both clip to the same.
    scale = (most / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1)
    return [g * scale.view(-1, *(1 for _ in g.shape[1:])) for g in gradients]
