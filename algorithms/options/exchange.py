"""FedTAN's exchange: batch-norm statistics that a cohort has in common, and the first step with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from algorithms.core.batch_norm import live_batch_norms, train_mode
from algorithms.core.errors import InputError
from algorithms.core.fleet import Around, Block, Function, Output
from algorithms.core.layout import Floats
from algorithms.parts.client_update import NO_INPUT, ClientUpdates
from algorithms.training.batches import stacked_batches
from algorithms.training.local import Local
from algorithms.training.resident import Resident
from algorithms.training.steps import LocalSteps
from algorithms.training.work import Trainer, Work
from algorithms.training.worker import Worker

Normalise = Callable[[_BatchNorm, torch.Tensor], torch.Tensor]

DROPOUT = (
    "algorithm.name = 'fedtan' on a model with dropout: must be one without, because the cohort's first batches "
    "pass it together; use another model, or another algorithm"
)
"""Error for a model with dropout."""


@dataclass(frozen=True)
class Common:
    """Common statistics of a cohort at one batch-norm layer, with a value for each channel.

    Args:
        mean: mu_l, mean over clients of their batches' means.
        variance: var_l, mean over clients of their batches' mean squared distances from mu_l.
        by_mean: A_l, derivative of the clients' mean loss by mu_l.
        by_variance: B_l, derivative of the clients' mean loss by var_l.
        count: values of a channel in all batches together.
    """

    mean: Floats
    variance: Floats
    by_mean: Floats
    by_variance: Floats
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes that a client sends, and receives."""
        return self.mean.nbytes + self.variance.nbytes + self.by_mean.nbytes + self.by_variance.nbytes


@dataclass(frozen=True)
class Exchange(Function):
    """Common statistics of the first batches of the clients of one block, and the derivatives by them.

    Args:
        updates: client updates, which determine the batches.
    """

    updates: ClientUpdates

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        model, personal = values[0]
        if worker.trainer.has_dropout:
            raise InputError(DROPOUT)
        count = len(block.clients)
        works = self.updates.works(worker, block.clients, [NO_INPUT] * count, [personal] * count)
        if any(work.y.dim() > 1 for work in works):
            raise InputError(
                "algorithm.name = 'fedtan' with labels that are no classes of samples: must be classes, because its "
                "clients share the loss by samples; use another algorithm"
            )
        first = [_first(work) for work in works if work.batches]
        if model is None or not first:
            return Output(())
        worker.resident.load(model, personal)
        x, y = (torch.cat(tensors) for tensors in zip(*first, strict=True))
        shares = torch.cat([x.new_full((len(own),), 1 / (len(first) * len(own))) for _, own in first])
        return Output(_common(worker.resident, x, y, shares))


def _common(resident: Resident, x: torch.Tensor, y: torch.Tensor, shares: torch.Tensor) -> tuple[Common, ...]:
    """Return the common statistics of each layer; `shares` are the samples' shares in the mean over clients."""
    found: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def normalise(layer: _BatchNorm, h: torch.Tensor) -> torch.Tensor:
        mean = torch.einsum("n,nc->c", shares, _channels(h).mean(2))
        away = _channels(h) - mean.view(-1, 1)
        variance = torch.einsum("n,nc->c", shares, away.square().mean(2))
        found.append((mean, variance, h.numel() // h.shape[1]))
        return _normalised(layer, h, mean, variance)

    train_mode(resident.module, "batch")
    with _normalising(resident.module, normalise):
        loss = (shares * cross_entropy(resident.module(x), y, reduction="none")).sum()
    if not found:
        raise InputError(
            "algorithm.name = 'fedtan' with a model that does not call its batch-norm layers: must call one, because "
            "its clients have their statistics in common; call them, or use another algorithm"
        )
    means, variances, counts = zip(*found, strict=True)
    gradients = [_numbers(g) for g in torch.autograd.grad(loss, [*means, *variances], materialize_grads=True)]
    by_mean, by_variance = gradients[: len(found)], gradients[len(found) :]
    return tuple(
        Common(_numbers(mean), _numbers(variance), a, b, count)
        for mean, variance, a, b, count in zip(means, variances, by_mean, by_variance, counts, strict=True)
    )


class Together(Trainer):
    """A trainer whose client updates begin with a step on common statistics.

    Args:
        resident: resident models.
        trainer: trainer of all further steps.
        common: common statistics of the batch-norm layers, in the order of the forward pass.
    """

    def __init__(self, resident: Resident, trainer: Trainer, common: Sequence[Common]) -> None:
        super().__init__(resident)
        self._trainer = trainer
        self._common = common
        self.has_dropout = trainer.has_dropout

    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Train one client in each lane; see `Trainer`."""
        resident, losses = self._resident, []
        received = [(resident.shared(lane).copy(), resident.personal(lane).copy()) for lane in range(len(works))]
        stepped = []
        for (shared, personal), work in zip(received, works, strict=True):
            # The module computes with lane 0, for every client in turn.
            resident.load(shared, personal)
            losses.append(self._step(local, work, lr) if work.batches else np.nan)
            stepped.append((resident.shared().copy(), resident.personal().copy()))
        for lane, (shared, personal) in enumerate(stepped):
            resident.load(shared, personal, lane)
        others = self._trainer.train(local, [work.split(1)[1] for work in works], lr)
        return np.array([_mean_loss(*each) for each in zip(works, losses, others, strict=True)])

    def _step(self, local: Local, work: Work, lr: float) -> float:
        """Take the first step of a client update on the model in lane 0; return the loss of its batch."""
        resident, layers, x, y = self._resident, iter(self._common), *_first(work)
        terms: list[torch.Tensor] = []
        seen: list[tuple[_BatchNorm, Common]] = []

        def normalise(layer: _BatchNorm, h: torch.Tensor) -> torch.Tensor:
            common = next(layers)
            each = (common.mean, common.variance, common.by_mean, common.by_variance)
            mean, variance, by_mean, by_variance = (torch.tensor(values).to(h) for values in each)
            away = _channels(h) - mean.view(-1, 1)
            # Effect of this client's part of the statistics on the mean loss of all clients.
            terms.append((by_mean * _channels(h).mean((0, 2))).sum())
            terms.append((by_variance * away.square().mean((0, 2))).sum())
            seen.append((layer, common))
            return _normalised(layer, h, mean, variance)

        train_mode(resident.module, "batch")
        with _normalising(resident.module, normalise):
            loss = cross_entropy(resident.module(x), y)
        total = torch.stack([loss, *terms]).sum()
        trained = resident.trained(local)
        parameters = [resident.parameters[name] for name in trained]
        gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
        steps = LocalSteps(local.arithmetic, trained, resident.slots, lr)
        steps([gradient.unsqueeze(0) for gradient in gradients], slice(0, 1))
        for layer, common in seen:
            _track(layer, common)
        return float(loss.detach())


@dataclass(frozen=True)
class AfterCommonStep(Around):
    """Client updates by a trainer that takes the common step first.

    Args:
        common: common statistics of each batch-norm layer.
    """

    common: tuple[Common, ...]

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        trainer = Together(worker.resident, worker.trainer, self.common)
        return self.inner(replace(worker, trainer=trainer), block, *values)


def _first(work: Work) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples of the first step."""
    step = next(stacked_batches([work]))
    return step.x[0], step.y[0]


def _mean_loss(work: Work, first: float, others: float) -> float:
    """Return the mean loss over all samples in the order of training, from those of the first batch and the others."""
    if len(work.batches) < 2:
        return first
    sizes = len(work.batches[0]), sum(len(rows) for rows in work.batches[1:])
    return float(np.average([first, others], weights=sizes))


def _channels(h: torch.Tensor) -> torch.Tensor:
    """Return values as [n, channels, positions]."""
    return h.reshape(h.shape[0], h.shape[1], -1)


def _normalised(layer: _BatchNorm, h: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    shape = (1, -1, *(1 for _ in h.shape[2:]))
    out = (h - mean.view(shape)) / (variance + layer.eps).sqrt().view(shape)
    return out * layer.weight.view(shape) + layer.bias.view(shape) if layer.affine else out


@torch.no_grad()
def _track(layer: _BatchNorm, common: Common) -> None:
    """Track the common statistics as batch norm tracks those of its batch."""
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return
    layer.num_batches_tracked += 1
    share = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    unbiased = common.variance * (common.count / max(1, common.count - 1))
    for running, value in ((layer.running_mean, common.mean), (layer.running_var, unbiased)):
        running.mul_(1 - share).add_(torch.tensor(value).to(running), alpha=share)


@contextmanager
def _normalising(module: nn.Module, normalise: Normalise) -> Iterator[None]:
    """Replace the batch-norm layers of a module by a function."""
    layers = live_batch_norms(module)
    for layer in layers:
        layer.forward = partial(normalise, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _numbers(values: torch.Tensor) -> Floats:
    numbers: Floats = values.detach().cpu().numpy()
    return numbers
