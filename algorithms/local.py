"""The part `local`: what a visit does with a client's samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.compute import Compute
from algorithms.errors import require
from algorithms.norms import Statistics


@dataclass(frozen=True)
class Local:
    """Minibatch SGD on one client's samples.

    With g the batch's mean gradient of the cross-entropy and w_r the entries received:

        g <- g min(1, clip / |g|)
        g <- g + weight_decay w + proximal (w - w_r)
        u <- momentum u + g          (u = 0 at the start of each visit)
        w <- w - lr lr_decay^(round - 1) u          (with Nesterov's: g + momentum u)

    Args:
        lr: the learning rate, > 0.
        epochs: passes over the samples, each in a new random order; 1 where `steps` is not given either.
        steps: number of batches instead, over as many passes as it takes.
        batch_size: samples a batch, or "full" for all of them; the last of a pass may be smaller.
        momentum: in [0, 1).
        nesterov: whether a step looks ahead along the momentum, which then is above 0.
        weight_decay: >= 0, added to the gradient of every parameter.
        proximal: FedProx's mu, >= 0.
        lr_decay: factor on the learning rate after each round, in (0, 1].
        clip: the largest norm of a batch's gradient, all parameters together, > 0; None for no limit.
        statistics: what batch-norm layers normalise by in training: "batch", the batch's own, which are then
            tracked; "untracked", the batch's own, which leave no trace; or "frozen", those received, which stay.
        compute: how it is computed: the arithmetic's precision, and whether visits are stacked.

    Raises:
        InputError: a number is out of its range, or both `epochs` and `steps` are given.
    """

    lr: float = 0.1
    epochs: int | None = None
    steps: int | None = None
    batch_size: int | Literal["full"] = 10
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    proximal: float = 0.0
    lr_decay: float = 1.0
    clip: float | None = None
    statistics: Statistics = "batch"
    compute: Compute = Compute()

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
        ahead = not self.nesterov or self.momentum > 0
        require(ahead, "local.nesterov", self.nesterov, "false without momentum", "set local.momentum = 0.9")
        clips = self.clip is None or _within(self.clip, above=0)
        require(clips, "local.clip", self.clip, "a finite number > 0", "set local.clip = 1.0, or leave it out")
        known, allowed = self.statistics in get_args(Statistics), " or ".join(map(repr, get_args(Statistics)))
        require(known, "local.statistics", self.statistics, allowed, 'set local.statistics = "batch"')
        require(0 < self.lr_decay <= 1, "local.lr_decay", self.lr_decay, "in (0, 1]", "set local.lr_decay = 1")

    @property
    def looks_at_gradients(self) -> bool:
        """Whether a step needs the gradient itself, not only its sum with the parameters or the velocity."""
        return self.clip is not None or self.nesterov

    def rate(self, number: int) -> float:
        """The learning rate of a round, the first being 1."""
        return self.lr * self.lr_decay ** (number - 1)

    def passes(self, samples: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
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
    """The arithmetic of `Local` on a stack of visits: every tensor is [lanes, *shape], and each lane stands alone.

    Args:
        local: the numbers.
        stack: the parameters to change in place, as received.
        lr: this round's learning rate.
    """

    def __init__(self, local: Local, stack: Sequence[torch.Tensor], lr: float) -> None:
        self._local = local
        self._lr = lr
        self._stack = list(stack)
        self._received = [w.detach().clone() for w in stack] if local.proximal else []
        self._velocity = [torch.zeros_like(w) for w in stack] if local.momentum else []
        self._lanes: dict[tuple[int, int], tuple[list[torch.Tensor], ...]] = {}

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor], lanes: slice) -> None:
        """Take one step along the gradients, [k, *shape] each, which are left as they are: autograd may alias them."""
        local = self._local
        g = list(gradients)
        w, received, velocity = self._of(lanes)
        if local.clip is not None:
            g = _clipped(g, local.clip)
        if local.weight_decay:
            g = list(torch._foreach_add(g, w, alpha=local.weight_decay))
        if local.proximal:
            away = list(torch._foreach_sub(w, received))
            g = list(torch._foreach_add(g, away, alpha=local.proximal))
        if local.momentum:
            torch._foreach_mul_(velocity, local.momentum)
            torch._foreach_add_(velocity, g)
            g = list(torch._foreach_add(g, velocity, alpha=local.momentum)) if local.nesterov else velocity
        torch._foreach_add_(w, g, alpha=-self._lr)

    def _of(self, lanes: slice) -> tuple[list[torch.Tensor], ...]:
        """The views on some lanes, made once: a visit has many steps and few kinds of them."""
        key = lanes.start, lanes.stop
        if key not in self._lanes:
            every = (self._stack, self._received, self._velocity)
            self._lanes[key] = tuple([tensor[lanes] for tensor in tensors] for tensors in every)
        return self._lanes[key]


def _clipped(gradients: Sequence[torch.Tensor], most: float) -> list[torch.Tensor]:
    """Each lane's gradient, scaled down to a norm of at most `most`."""
    squares = torch.stack([g.reshape(len(g), -1).square().sum(1) for g in gradients])
    # The guard of torch.nn.utils.clip_grad_norm_, so that both clip to the same.
    scale = (most / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1)
    return [g * scale.view(-1, *(1 for _ in g.shape[1:])) for g in gradients]


def _within(value: float, above: float) -> bool:
    return isfinite(value) and value > above
