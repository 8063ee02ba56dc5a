"""Client updates stacked by `torch.func`, for models with layers that can be mapped over a stack of entries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call, grad_and_value, vmap

from algorithms.core.batch_norm import train_mode
from algorithms.training.batches import stacked_batches
from algorithms.training.compute import Compute
from algorithms.training.contrast import Anchors, Contrast
from algorithms.training.dropout import Masks
from algorithms.training.local import Local
from algorithms.training.loss import Loss
from algorithms.training.losses import Taken, losses_of
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

    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update in each lane; see `Trainer`."""
        train_mode(self._resident.module, local.statistics)
        trained = self._resident.trained(local)
        others = {e: stack for e, stack in self._resident.stacks.items() if e.name not in trained}
        constant = {e.name: stack for e, stack in others.items() if not e.is_parameter}
        fixed = {e.name: stack for e, stack in others.items() if e.is_parameter}
        steps = LocalSteps(local.arithmetic, trained, self._resident.slots, lr, *self._resident.beside)
        contrast = local.method.loss_term(self._resident.module, steps)
        # An attribute would be a circle: the trainer and its models would stay until a search for garbage.
        step = vmap(grad_and_value(self._loss), in_dims=(*[0] * 6, None, None))
        taken: list[Taken] = []
        for batch in stacked_batches(works):
            lanes = batch.lanes
            parameters = {name: stack[lanes] for name, stack in trained.items()}
            # Batch norm tracks its statistics in place. Under vmap it silently tracks nothing if the lanes of a buffer
            # are not neighbours in memory, so track in copies.
            tracked = {name: stack[lanes].clone() for name, stack in constant.items()}
            buffers = tracked | {name: stack[lanes] for name, stack in fixed.items()}
            masks = self._masks.draw(works[lanes], batch.size)
            anchors = () if contrast is None else contrast.anchors(lanes)
            stacked = (parameters, buffers, masks, batch.x, batch.y, anchors)
            gradients, values = step(*stacked, local.loss, contrast)
            for name, value in tracked.items():
                constant[name][lanes] = value
            steps([gradients[name] for name in parameters], lanes)
            taken.append((lanes, batch.labels, values.detach()))
        if contrast is not None:
            contrast.close()
        steps.finish(local.method.finish, [len(work.batches) for work in works])
        return losses_of(taken, len(works))

    def _loss(
        self,
        parameters: Tensors,
        buffers: Tensors,
        masks: Tensors,
        x: torch.Tensor,
        y: torch.Tensor,
        anchors: Anchors | tuple[()],
        loss: Loss,
        contrast: Contrast | None,
    ) -> object:
        with torch.autocast(self._resident.device.type, torch.bfloat16, enabled=self._autocast):
            mean = loss.mean(functional_call(self._resident.module, (parameters, buffers, masks), (x,)), y)
            return mean + contrast(anchors, {**buffers, **masks}, x) if contrast and anchors else mean
