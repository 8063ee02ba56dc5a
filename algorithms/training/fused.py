"""Stacks of linear layers, with gradients by hand: each goes into the weights as it arises and is never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms.engine.layout import Entry
from algorithms.engine.resident import Resident
from algorithms.parts.local import Local
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
        if _changed(layer):
            return None
        if type(layer) is nn.Linear:
            prefix = f"{name}." if name else ""
            bias = None if layer.bias is None else f"{prefix}bias"
            found.append(Layer(f"{prefix}weight", bias, IDENTITY))
        elif type(layer) in ACTIVATIONS and found and found[-1].activation is IDENTITY:
            found[-1] = Layer(found[-1].weight, found[-1].bias, ACTIVATIONS[type(layer)])
        elif not (type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1) and not found):
            return None
    every = [parameter for _, parameter in module.named_parameters(remove_duplicate=False)]
    plain = len({id(p) for p in every}) == len(every) and all(p.requires_grad for p in every)
    # The last layer gives the logits.
    return found if plain and found and found[-1].activation is IDENTITY else None


def _changed(layer: nn.Module) -> bool:
    """Whether something hooks into the layer, as weight normalisation does: then it is not what its type says."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)


def _leaves(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested sequences, in order; one that stands twice comes twice."""
    if type(module) is not nn.Sequential or _changed(module):
        yield prefix, module
        return
    for name, child in module._modules.items():
        if child is not None:
            yield from _leaves(child, f"{prefix}.{name}" if prefix else name)


class Products(NamedTuple):
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
        self._velocity = {
            entry.name: _matrices(entry, resident.slots["momentum"][entry.name])
            for entry in resident.stacks
            if "momentum" in resident.slots
        }
        self._inputs = resident.sample.numel()
        self._shapes: dict[tuple[int, int], Shape] = {}

    @property
    def lanes(self) -> int:
        """How many visits are trained at once."""
        return self._resident.lanes

    @torch.no_grad()
    def train(self, local: Local, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        """Make one visit in each lane; see `Trainer`."""
        fold = Fold(local, self._stacks, self._velocity, lr)
        bound: dict[tuple[int, int], list[Bound]] = {}
        taken: list[Step] = []
        logits: list[Tensor] = []
        for step in steps(works):
            key = step.lanes.start, step.lanes.stop
            if key not in bound:
                bound[key] = [self._bind(layer, fold, step.lanes) for layer in self._layers]
            taken.append(step)
            logits.append(self._step(bound[key], fold, step))
        return _losses(taken, logits, len(works))

    def _step(self, layers: Sequence[Bound], fold: Fold, step: Step) -> Tensor:
        """Train on one batch a lane; the logits, [k n, classes]."""
        k, n = step.count, step.size
        shape = self._shape(k, n)
        product, plus, into = MATRICES if k == 1 else STACKS
        values = [step.x.view(shape.inputs)]
        for layer in layers:
            if layer.bias is None:
                z = product(values[-1], layer.transposed)
            else:
                z = plus(layer.bias.w, values[-1], layer.transposed)
            values.append(layer.activation.forward(z))
        logits = values.pop()
        delta = logits.softmax(-1).scatter_add_(-1, step.y.view(shape.labels), shape.minus)
        for i in range(len(layers) - 1, -1, -1):
            layer, x, above = layers[i], values[i], delta
            if i:
                # With the weights that the forward pass saw: they change below.
                delta = layers[i - 1].activation.backward(product(above, layer.weight.w), x)
            fold(layer.weight, into, above.mT, x, n)
            if layer.bias is not None:
                fold(layer.bias, into, shape.ones, above, n)
        return logits.view(-1, logits.shape[-1])

    def _bind(self, layer: Layer, fold: Fold, lanes: slice) -> Bound:
        weight = fold.target(layer.weight, lanes)
        bias = None if layer.bias is None else fold.target(layer.bias, lanes)
        return Bound(weight, weight.w.mT, bias, layer.activation)

    def _shape(self, k: int, n: int) -> Shape:
        """What steps on k batches of n samples share, made once."""
        if (k, n) not in self._shapes:
            lead = () if k == 1 else (k,)
            one = torch.ones((), dtype=self._resident.floating, device=self._resident.device)
            self._shapes[k, n] = Shape(
                (*lead, n, self._inputs), (*lead, n, 1), one.expand(*lead, 1, n), (-one).expand(*lead, n, 1)
            )
        return self._shapes[k, n]


@dataclass(frozen=True)
class Shape:
    """What steps on batches of one size share; a single lane has no dimension of its own.

    Args:
        inputs: the shape of the inputs, flattened.
        labels: the shape of the labels, as a column.
        ones: a row of ones, whose product sums a batch.
        minus: a column of -1, which the true classes' probabilities lose.
    """

    inputs: tuple[int, ...]
    labels: tuple[int, ...]
    ones: Tensor
    minus: Tensor


class Target(NamedTuple):
    """An entry of some lanes, as a matrix or a stack of them: its values, those received, and its velocity."""

    w: Tensor
    received: Tensor | None
    velocity: Tensor | None


class Bound(NamedTuple):
    """A layer of some lanes, bound to its entries: a visit has many steps and few kinds of them."""

    weight: Target
    transposed: Tensor
    bias: Target | None
    activation: Activation


class Fold:
    """Folds a gradient, given as a product of two matrices, into the weights: `Update`, without the gradient.

    Args:
        local: the numbers.
        stacks: the entries as stacks of matrices, to be changed in place.
        velocity: theirs, where it goes on from visit to visit; nothing where it begins at 0.
        lr: this round's learning rate.
    """

    def __init__(self, local: Local, stacks: Mapping[str, Tensor], velocity: Mapping[str, Tensor], lr: float) -> None:
        self._lr, self._momentum, self._proximal = lr, local.momentum, local.proximal
        self._shrink = local.weight_decay + local.proximal
        self._stacks = stacks
        self._received = {name: w.clone() for name, w in stacks.items()} if local.proximal else {}
        self._velocity = velocity if local.momentum else {}
        if local.momentum and not velocity:
            self._velocity = {name: torch.zeros_like(w) for name, w in stacks.items()}

    def __call__(self, to: Target, into: Callable[..., Tensor], left: Tensor, right: Tensor, n: int) -> None:
        """Take a step on an entry along left right / n, n being the length of what they are summed over."""
        if to.velocity is not None:
            u = into(to.velocity, left, right, beta=self._momentum, alpha=1 / n)
            if self._shrink:
                u.add_(to.w, alpha=self._shrink)
            if to.received is not None:
                u.sub_(to.received, alpha=self._proximal)
            to.w.sub_(u, alpha=self._lr)
            return
        into(to.w, left, right, beta=1 - self._lr * self._shrink, alpha=-self._lr / n)
        if to.received is not None:
            to.w.add_(to.received, alpha=self._lr * self._proximal)

    def target(self, name: str, lanes: slice) -> Target:
        """An entry of some lanes."""
        where = lanes.start if lanes.stop - lanes.start == 1 else lanes
        received, velocity = (stacks[name][where] if stacks else None for stacks in (self._received, self._velocity))
        return Target(self._stacks[name][where], received, velocity)


def _matrices(entry: Entry, stack: Tensor) -> Tensor:
    """A stack of weights as it is, [lanes, out, in]; one of biases as [lanes, 1, out]."""
    return stack if len(entry.shape) == 2 else stack.unsqueeze(1)


def _losses(taken: Sequence[Step], logits: Sequence[Tensor], lanes: int) -> NDArray[np.float64]:
    """Each lane's mean loss, of all steps at once."""
    if not taken:
        return mean_losses([], np.empty(0), np.empty(0), lanes)
    labels = torch.cat([step.y.view(-1) for step in taken])
    each = cross_entropy(torch.cat(list(logits)), labels, reduction="none").double().cpu().numpy()
    sizes = [step.size for step in taken for _ in range(step.count)]
    starts = np.cumsum([0, *sizes[:-1]])
    owners = [lane for step in taken for lane in range(step.lanes.start, step.lanes.stop)]
    return mean_losses(owners, np.add.reduceat(each, starts) / sizes, np.array(sizes), lanes)
