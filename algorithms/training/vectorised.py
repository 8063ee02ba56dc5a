"""Client updates stacked by `torch.func`, for models with layers that can be mapped over a stack of entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call, grad_and_value, vmap

from algorithms.core.batch_norm import train_mode
from algorithms.core.entries import Entry
from algorithms.training.batches import Taken, losses_of, stacked_batches
from algorithms.training.compiler import left_out
from algorithms.training.contrast import Contrast
from algorithms.training.dropout import Masks
from algorithms.training.local import Compute, Local
from algorithms.training.loss import Loss
from algorithms.training.products import as_products, convolutions
from algorithms.training.replay import launch_of
from algorithms.training.resident import Resident
from algorithms.training.steps import LocalSteps
from algorithms.training.work import Trainer, Work

Tensors = dict[str, torch.Tensor]


class Vectorised(Trainer):
    """Trainer of all lanes at once, which maps the module over parameters, buffers and dropout masks.

    Args:
        resident: models; their dropout layers are keyed.
        compute: precision.
    """

    execution = "vectorised"

    def __init__(self, resident: Resident, compute: Compute) -> None:
        super().__init__(resident)
        self._masks = Masks(resident.module, resident.sample)
        self.has_dropout = bool(self._masks.layers)
        self._autocast = compute.precision == "bf16"
        self._launch = launch_of(resident)
        self._products = convolutions(resident.module) if resident.device.type == "cuda" else []

    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update in each lane; see `Trainer`."""
        train_mode(self._resident.module, local.statistics)
        trained, slots, reused = self._resident.trained(local), self._resident.slots, self._launch.begin(local)
        steps = LocalSteps(local.arithmetic, trained, slots, lr, *self._resident.beside, reused=reused)
        others = {e: stack for e, stack in self._resident.stacks.items() if e.name not in trained}
        contrast = local.method.checked_loss_term(self._resident.module, steps)
        # An attribute would be a circle: the trainer and its models would stay until a search for garbage.
        gradient = vmap(grad_and_value(self._loss), in_dims=(*[0] * 6, None, None))
        taken: list[Taken] = []
        with as_products(self._products), nullcontext() if contrast is None else closing(contrast):
            for batch in stacked_batches(works):
                masks = self._masks.draw(works[batch.lanes], batch.size)
                step = partial(self._step, gradient, steps, others, batch.lanes, local.loss, contrast, tuple(masks))
                values = self._launch(lr, step, (batch.x, batch.y, *masks.values()), batch)
                taken.append((batch.lanes, batch.labels, values))
        steps.finish(local.method.finish, [len(work.batches) for work in works])
        return losses_of(taken, len(works))

    def _step(
        self,
        gradient: Callable[..., tuple[Tensors, torch.Tensor]],
        steps: LocalSteps,
        others: Mapping[Entry, torch.Tensor],
        lanes: slice,
        loss: Loss,
        contrast: Contrast | None,
        names: Sequence[str],
        x: torch.Tensor,
        y: torch.Tensor,
        *masks: torch.Tensor,
    ) -> torch.Tensor:
        """Take a step of some lanes along a gradient of `_loss`; return their losses, [k].

        Args:
            gradient: gradient and value of the loss, mapped over lanes.
            steps: local steps.
            others: stacks of the entries that do not train.
            lanes: the lanes, k of them.
            loss: loss of a batch.
            contrast: further term of the loss; None for none.
            names: buffers of the masks.
            x: inputs, [k, n, *shape].
            y: labels, [k, n, ...].
            masks: masks of dropout, [k, n, ...] each.
        """
        parameters = {name: stack[lanes] for name, stack in steps.weights.items()}
        # Batch norm tracks its statistics in place. Under vmap it silently tracks nothing if the lanes of a buffer
        # are not neighbours in memory, so track in copies.
        tracked = {e.name: stack[lanes].clone() for e, stack in others.items() if not e.is_parameter}
        fixed = {e.name: stack[lanes] for e, stack in others.items() if e.is_parameter}
        anchors = () if contrast is None else contrast.anchors(lanes)
        drawn = dict(zip(names, masks, strict=True))
        with left_out():
            gradients, values = gradient(parameters, tracked | fixed, drawn, x, y, anchors, loss, contrast)
        for entry, stack in others.items():
            if not entry.is_parameter:
                stack[lanes] = tracked[entry.name]
        steps([gradients[name] for name in parameters], lanes)
        return values.detach()

    def _loss(
        self,
        parameters: Tensors,
        buffers: Tensors,
        masks: Tensors,
        x: torch.Tensor,
        y: torch.Tensor,
        anchors: Any,
        loss: Loss,
        contrast: Contrast | None,
    ) -> object:
        with torch.autocast(self._resident.device.type, torch.bfloat16, enabled=self._autocast):
            mean = loss.mean(functional_call(self._resident.module, (parameters, buffers, masks), (x,)), y)
            return mean if contrast is None else mean + contrast(anchors, {**buffers, **masks}, x)
