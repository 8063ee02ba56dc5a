"""The part `local`: the content of a client update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import cos, floor, inf, pi
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from algorithms.core.batch_norm import Statistics
from algorithms.core.clients import Census
from algorithms.core.entries import Entry, Kind
from algorithms.core.errors import InputError, require
from algorithms.core.finite import Nonfinite
from algorithms.core.head import ModelPart
from algorithms.core.layout import Layout, Scope
from algorithms.training.local_values import check_local
from algorithms.training.loss import CrossEntropy, Loss
from algorithms.training.method import Method
from algorithms.training.optimiser_names import OPTIMISERS, OWN
from algorithms.training.own_update import OwnUpdate
from algorithms.training.terms import AffineTerm

if TYPE_CHECKING:
    from algorithms.training.steps import Arithmetic, Substep


Precision: TypeAlias = Literal["fp32", "bf16", "fp64"]
Execution: TypeAlias = Literal["auto", "sequential", "vectorised", "fused", "low-rank"]


@dataclass(frozen=True)
class Compute:
    """Computation of client updates. All executions agree up to rounding, but not in bytes.

    Args:
        execution: "sequential" trains one client update after the other. "vectorised" trains a stack of them through
            `torch.func`. "fused" trains a stack of models of linear layers, with gradients by hand that go straight
            into the weights. "low-rank" forms no client's weights while client updates start from one model, and is
            fused otherwise. "auto" chooses by model, device and sizes; see `choose`.
        precision: "fp32"; "bf16", with forward and backward passes in bfloat16 by autocast and the rest in float32;
            or "fp64", with all entries in float64.
        channels_last: whether images lie in memory with their channels last; only sequential. Without a value they do
            on a CPU, if the model has a 2-D convolution and a pass of it works so.
        compile: whether the model goes through `torch.compile`; only sequential, needs a C++ compiler.

    Raises:
        InputError: a value is unknown, or two exclude each other.
    """

    execution: Execution = "auto"
    precision: Precision = "fp32"
    channels_last: bool | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("execution", get_args(Execution)), ("precision", get_args(Precision))):
            value = getattr(self, name)
            require(value in allowed, f"local.{name}", value, ", ".join(allowed), f'set local.{name} = "{allowed[0]}"')
        stacked = self.execution in ("vectorised", "fused", "low-rank")
        for name in ("channels_last", "compile"):
            if stacked and getattr(self, name):
                raise InputError(
                    f"local.{name} = true with local.execution = {self.execution!r}: must be false, because stacked "
                    'training has no such option; remove it, or set local.execution = "sequential"'
                )
        if self.execution in ("fused", "low-rank") and self.precision == "bf16":
            raise InputError(
                f'local.precision = "bf16" with local.execution = {self.execution!r}: must be fp32 or fp64, because '
                'gradients by hand have no autocast; set local.execution = "sequential"'
            )


Option = bool | float | list[float]
"""Argument of an optimiser of `torch.optim`."""


@dataclass(frozen=True)
class Local:
    """Minibatch SGD, or another optimiser, on one client's samples.

    With g the gradient of the batch's mean loss, the arithmetic of a local step is

        g <- g min(1, clip / |g|)
        g <- g + weight_decay w
        u <- momentum u + g
        w <- w - lr u              (with Nesterov's momentum along g + momentum u; for Adam see `AdamDirection`)

    u starts at 0 in each client update, unless `Sharing` lists its slot. Optimisers other than SGD and Adam are those
    of `torch.optim`, and take `weight_decay` and `optimizer_options` as their arguments.

    Args:
        loss: loss of a batch; see `algorithms.training.loss`.
        lr: learning rate, > 0.
        epochs: passes over the samples, each in a new random order; 1 if nothing else is given.
        steps: number of batches instead, over several passes if necessary. "largest" takes the number of batches that
            the largest training client has in `epochs` passes, so smaller clients repeat samples.
        batches: number of batches instead, taken from the client's own order. A client update continues after the
            client's last one. After each pass a new order is drawn; the last update of a pass may have fewer batches.
        batch_size: samples a batch, or "full" for all; the last batch of a pass may be smaller.
        optimizer: one of `algorithms.training.optimiser_names`, such as "sgd", "adam" or "adamw".
        optimizer_options: arguments of an optimiser of `torch.optim`, such as `{betas = [0.9, 0.99]}`; SGD and Adam
            have keys of their own.
        momentum: momentum of SGD, in [0, 1).
        nesterov: whether a step looks ahead along the momentum; needs momentum > 0.
        beta1: Adam's decay of the first moment, in [0, 1).
        beta2: Adam's decay of the second moment, in [0, 1).
        eps: Adam's bound of the step, > 0.
        weight_decay: factor of the weights in the gradient of every parameter, >= 0.
        lr_schedule: learning rate within a client update of T steps: "constant", or a factor on the t-th step's rate
            that falls to 0, "linear", 1 - t / T, or "cosine", (1 + cos(pi t / T)) / 2.
        lr_decay: factor on the learning rate after each round, in (0, 1].
        lr_decay_at: shares of the run's rounds in (0, 1), ascending; the factor then applies only after these.
        clip: largest norm of a batch's gradient, all parameters together, > 0; by default no limit.
        statistics: statistics by which batch-norm layers normalise in training: "batch", the batch's own, which are
            then tracked; "untracked", the batch's own without tracking; "frozen", the received ones, which stay.
        affine: whether batch norm's scale and shift are "trained" or "frozen".
        part: part of the model that trains: "all", its "head" or its "body". Batch norm tracks its statistics in all.
        nonfinite: action if a client update's model, loss or weight is NaN or infinite. "stop" ends the run.
            "leave-out" treats the client as one without samples: weight 0, and personal state and a travelling model
            stay unchanged. "last" counts the received model with the update's usual weight; if that weight is not
            finite, the update is left out. With `batches`, the client goes on to its next batches all the same.
        update: a user's own client update, in place of the local steps; it takes `lr`, `loss` and the batches. None for
            these steps.
        method: additions of a method to these steps; see `algorithms.training.method`.
        compute: precision and execution.

    Raises:
        InputError: a value is out of range, or two exclude each other.
    """

    loss: Loss = CrossEntropy()
    lr: float = 0.1
    epochs: int | None = None
    steps: int | Literal["largest"] | None = None
    batches: int | None = None
    batch_size: int | Literal["full"] = 10
    optimizer: str = "sgd"
    optimizer_options: Mapping[str, Option] = field(default_factory=dict)
    momentum: float = 0.0
    nesterov: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    lr_decay: float = 1.0
    lr_decay_at: tuple[float, ...] = ()
    clip: float | None = None
    statistics: Statistics = "batch"
    affine: Literal["trained", "frozen"] = "trained"
    part: ModelPart = "all"
    nonfinite: Nonfinite = "stop"
    update: OwnUpdate | None = None
    method: Method = Method()
    compute: Compute = Compute()

    def __post_init__(self) -> None:
        if self.epochs is None and self.batches is None and self.steps in (None, "largest"):
            object.__setattr__(self, "epochs", 1)
        check_local(vars(self), {each.name: each.default for each in fields(self)})
        if self.optimizer not in OWN:
            _ = self._optimiser  # PyTorch checks the options

    @property
    def slots(self) -> dict[str, Scope | float]:
        """Values beside the model: one for each parameter, or a number. For "batches" and "steps" it is a counter."""
        adam = ("first", "second", "steps") if self.optimizer == "adam" else ()
        momentum = ("momentum",) if self.momentum else ()
        own = (*adam, *momentum, *(("batches",) if self.batches else ()))
        return {**dict.fromkeys(own, "personal"), **self.method.slots}

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """Arithmetic of a local step."""
        from algorithms.training.steps import AdamDirection, Arithmetic, GradientClip, MomentumDirection, Transform

        method = self.method
        terms: list[AffineTerm | Transform] = [*method.first_terms]
        if self.clip is not None:
            terms.append(GradientClip(self.clip))
        if self.weight_decay and self.optimizer in OWN:
            terms.append(AffineTerm(a=self.weight_decay))
        terms += method.terms
        direction: Transform = MomentumDirection(self.momentum, self.nesterov)
        if self.optimizer == "adam":
            direction = AdamDirection(self.beta1, self.beta2, self.eps)
        reads_received = method.overrides("finish", "loss_term")
        return Arithmetic(tuple(terms), direction, method.substeps or self._optimiser, reads_received)

    @property
    def _optimiser(self) -> tuple[Substep, ...]:
        """Optimiser of `torch.optim`, as the only substep; none for SGD and Adam."""
        if self.optimizer in OWN:
            return ()
        from algorithms.training.optimisers import TorchOptimiser

        # An optimiser decays the weights in a way of its own: AdamW apart from the gradient, and Rprop not.
        decay = {} if self.optimizer == "rprop" else {"weight_decay": self.weight_decay}
        options = {
            key: tuple(value) if isinstance(value, list) else value for key, value in self.optimizer_options.items()
        }
        return (TorchOptimiser(OPTIMISERS[self.optimizer], decay | options),)

    @property
    def has_gradient_by_hand(self) -> bool:
        """Whether executions with gradients by hand know the loss and the learning rates."""
        plain = self.loss == CrossEntropy() and self.lr_schedule == "constant"
        return plain and not self.method.overrides("loss_term")

    def trains(self, entry: Entry) -> bool:
        """Return whether client updates train an entry."""
        fixed = self.affine == "frozen" and entry.kind is Kind.AFFINE
        return entry.is_parameter and entry.is_in(self.part) and not fixed

    def trained(self, layout: Layout) -> Layout:
        """Return a layout for the server: parameters that no client trains are marked as frozen."""
        if self.affine == "trained" and self.part == "all":
            return layout
        entries = (replace(e, frozen=e.frozen or (e.is_parameter and not self.trains(e))) for e in layout.entries)
        return Layout(tuple(entries), layout.floating)

    def factor(self, step: int, steps: int) -> float:
        """Return the factor on the learning rate of a step.

        Args:
            step: number t of the step in the client update, starting at 0.
            steps: number T of steps of the client update.
        """
        if self.lr_schedule == "constant":
            return 1.0
        done = step / steps
        return 1 - done if self.lr_schedule == "linear" else (1 + cos(pi * done)) / 2

    def rate(self, round_number: int, rounds: int | None = None) -> float:
        """Return the learning rate of a round.

        Args:
            round_number: round, starting at 1.
            rounds: number of rounds of the run; None if it is unknown.

        Raises:
            InputError: the rate decays at shares of the rounds, and their number is unknown.
        """
        passed = self._passed(round_number, rounds) if self.lr_decay_at else round_number - 1
        return self.lr * self.lr_decay**passed

    def _passed(self, round_number: int, rounds: int | None) -> int:
        """Return how many of the shares of the rounds in `lr_decay_at` have passed."""
        if rounds is None:
            raise InputError(
                f"local.lr_decay_at = {self.lr_decay_at}, and the number of rounds is unknown: must be known; "
                "give `begin` the rounds"
            )
        return sum(round_number > floor(round(share * rounds, 9)) for share in self.lr_decay_at)

    def fitted(self, census: Census, reporting: int | None = None) -> Self:
        """Return this part with values that depend on the training clients, such as `steps = "largest"`, as numbers.

        `reporting` is the number of clients that take part in the round; in virtual time, of those that report in time.
        """
        method = self.method.fitted(census, reporting)
        if self.steps != "largest":
            return self if method is self.method else replace(self, method=method)
        largest = int(census.samples.max(initial=0))
        steps = (self.epochs or 1) * -(-largest // self._size(largest)) or 1
        return replace(self, steps=steps, epochs=None, method=method)

    def used(self, samples: NDArray[np.int64]) -> float:
        """Return how many samples a client update uses: max(sum_k n_k^2 / sum_k n_k, max_k n_k / 4).

        The cost of a form of low rank grows with the square of n_k, and the largest client sets the memory of all.

        Args:
            samples: number of each client's samples, [K].
        """
        size = samples if self.batch_size == "full" else self.batch_size
        steps = self.batches if self.steps is None else self.steps
        used = samples * (self.epochs or 1)
        if isinstance(steps, int):
            used = np.minimum(steps * np.minimum(size, samples), used if self.batches else inf)
        return float(max((used.astype(float) ** 2).sum() / max(1, used.sum()), used.max(initial=0) / 4))

    def plan(
        self,
        samples: int,
        round_number: int,
        updates: int,
        draw: Callable[[int], np.random.Generator],
        least: int = 1,
    ) -> list[NDArray[np.int64]]:
        """Return the rows of each step of a client update.

        Args:
            samples: number of the client's samples.
            round_number: round, starting at 1.
            updates: number of the client's earlier updates; used only with `batches`.
            draw: random stream of a round, or of a pass over the client's batches.
            least: least number of samples of a batch; smaller batches are left out.
        """
        batches = self._batches(samples, round_number, updates, draw)
        if least > 1:
            batches = [rows for rows in batches if len(rows) >= least]
        return self.method.plan(batches)

    def _batches(
        self, samples: int, round_number: int, updates: int, draw: Callable[[int], np.random.Generator]
    ) -> list[NDArray[np.int64]]:
        if self.batches is None:
            return list(self.passes(samples, draw(round_number)))
        size = self._size(samples)
        count = -(-samples // size)
        done, place = divmod(updates, max(1, -(-count // self.batches)))
        order, first = draw(done).permutation(samples), place * self.batches
        return [order[b * size : (b + 1) * size] for b in range(first, min(first + self.batches, count))]

    def passes(self, samples: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        """Yield the rows of each batch of `epochs` or `steps`, pass after pass."""
        if samples == 0:
            return
        if self.steps == "largest":
            raise TypeError('steps = "largest" is not a number yet: call `fitted` first')
        size = self._size(samples)
        left = self.steps if self.steps is not None else (self.epochs or 0) * -(-samples // size)
        while left > 0:
            order = rng.permutation(samples)
            for start in range(0, samples, size)[:left]:
                yield order[start : start + size]
                left -= 1

    def _size(self, samples: int) -> int:
        return max(1, samples) if self.batch_size == "full" else self.batch_size


def require_defaults(local: Local, method: str, *names: str) -> None:
    """Refuse keys of `[local]` that a method's equations leave out, and a client update of the user's own.

    Args:
        local: content of a client update.
        method: name of the method.
        names: keys.
    """
    for name in names:
        value, usual = getattr(local, name), getattr(Local, name)
        require(value == usual, f"local.{name}", value, f"{usual!r} for {method}", "leave it out")
    update, why = local.update, f"left out with {method}, which has local steps of its own"
    require(update is None, "local.update", update and update.name, why, "remove it, or use another algorithm")
