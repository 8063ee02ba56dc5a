"""The part `local`: what a visit does with a client's samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.errors import require


@dataclass(frozen=True)
class Local:
    """Minibatch SGD on one client's samples.

    With g the batch's mean gradient of the cross-entropy and w_r the entries received:

        g <- g + weight_decay w + proximal (w - w_r)
        u <- momentum u + g          (u = 0 at the start of each visit)
        w <- w - lr lr_decay^(round - 1) u

    Args:
        lr: the learning rate, > 0.
        epochs: passes over the samples, each in a new random order; 1 where `steps` is not given either.
        steps: number of batches instead, over as many passes as it takes.
        batch_size: samples a batch, or "full" for all of them; the last of a pass may be smaller.
        momentum: in [0, 1).
        weight_decay: >= 0, added to the gradient of every parameter.
        proximal: FedProx's mu, >= 0.
        lr_decay: factor on the learning rate after each round, in (0, 1].

    Raises:
        InputError: a number is out of its range, or both `epochs` and `steps` are given.
    """

    lr: float = 0.1
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | Literal["full"] = 10
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    lr_decay: float = 1.0

    def __post_init__(self) -> None:
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 1)
        both = (self.epochs, self.steps)
        require(None in both, "local.epochs, local.steps", both, "one of them", "remove the other")
        for name in ("epochs", "steps"):
            value = getattr(self, name)
            whole = value is None or (isinstance(value, int) and value >= 1)
            require(whole, f"local.{name}", value, "a whole number >= 1", f"set local.{name} = 1")
        size = self.batch_size
        fits = size == "full" or (isinstance(size, int) and size >= 1)
        require(fits, "local.batch_size", size, 'a whole number >= 1 or "full"', "set local.batch_size = 10")
        require(_within(self.lr, above=0), "local.lr", self.lr, "a finite number > 0", "set local.lr = 0.1")
        for name in ("weight_decay", "proximal"):
            value = getattr(self, name)
            holds = isfinite(value) and value >= 0
            require(holds, f"local.{name}", value, "a finite number >= 0", f"set local.{name} = 0")
        require(0 <= self.momentum < 1, "local.momentum", self.momentum, "in [0, 1)", "set local.momentum = 0")
        require(0 < self.lr_decay <= 1, "local.lr_decay", self.lr_decay, "in (0, 1]", "set local.lr_decay = 1")

    def rate(self, number: int) -> float:
        """The learning rate of a round, the first being 1."""
        return self.lr * self.lr_decay ** (number - 1)

    def batches(self, samples: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """The rows of each batch of a visit, pass after pass."""
        if samples == 0:
            return
        size = samples if self.batch_size == "full" else self.batch_size
        left = self.steps if self.steps is not None else (self.epochs or 0) * -(-samples // size)
        while left > 0:
            order = rng.permutation(samples)
            for start in range(0, samples, size)[:left]:
                yield order[start : start + size]
                left -= 1


class Update:
    """The arithmetic of `Local` on one visit's parameters, or on a stack of them: it is elementwise.

    Args:
        local: the numbers.
        parameters: the tensors to change in place, as received.
        lr: this round's learning rate.
    """

    def __init__(self, local: Local, parameters: Sequence[torch.Tensor], lr: float) -> None:
        self._local = local
        self._lr = lr
        self._parameters = parameters
        self._received = [p.detach().clone() for p in parameters] if local.proximal else []
        self._velocity = [torch.zeros_like(p) for p in parameters] if local.momentum else []

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor]) -> None:
        """Take one step along the gradients, which are left as they are: autograd may alias them."""
        local = self._local
        for i, (w, gradient) in enumerate(zip(self._parameters, gradients, strict=True)):
            g = gradient
            if local.weight_decay:
                g = g.add(w, alpha=local.weight_decay)
            if local.proximal:
                g = g.add(w - self._received[i], alpha=local.proximal)
            if local.momentum:
                g = self._velocity[i].mul_(local.momentum).add_(g)
            w.sub_(g, alpha=self._lr)


def _within(value: float, above: float) -> bool:
    return isfinite(value) and value > above
