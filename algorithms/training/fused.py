"""Stacks of linear layers, with gradients by hand: each goes into the weights as it arises and is never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms.layout import Entry
from algorithms.local import Local
from algorithms.resident import Resident
from algorithms.training.steps import Losses, Step, Work, steps

Tensor = torch.Tensor


@dataclass(frozen=True)
class Activation:
    """An elementwise function in place, and its derivative's product with a gradient, told by its output."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]


ACTIVATIONS: Mapping[type[nn.Module], Activation] = {
    nn.ReLU: Activation(torch.relu_, lambda g, a: torch.ops.aten.threshold_backward(g, a, 0)),
    nn.Sigmoid: Activation(torch.sigmoid_, torch.ops.aten.sigmoid_backward),
    nn.Tanh: Activation(torch.tanh_, torch.ops.aten.tanh_backward),
}
IDENTITY = Activation(lambda z: z, lambda g, a: g)


@dataclass(frozen=True)
class Layer:
    """a = activation(x W^T + b), the names of its entries."""

    weight: str
    bias: str | None
    activation: Activation


def layers_of(module: nn.Module) -> list[Layer] | None:
    """A module as a stack of linear layers, the input flattened; None where it is anything else."""
    found: list[Layer] = []
    for name, layer in _leaves(module):
        if type(layer) is nn.Linear:
            bias = None if layer.bias is None else f"{name}.bias"
            found.append(Layer(f"{name}.weight", bias, IDENTITY))
        elif type(layer) in ACTIVATIONS and found and found[-1].activation is IDENTITY:
            found[-1] = Layer(found[-1].weight, found[-1].bias, ACTIVATIONS[type(layer)])
        elif not (type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1) and not found):
            return None
    tied = len({id(p) for _, p in module.named_parameters(remove_duplicate=False)}) < sum(
        1 for _ in module.named_parameters(remove_duplicate=False)
    )
    # The last layer gives the logits.
    return None if tied or not found or found[-1].activation is not IDENTITY else found


def _leaves(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested sequences, in order."""
    if type(module) is not nn.Sequential:
        yield prefix, module
        return
    for name, child in module.named_children():
        yield from _leaves(child, f"{prefix}.{name}" if prefix else name)


class Fused:
    """Trains all lanes at once.

    With delta the gradient of a layer's output and x its input, both of a lane's batch of n samples:

        W <- (1 - lr (weight_decay + proximal)) W + lr proximal W_r - lr / n delta^T x

    in one product that reads and writes W once (with momentum the same product goes into the velocity). All
    intermediate values are a few rows; weights are all that moves through memory.

    Args:
        resident: the models.

    Raises:
        ValueError: the module is no stack of linear layers.
    """

    has_dropout = False

    def __init__(self, resident: Resident) -> None:
        layers = layers_of(resident.module)
        if layers is None:
            raise ValueError("the module is no stack of linear layers")
        self._resident = resident
        self._layers = layers

    @property
    def lanes(self) -> int:
        """How many visits are trained at once."""
        return self._resident.lanes

    @torch.no_grad()
    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one visit in each lane; see `Trainer`."""
        stacks = {entry.name: _matrices(entry, stack) for entry, stack in self._resident.stacks.items()}
        fold = Fold(local, stacks, lr)
        taken: list[tuple[Step, Tensor]] = []
        for step in steps(works):
            taken.append((step, self._step(fold, step)))
        return _losses(taken).means(len(works))

    def _step(self, fold: Fold, step: Step) -> Tensor:
        """Train on one batch a lane; the logits."""
        k, n = step.y.shape
        values = [step.x.reshape(k, n, -1)]
        entries = fold.lanes(step.lanes)
        for layer in self._layers:
            transposed = entries[layer.weight].transpose(1, 2)
            if layer.bias is None:
                z = torch.bmm(values[-1], transposed)
            else:
                z = torch.baddbmm(entries[layer.bias], values[-1], transposed)
            values.append(layer.activation.forward(z))
        logits = values.pop()
        delta = logits.softmax(2)
        delta.scatter_add_(2, step.y.unsqueeze(2), delta.new_full((1, 1, 1), -1.0).expand(k, n, 1))
        for i in reversed(range(len(self._layers))):
            layer, x = self._layers[i], values[i]
            # The gradient of the layer's input is taken with the weights that the forward pass saw.
            below = self._layers[i - 1].activation.backward(torch.bmm(delta, entries[layer.weight]), x) if i else None
            fold(layer.weight, step.lanes, delta.transpose(1, 2), x)
            if layer.bias is not None:
                fold(layer.bias, step.lanes, delta.new_ones(1, 1, n).expand(k, 1, n), delta)
            if below is not None:
                delta = below
        return logits


class Fold:
    """Folds a gradient, given as a product of two matrices, into the weights: `Update`, without the gradient.

    Args:
        local: the numbers.
        stacks: the entries as stacks of matrices, to be changed in place.
        lr: this round's learning rate.
    """

    def __init__(self, local: Local, stacks: Mapping[str, Tensor], lr: float) -> None:
        self._lr, self._momentum, self._proximal = lr, local.momentum, local.proximal
        self._shrink = local.weight_decay + local.proximal
        self._stacks = stacks
        self._received = {name: w.clone() for name, w in stacks.items()} if local.proximal else {}
        self._velocity = {name: torch.zeros_like(w) for name, w in stacks.items()} if local.momentum else {}
        self._views: dict[tuple[int, int], tuple[dict[str, Tensor], ...]] = {}

    def lanes(self, lanes: slice) -> dict[str, Tensor]:
        """The entries of some lanes."""
        return self._of(lanes)[0]

    def __call__(self, name: str, lanes: slice, left: Tensor, right: Tensor) -> None:
        """Take a step on an entry along left right / n, n being the length of what they are summed over."""
        entries, received, velocity = self._of(lanes)
        w, n = entries[name], left.shape[2]
        if velocity:
            u = velocity[name].baddbmm_(left, right, beta=self._momentum, alpha=1 / n)
            if self._shrink:
                u.add_(w, alpha=self._shrink)
            if received:
                u.sub_(received[name], alpha=self._proximal)
            w.sub_(u, alpha=self._lr)
            return
        w.baddbmm_(left, right, beta=1 - self._lr * self._shrink, alpha=-self._lr / n)
        if received:
            w.add_(received[name], alpha=self._lr * self._proximal)

    def _of(self, lanes: slice) -> tuple[dict[str, Tensor], ...]:
        """The views on some lanes, made once."""
        key = lanes.start, lanes.stop
        if key not in self._views:
            every = (self._stacks, self._received, self._velocity)
            self._views[key] = tuple({name: stack[lanes] for name, stack in stacks.items()} for stacks in every)
        return self._views[key]


def _matrices(entry: Entry, stack: Tensor) -> Tensor:
    """A stack of weights as it is, [lanes, out, in]; one of biases as [lanes, 1, out]."""
    return stack if len(entry.shape) == 2 else stack.unsqueeze(1)


def _losses(taken: Sequence[tuple[Step, Tensor]]) -> Losses:
    """The losses, of all steps at once."""
    losses = Losses()
    if taken:
        logits = torch.cat([logits.flatten(0, 1) for _, logits in taken])
        each = cross_entropy(logits, torch.cat([step.y.flatten() for step, _ in taken]), reduction="none")
        start = 0
        for step, _ in taken:
            losses.add(step, each[start : start + step.y.numel()].view(step.y.shape).mean(1))
            start += step.y.numel()
    return losses
