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
from algorithms.training.steps import Step, Work, mean_losses, steps

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


@dataclass(frozen=True)
class Products:
    """Matrix products: a, b -> a b; c, a, b -> c + a b; and c <- beta c + alpha a b."""

    product: Callable[[Tensor, Tensor], Tensor]
    plus: Callable[[Tensor, Tensor, Tensor], Tensor]
    into: Callable[..., Tensor]


MATRICES = Products(torch.mm, torch.addmm, Tensor.addmm_)
STACKS = Products(torch.bmm, torch.baddbmm, Tensor.baddbmm_)
"""A single lane goes through the products of matrices, which take less time to begin than those of stacks."""


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
        self._stacks = {entry.name: _matrices(entry, stack) for entry, stack in resident.stacks.items()}
        self._heads: dict[tuple[int, int, int], Head] = {}

    @property
    def lanes(self) -> int:
        """How many visits are trained at once."""
        return self._resident.lanes

    @torch.no_grad()
    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one visit in each lane; see `Trainer`."""
        fold = Fold(local, self._stacks, lr)
        taken: list[Step] = []
        logits: list[Tensor] = []
        for step in steps(works):
            taken.append(step)
            logits.append(self._step(fold, step))
        return _losses(taken, logits, len(works))

    def _step(self, fold: Fold, step: Step) -> Tensor:
        """Train on one batch a lane; the logits, [k n, classes]."""
        head, views = self._head(step), fold.views(step.lanes)
        products, entries, transposed = views.products, views.entries, views.transposed
        values = [step.x.view(head.rows)]
        for layer in self._layers:
            if layer.bias is None:
                z = products.product(values[-1], transposed[layer.weight])
            else:
                z = products.plus(entries[layer.bias], values[-1], transposed[layer.weight])
            values.append(layer.activation.forward(z))
        logits = values.pop()
        delta = logits.softmax(-1).scatter_add_(-1, step.y.view(head.labels), head.minus)
        for i in reversed(range(len(self._layers))):
            layer, x = self._layers[i], values[i]
            # The gradient of the layer's input is taken with the weights that the forward pass saw.
            below = self._below(i, products.product(delta, entries[layer.weight]), x) if i else delta
            fold(views, layer.weight, delta.mT, x)
            if layer.bias is not None:
                fold(views, layer.bias, head.ones, delta)
            delta = below
        return logits.view(-1, logits.shape[-1])

    def _below(self, i: int, gradient: Tensor, output: Tensor) -> Tensor:
        """The gradient of the output of the layer below, before its activation."""
        return self._layers[i - 1].activation.backward(gradient, output)

    def _head(self, step: Step) -> Head:
        """The constants of a step's shape, made once."""
        k, n = step.y.shape
        key = k, n, step.x[0, 0].numel()
        if key not in self._heads:
            one = torch.ones((), dtype=step.x.dtype, device=step.x.device)
            lead = () if k == 1 else (k,)
            self._heads[key] = Head(
                (*lead, n, key[2]), (*lead, n, 1), one.expand(*lead, 1, n), (-one).expand(*lead, n, 1)
            )
        return self._heads[key]


@dataclass(frozen=True)
class Head:
    """What steps on batches of one size share: shapes and constants; a single lane has no dimension of its own.

    Args:
        rows: the shape of the inputs, flattened.
        labels: the shape of the labels, as a column.
        ones: a row of ones, which sums a batch.
        minus: a column of -1, which the true classes' probabilities lose.
    """

    rows: tuple[int, ...]
    labels: tuple[int, ...]
    ones: Tensor
    minus: Tensor


@dataclass(frozen=True)
class Views:
    """The entries of some lanes, as matrices or as stacks of them."""

    products: Products
    entries: Mapping[str, Tensor]
    transposed: Mapping[str, Tensor]
    received: Mapping[str, Tensor]
    velocity: Mapping[str, Tensor]


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
        self._views: dict[tuple[int, int], Views] = {}

    def __call__(self, views: Views, name: str, left: Tensor, right: Tensor) -> None:
        """Take a step on an entry along left right / n, n being the length of what they are summed over."""
        w, n = views.entries[name], left.shape[-1]
        if views.velocity:
            u = views.products.into(views.velocity[name], left, right, beta=self._momentum, alpha=1 / n)
            if self._shrink:
                u.add_(w, alpha=self._shrink)
            if views.received:
                u.sub_(views.received[name], alpha=self._proximal)
            w.sub_(u, alpha=self._lr)
            return
        views.products.into(w, left, right, beta=1 - self._lr * self._shrink, alpha=-self._lr / n)
        if views.received:
            w.add_(views.received[name], alpha=self._lr * self._proximal)

    def views(self, lanes: slice) -> Views:
        """The views on some lanes, made once: a visit has many steps and few kinds of them."""
        key = lanes.start, lanes.stop
        if key not in self._views:
            single = lanes.stop - lanes.start == 1
            where = lanes.start if single else lanes
            entries, received, velocity = (
                {name: stack[where] for name, stack in stacks.items()}
                for stacks in (self._stacks, self._received, self._velocity)
            )
            transposed = {name: entry.mT for name, entry in entries.items()}
            self._views[key] = Views(MATRICES if single else STACKS, entries, transposed, received, velocity)
        return self._views[key]


def _matrices(entry: Entry, stack: Tensor) -> Tensor:
    """A stack of weights as it is, [lanes, out, in]; one of biases as [lanes, 1, out]."""
    return stack if len(entry.shape) == 2 else stack.unsqueeze(1)


def _losses(taken: Sequence[Step], logits: Sequence[Tensor], lanes: int) -> NDArray[np.float64]:
    """Each lane's mean loss, of all steps at once."""
    if not taken:
        return mean_losses([], np.empty(0), lanes)
    labels = torch.cat([step.y.view(-1) for step in taken])
    each = cross_entropy(torch.cat(list(logits)), labels, reduction="none").double().cpu().numpy()
    sizes = [step.y.shape[1] for step in taken for _ in range(step.y.shape[0])]
    starts = np.cumsum([0, *sizes[:-1]])
    return mean_losses(taken, np.add.reduceat(each, starts) / sizes, lanes)
