"""Client updates one after the other: any model, by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.core.batch_norm import train_mode
from algorithms.training.batches import Taken, losses_of, stacked_batches
from algorithms.training.dropout import Masks, draws
from algorithms.training.folding import FoldedLayers, folding, parameters_of
from algorithms.training.forked import forked
from algorithms.training.local import Compute, Local
from algorithms.training.resident import Resident
from algorithms.training.steps import LocalSteps
from algorithms.training.work import Trainer, Work


class Sequential(Trainer):
    """Trainer of one client update at a time, on the resident module's lane 0.

    Args:
        resident: model; its dropout layers are keyed.
        compute: precision, compilation.
    """

    def __init__(self, resident: Resident, compute: Compute) -> None:
        super().__init__(resident)
        self.lanes = 1
        self._masks = Masks(resident.module, resident.sample)
        self._draws = draws(resident.module, resident.sample)
        self.has_dropout = bool(self._masks.layers) or self._draws
        self._autocast = compute.precision == "bf16"
        self._folded = FoldedLayers(resident.module) if not compute.compile else None
        self._forward: Callable[[torch.Tensor], torch.Tensor] = resident.module
        if compute.compile:
            self._forward = torch.compile(resident.module)

    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update; see `Trainer`."""
        if not (self._draws and works and works[0].masks):
            return self._train(local, works, lr)
        # A user's layer may draw from the default generators: seed them by the client update's key.
        devices = [] if self._resident.device.type == "cpu" else [self._resident.device]
        with forked(works[0].masks.initial_seed(), devices):
            return self._train(local, works, lr)

    def _train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        resident, device = self._resident, self._resident.device.type
        train_mode(resident.module, local.statistics)
        trained = resident.trained(local)
        folded = {} if self._folded is None else self._folded.chosen(local, trained)
        apart = parameters_of(folded)
        parameters = [resident.parameters[name] for name in trained if name not in apart]
        steps = LocalSteps(local.arithmetic, trained, resident.slots, lr, *resident.beside, apart)
        contrast = local.method.checked_loss_term(resident.module, steps)
        taken: list[Taken] = []
        count = len(works[0].batches) if works else 0
        with folding(folded, steps) as anchors, nullcontext() if contrast is None else closing(contrast):
            for number, batch in enumerate(stacked_batches(works)):
                steps.lr = lr * local.factor(number, count)
                x = batch.x[0]
                for name, mask in self._masks.draw(works, len(x)).items():
                    self._masks.layers[name.removesuffix(".mask")].mask = mask[0]
                with torch.autocast(device, torch.bfloat16, enabled=self._autocast):
                    loss = local.loss.mean(self._forward(x), batch.y[0])
                    if contrast is not None:
                        loss = loss + contrast(contrast.anchors(0), dict(resident.module.named_buffers()), x)
                gradients = torch.autograd.grad(loss, [*parameters, *anchors], materialize_grads=True)
                if parameters:
                    steps([gradient.unsqueeze(0) for gradient in gradients[: len(parameters)]], batch.lanes)
                taken.append((batch.lanes, batch.labels, loss.detach().view(1)))
        steps.finish(local.method.finish, [len(work.batches) for work in works])
        return losses_of(taken, len(works))
