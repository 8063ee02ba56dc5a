"""Gradients by hand for stacks of linear layers: each goes into the weights at once and is never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms.training.batches import mean_losses, stacked_batches
from algorithms.training.folding import FixedEntry, Folded, FoldedEntry, folded_arithmetic, has_hooks, leaves
from algorithms.training.local import Local
from algorithms.training.replay import launch_of
from algorithms.training.resident import Resident
from algorithms.training.steps import LocalSteps, Stacks
from algorithms.training.work import StackedBatch, Trainer, Work

Tensor = torch.Tensor

Activation = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]
"""Elementwise function in place, and the product of a gradient with its derivative, given the function's output."""

ACTIVATIONS: Mapping[type[nn.Module], Activation] = {
    nn.ReLU: (torch.relu_, lambda g, a: torch.ops.aten.threshold_backward(g, a, 0)),
    nn.Sigmoid: (torch.sigmoid_, torch.ops.aten.sigmoid_backward),
    nn.Tanh: (torch.tanh_, torch.ops.aten.tanh_backward),
}
IDENTITY: Activation = (lambda z: z, lambda g, a: g)

Layer = tuple[str, str | None, Activation]
"""Names of a weight and an optional bias, and the activation of a = activation(x W^T + b)."""


def layers_of(module: nn.Module) -> list[Layer] | None:
    """Read a module as a stack of linear layers with a flattened input; return None if it is anything else."""
    found: list[Layer] = []
    for name, layer in leaves(module):
        if has_hooks(layer):
            return None
        if type(layer) is nn.Linear:
            prefix = f"{name}." if name else ""
            found.append((f"{prefix}weight", None if layer.bias is None else f"{prefix}bias", IDENTITY))
        elif type(layer) in ACTIVATIONS and found and found[-1][2] is IDENTITY:
            found[-1] = (*found[-1][:2], ACTIVATIONS[type(layer)])
        elif not (type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1) and not found):
            return None
    every = [parameter for _, parameter in module.named_parameters(remove_duplicate=False)]
    plain = len({id(p) for p in every}) == len(every) and all(p.requires_grad and not p._backward_hooks for p in every)
    # The last layer gives the logits.
    return found if plain and found and found[-1][2] is IDENTITY else None


MATRICES = (torch.mm, torch.addmm, Tensor.addmm_)
STACKS = (torch.bmm, torch.baddbmm, Tensor.baddbmm_)
"""Products a b, c + a b, and c <- beta c + alpha a b. Matrix products start faster and serve a single lane."""


class Fused(Trainer):
    """Trainer of all lanes at once that compiles the arithmetic of a local step into the products of the backward pass.

    With delta the gradient of a layer's output and x its input, both of a lane's batch of n samples, and the step's
    terms a_i W + b_i V_i:

        W <- (1 - lr sum_i a_i) W - lr sum_i b_i V_i - lr / n delta^T x

    One product reads and writes W once. With momentum the same product goes into the velocity. All intermediate
    values are a few rows, so only weights move through memory.

    Args:
        resident: models.

    Raises:
        ValueError: the module is not a stack of linear layers.
    """

    execution = "fused"

    def __init__(self, resident: Resident) -> None:
        layers = layers_of(resident.module)
        if layers is None:
            raise ValueError("the module is not a stack of linear layers")
        super().__init__(resident)
        self._layers = layers
        self._inputs = resident.sample.numel()
        self._classes = torch.arange(resident.parameters[layers[-1][0]].shape[0], device=resident.device)
        self._constants: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._launch = launch_of(resident)

    @torch.no_grad()
    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one client update in each lane; see `Trainer`."""
        trained, reused = self._resident.trained(local), self._launch.begin(local)
        steps = LocalSteps(local.arithmetic, trained, self._resident.slots, lr, reused=reused)
        folded = folded_arithmetic(steps)
        stacks = {entry.name: stack for entry, stack in self._resident.stacks.items()}
        bound: dict[tuple[int, int], list[BoundLayer]] = {}
        taken: list[StackedBatch] = []
        logits: list[Tensor] = []
        for batch in stacked_batches(works):
            key = batch.lanes.start, batch.lanes.stop
            if key not in bound:
                bound[key] = [_bound(layer, steps, folded, batch.lanes, stacks) for layer in self._layers]
            taken.append(batch)
            step = partial(self._step, bound[key], batch.count, batch.size)
            logits.append(self._launch(lr, step, (batch.x, batch.y), batch))
        steps.finish(local.method.finish, [len(work.batches) for work in works])
        return losses_by_lane(taken, logits, len(works))

    def _step(self, layers: Sequence[BoundLayer], k: int, n: int, x: Tensor, y: Tensor) -> Tensor:
        """Train on one batch a lane, of k lanes and n samples; return the logits, [k n, classes]."""
        lead = () if k == 1 else (k,)
        ones, minus = self._ones(k, n)
        product, plus, into = MATRICES if k == 1 else STACKS
        values = [x.view(*lead, n, self._inputs)]
        for weight, bias, (activate, _) in layers:
            a = values[-1]
            z = product(a, weight.transposed) if bias is None else plus(bias.w, a, weight.transposed)
            values.append(activate(z))
        logits = values.pop()
        delta, labels = logits.softmax(-1), y.view(*lead, n, 1)
        if delta.is_cuda:  # a deterministic scatter takes more than ten kernels
            delta.sub_((labels == self._classes).to(delta))
        else:
            delta.scatter_add_(-1, labels, minus)
        for i in range(len(layers) - 1, -1, -1):
            (weight, bias, _), a, above = layers[i], values[i], delta
            if i:
                # Read the weights of the forward pass before they change.
                delta = layers[i - 1][2][1](product(above, weight.w), a)
            weight.fold(into, above.mT, a, n)
            if bias is not None:
                bias.fold(into, ones, above, n)
        return logits.view(-1, logits.shape[-1])

    def _ones(self, k: int, n: int) -> tuple[Tensor, Tensor]:
        """Return a row of 1, which sums a batch, and a column of -1, added to the true classes' probabilities."""
        if (k, n) not in self._constants:
            lead = () if k == 1 else (k,)
            one = torch.ones((), dtype=self._resident.floating, device=self._resident.device)
            self._constants[k, n] = one.expand(*lead, 1, n), (-one).expand(*lead, n, 1)
        return self._constants[k, n]


BoundLayer = tuple[FixedEntry, FixedEntry | None, Activation]
"""A layer bound to the entries of some lanes, once for many steps."""


def _bound(layer: Layer, steps: LocalSteps, folded: Folded, lanes: slice, stacks: Stacks) -> BoundLayer:
    def entry(name: str) -> FixedEntry:
        trains = name in steps.weights
        return FoldedEntry(steps, folded, name, lanes) if trains else FixedEntry(stacks[name], lanes)

    weight, bias, activation = layer
    return entry(weight), None if bias is None else entry(bias), activation


def losses_by_lane(taken: Sequence[StackedBatch], logits: Sequence[Tensor], lanes: int) -> NDArray[np.float64]:
    """Return each lane's mean loss, from the logits of all steps at once."""
    if not taken:
        return mean_losses([], np.empty(0), np.empty(0), lanes)
    labels = torch.cat([batch.y.view(-1) for batch in taken])
    each = cross_entropy(torch.cat(list(logits)), labels, reduction="none").double().cpu().numpy()
    sizes = [batch.size for batch in taken for _ in range(batch.count)]
    starts = np.cumsum([0, *sizes[:-1]])
    owners = [lane for batch in taken for lane in range(batch.lanes.start, batch.lanes.stop)]
    return mean_losses(owners, np.add.reduceat(each, starts) / sizes, np.array(sizes), lanes)
