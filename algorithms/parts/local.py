"""The part `local`: what a visit does with a client's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.batch_norm import Statistics
from algorithms.engine.clients import Census
from algorithms.engine.errors import InputError, require
from algorithms.engine.finite import Nonfinite
from algorithms.parts.compute import Compute
from algorithms.training.chain import (
    RECEIVED,
    AdamDirection,
    AffineTerm,
    Chain,
    Clip,
    LocalSteps,
    MomentumDirection,
    Stage,
)

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""Numbers above are infinite to a model's entries, which are of single precision; not a number is none of these."""


@dataclass(frozen=True)
class Local:
    """Minibatch SGD, or Adam, on one client's samples.

    With g the batch's mean gradient of the cross-entropy and w_r the entries received:

        g <- g min(1, clip / |g|)
        g <- g + weight_decay w + proximal (w - w_r)
        u <- momentum u + g          (u = 0 at the start of each visit, unless `Place` keeps or shares it)
        w <- w - lr u                (with Nesterov's: g + momentum u; Adam: see `Moments`)

    Args:
        lr: the learning rate, > 0.
        epochs: passes over the samples, each in a new random order; 1 where nothing else is given.
        steps: number of batches instead, over as many passes as it takes; "largest": as many as `epochs` passes of
            the largest training client have, so that smaller ones repeat samples.
        batches: number of batches instead, the next ones of the client's own order: a visit goes on where the client's
            last one stopped, its order is drawn anew after each pass, and the last visit of a pass may have fewer.
        batch_size: samples a batch, or "full" for all of them; the last of a pass may be smaller.
        optimizer: "sgd" or "adam".
        momentum: SGD's, in [0, 1).
        nesterov: whether a step looks ahead along the momentum, which then is above 0.
        beta1: Adam's decay of the first moment, in [0, 1).
        beta2: of the second, in [0, 1).
        eps: Adam's, > 0.
        weight_decay: >= 0, added to the gradient of every parameter.
        proximal: FedProx's mu, >= 0.
        lr_decay: factor on the learning rate after each round, in (0, 1].
        lr_decay_at: shares of the run's rounds in (0, 1), ascending, after which it is applied, instead of each round.
        clip: the largest norm of a batch's gradient, all parameters together, > 0; None for no limit.
        statistics: what batch-norm layers normalise by in training: "batch", the batch's own, which are then
            tracked; "untracked", the batch's own, which leave no trace; or "frozen", those received, which stay.
        affine: whether batch norm's scale and shift are "trained" or "frozen".
        nonfinite: what becomes of a visit whose model, loss or weight is NaN or infinite: "stop" ends the run;
            "leave-out" goes on as if the client had no sample: weight 0, what it keeps stays, and a model that
            travels goes on as it came; "last" takes the model as it was received, with the visit's usual weight, but
            leaves it out where that weight is no number either.
        compute: how it is computed: the arithmetic's precision, and whether visits are stacked.

    Raises:
        InputError: a number is out of its range, or two exclude each other.
    """

    lr: float = 0.1
    epochs: int | None = None
    steps: int | Literal["largest"] | None = None
    batches: int | None = None
    batch_size: int | Literal["full"] = 10
    optimizer: Literal["sgd", "adam"] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    proximal: float = 0.0
    lr_decay: float = 1.0
    lr_decay_at: tuple[float, ...] = ()
    clip: float | None = None
    statistics: Statistics = "batch"
    affine: Literal["trained", "frozen"] = "trained"
    nonfinite: Nonfinite = "stop"
    compute: Compute = Compute()

    def __post_init__(self) -> None:
        if self.epochs is None and self.batches is None and self.steps in (None, "largest"):
            object.__setattr__(self, "epochs", 1)
        self._check_length()
        self._check_numbers()
        for name, allowed in (
            ("optimizer", ("sgd", "adam")),
            ("statistics", get_args(Statistics)),
            ("affine", ("trained", "frozen")),
            ("nonfinite", get_args(Nonfinite)),
        ):
            value = getattr(self, name)
            require(value in allowed, f"local.{name}", value, " or ".join(map(repr, allowed)), f'use "{allowed[0]}"')
        adam = self.optimizer == "adam"
        require(not (adam and self.momentum), "local.momentum", self.momentum, "0 with Adam", "remove it")
        ahead = not self.nesterov or self.momentum > 0
        require(ahead, "local.nesterov", self.nesterov, "false without momentum", "set local.momentum = 0.9")

    def _check_length(self) -> None:
        """How long a visit is: given once."""
        largest = self.steps == "largest"
        given = (None if largest else self.epochs, self.steps, self.batches)
        one = sum(value is not None for value in given) == 1
        require(one, "local.epochs, local.steps, local.batches", given, "one of them", "remove the others")
        for name in ("epochs", "steps", "batches"):
            value = getattr(self, name)
            whole = value is None or (isinstance(value, int) and value >= 1) or (name == "steps" and largest)
            allowed = 'a whole number >= 1, or "largest"' if name == "steps" else "a whole number >= 1"
            require(whole, f"local.{name}", value, allowed, f"set local.{name} = 1")
        size = self.batch_size
        fits = size == "full" or (isinstance(size, int) and size >= 1)
        require(fits, "local.batch_size", size, 'a whole number >= 1 or "full"', "set local.batch_size = 10")

    def _check_numbers(self) -> None:
        require(_above(0, self.lr), "local.lr", self.lr, "a float32 number > 0", "set local.lr = 0.1")
        require(_above(0, self.eps), "local.eps", self.eps, "a float32 number > 0", "set local.eps = 1e-8")
        for name in ("weight_decay", "proximal"):
            value = getattr(self, name)
            holds = 0 <= value <= FLOAT32_MAX
            require(holds, f"local.{name}", value, "a float32 number >= 0", f"set local.{name} = 0")
        for name in ("momentum", "beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"local.{name}", value, "in [0, 1)", f"set local.{name} = 0.9, or leave it out")
        clips = self.clip is None or _above(0, self.clip)
        require(clips, "local.clip", self.clip, "a float32 number > 0", "set local.clip = 1.0, or leave it out")
        require(0 < self.lr_decay <= 1, "local.lr_decay", self.lr_decay, "in (0, 1]", "set local.lr_decay = 1")
        at = self.lr_decay_at
        shares = all(0 < share < 1 for share in at) and sorted(set(at)) == list(at)
        allowed = "shares of the rounds in (0, 1), ascending"
        require(shares, "local.lr_decay_at", at, allowed, "set local.lr_decay_at = [0.5, 0.75]")
        drops = not at or self.lr_decay < 1
        require(drops, "local.lr_decay", self.lr_decay, "below 1 with lr_decay_at", "set local.lr_decay = 0.1")

    @property
    def slots(self) -> tuple[str, ...]:
        """What visits may keep beside the model, by name: a value a parameter; for "batches" a counter."""
        momentum = ("momentum",) if self.momentum else ()
        return (*momentum, *(("batches",) if self.batches else ()))

    @property
    def chain(self) -> Chain:
        """The arithmetic of a step; a method with other steps changes it, as `scaffold` does."""
        terms: list[Stage] = []
        if self.clip is not None:
            terms.append(Clip(self.clip))
        if self.weight_decay:
            terms.append(AffineTerm(a=self.weight_decay))
        if self.proximal:
            terms.append(AffineTerm(a=self.proximal, b=-self.proximal, v=RECEIVED))
        if self.optimizer == "adam":
            return Chain(tuple(terms), AdamDirection(self.beta1, self.beta2, self.eps))
        return Chain(tuple(terms), MomentumDirection(self.momentum, self.nesterov))

    def finish(self, steps: LocalSteps, taken: Sequence[int]) -> None:
        """Change slots after the last step of a stack of client updates; nothing here.

        Args:
            steps: weights and slots.
            taken: number of steps that each lane took.
        """

    def rate(self, number: int, rounds: int | None = None) -> float:
        """The learning rate of a round, the first being 1, of so many.

        Raises:
            InputError: it decays at shares of the rounds, and how many there are is not known.
        """
        if not self.lr_decay_at:
            return self.lr * self.lr_decay ** (number - 1)
        if rounds is None:
            raise InputError(
                f"local.lr_decay_at = {self.lr_decay_at}, and how many rounds there are is not known: must be known; "
                "give `begin` the rounds"
            )
        return self.lr * self.lr_decay ** sum(number > floor(round(share * rounds, 9)) for share in self.lr_decay_at)

    def fitted(self, census: Census) -> Self:
        """The same with what follows from the training clients, such as `steps = "largest"`, as numbers.

        Args:
            census: the training clients.
        """
        if self.steps != "largest":
            return self
        largest = int(census.samples.max(initial=0))
        return replace(self, steps=(self.epochs or 1) * -(-largest // self._size(largest)) or 1, epochs=None)

    def plan(
        self, samples: int, number: int, updates: int, draw: Callable[[int], np.random.Generator]
    ) -> list[NDArray[np.int64]]:
        """The rows of each batch of a visit.

        Args:
            samples: that the client has.
            number: the round.
            visits: that the client has made before; only `batches` goes by them.
            draw: the client's stream of a round, or of a pass over its batches.
        """
        if self.batches is None:
            return list(self.passes(samples, draw(number)))
        size = self._size(samples)
        count = -(-samples // size)
        done, place = divmod(updates, max(1, -(-count // self.batches)))
        order, first = draw(done).permutation(samples), place * self.batches
        return [order[b * size : (b + 1) * size] for b in range(first, min(first + self.batches, count))]

    def passes(self, samples: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """The rows of each batch of a visit of `epochs` or `steps`, pass after pass."""
        if samples == 0:
            return
        if self.steps == "largest":
            raise TypeError('steps = "largest" is no number yet: see `fitted`')
        size = self._size(samples)
        left = self.steps if self.steps is not None else (self.epochs or 0) * -(-samples // size)
        while left > 0:
            order = rng.permutation(samples)
            for start in range(0, samples, size)[:left]:
                yield order[start : start + size]
                left -= 1

    def _size(self, samples: int) -> int:
        return max(1, samples) if self.batch_size == "full" else self.batch_size


def _above(least: float, value: float) -> bool:
    return least < value <= FLOAT32_MAX
