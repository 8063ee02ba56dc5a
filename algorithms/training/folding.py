"""Local steps folded into the backward pass: a gradient goes into the weights at once and is never stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

from algorithms.training.local import Local
from algorithms.training.steps import LocalSteps, MomentumDirection, Stacks

Tensor = torch.Tensor

LEAST_VALUES = 2**16
"""Smallest number of a weight's values for which folding pays off: a smaller gradient stays in the cache."""

KNOWN = ("torch", "algorithms", "raysim")
"""Packages whose layers leave the backward pass to the trainer."""

Folded = tuple[float, float, float, Stacks]
"""Arithmetic compiled for folding: momentum, and a, b and V of its affine terms a W + b V together."""


def folded_arithmetic(steps: LocalSteps) -> Folded:
    """Compile the arithmetic of local steps; add up several constants, once a client update."""
    arithmetic = steps.arithmetic
    if not (arithmetic.is_foldable and isinstance(arithmetic.direction, MomentumDirection)):
        raise ValueError(f"{arithmetic} cannot be folded")
    a = sum(term.a for term in arithmetic.affine)
    constants = [(term.b, steps.stacks(term.v)) for term in arithmetic.affine if term.v is not None]
    b, v = constants[0] if constants else (0.0, {})
    for other, stacks in constants[1:]:
        b, v = 1.0, {name: b * stack + other * stacks[name] for name, stack in v.items()}
    return arithmetic.direction.beta, a, b, v


class FixedEntry:
    """Entry of some lanes that does not train, as a matrix or a stack of matrices.

    Args:
        stack: values of all lanes.
        lanes: lanes that take the steps together.
    """

    def __init__(self, stack: Tensor, lanes: slice) -> None:
        self.w = _matrices(stack)[lanes.start if lanes.stop - lanes.start == 1 else lanes]
        self.transposed = self.w.mT

    def fold(self, into: Callable[..., Tensor], left: Tensor, right: Tensor, n: int) -> None:
        """Take no step."""


class FoldedEntry(FixedEntry):
    """Entry of some lanes that takes its local steps without a stored gradient.

    Args:
        steps: weights and slots.
        folded: compiled arithmetic.
        name: entry.
        lanes: lanes that take the steps together.
    """

    def __init__(self, steps: LocalSteps, folded: Folded, name: str, lanes: slice) -> None:
        super().__init__(steps.weights[name], lanes)
        self._steps, (self._momentum, self._a, self._b, constant) = steps, folded
        at = lanes.start if lanes.stop - lanes.start == 1 else lanes
        self._v = _matrices(constant[name])[at] if constant else None
        self._u = _matrices(steps.stacks("momentum")[name])[at] if self._momentum else None

    def fold(self, into: Callable[..., Tensor], left: Tensor, right: Tensor, n: int) -> None:
        """Take a step along left right / n, with n the length of what the product sums."""
        w, u, v, lr = self.w, self._u, self._v, self._steps.lr
        if u is None:
            into(w, left, right, beta=1 - lr * self._a, alpha=-lr / n)
            if v is not None:
                w.add_(v, alpha=-lr * self._b)
            return
        into(u, left, right, beta=self._momentum, alpha=1 / n)
        if self._a:
            u.add_(w, alpha=self._a)
        if v is not None:
            u.add_(v, alpha=self._b)
        w.sub_(u, alpha=lr)


def _matrices(stack: Tensor) -> Tensor:
    """Return a stack of weights unchanged, [lanes, out, in]; a stack of biases as [lanes, 1, out]."""
    return stack if stack.dim() == 3 else stack.unsqueeze(1)


def is_known(part: object) -> bool:
    """Return whether a layer, a loss, a method or a term is of PyTorch or raysim; others may do anything in a step."""
    return type(part).__module__.partition(".")[0] in KNOWN


def channels_last(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """Hook: lay out the images [n, channels, height, width] of a pass with their channels last in memory."""
    (x,) = inputs
    channels, height, width = x.shape[1:]
    # The values of one channel lie alike in both formats: the strides alone tell the layers which it is.
    strides = channels * height * width, 1, channels * width, channels
    return (x.contiguous(memory_format=torch.channels_last).as_strided(x.shape, strides),)


def has_hooks(layer: nn.Module) -> bool:
    """Return whether hooks may change the layer, as weight normalisation does; `channels_last` changes no value."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return any(hook is not channels_last for each in hooks for hook in each.values())


def leaves(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of nested sequences in order; a layer used twice comes twice."""
    if type(module) is not nn.Sequential or has_hooks(module):
        yield prefix, module
        return
    for name, child in module._modules.items():
        if child is not None:
            yield from leaves(child, f"{prefix}.{name}" if prefix else name)


class FoldedLayers:
    """Large linear layers of a model that can take their local steps in the backward pass of autograd.

        W <- (1 - lr sum_i a_i) W - lr sum_i b_i V_i - lr delta^T x

    with delta the gradient of the layer's output, x its input, and a_i W + b_i V_i the terms of the step. They are the
    linear layers of at least 2^16 weights in a sequence of PyTorch's and raysim's own layers; a pass calls them once,
    and nothing else reads their parameters.

    Args:
        module: model.
    """

    def __init__(self, module: nn.Module) -> None:
        stack = list(leaves(module))
        readers = Counter(id(each) for _, each in module.named_parameters(remove_duplicate=False))
        calls = Counter(id(layer) for _, layer in stack)
        self._layers: dict[str, nn.Linear] = {}
        for name, layer in stack if all(is_known(layer) for _, layer in stack) else ():
            if type(layer) is not nn.Linear or layer.weight.numel() < LEAST_VALUES or has_hooks(layer):
                continue
            alone = all(readers[id(each)] == 1 and not each._backward_hooks for each in layer.parameters())
            if name and alone and calls[id(layer)] == 1:
                self._layers[name] = layer

    def chosen(self, local: Local, trained: Stacks) -> dict[str, nn.Linear]:
        """Return the layers that fold the steps of client updates, by name.

        Args:
            local: content of a client update.
            trained: stacks of the parameters that it trains, by name.
        """
        if not local.arithmetic.is_foldable or local.method.overrides("loss_term"):
            return {}
        return {name: layer for name, layer in self._layers.items() if f"{name}.weight" in trained}


def parameters_of(layers: Mapping[str, nn.Linear]) -> frozenset[str]:
    """Return the names of some layers' parameters."""
    return frozenset(f"{name}.{each}" for name, layer in layers.items() for each, _ in layer.named_parameters())


@contextmanager
def folding(layers: Mapping[str, nn.Linear], steps: LocalSteps) -> Iterator[list[Tensor]]:
    """Let layers take the steps of lane 0 in their backward pass; yield tensors that the pass must reach for it.

    Args:
        layers: layers, by name.
        steps: weights and slots; the layers' parameters are `apart`.
    """
    anchors = [layer.weight.new_zeros(()).requires_grad_() for layer in layers.values()]
    try:
        for (name, layer), anchor in zip(layers.items(), anchors, strict=True):
            vars(layer)["forward"] = _bound(name, layer, steps, anchor)
        yield anchors
    finally:
        for layer in layers.values():
            vars(layer).pop("forward", None)


def _bound(name: str, layer: nn.Linear, steps: LocalSteps, anchor: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function in place of the layer's `forward`."""
    folded, lane = folded_arithmetic(steps), slice(0, 1)
    weight = FoldedEntry(steps, folded, f"{name}.weight", lane)
    bias: FixedEntry | None = None
    if f"{name}.bias" in steps.weights:
        bias = FoldedEntry(steps, folded, f"{name}.bias", lane)
    elif layer.bias is not None:
        bias = FixedEntry(layer.bias.detach().unsqueeze(0), lane)

    def forward(x: Tensor) -> Tensor:
        y: Tensor = _FoldedLinear.apply(x, anchor, weight, bias)
        return y

    return forward


class _FoldedLinear(torch.autograd.Function):
    """y = x W^T + b, whose backward pass takes the step of W and b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, weight: FixedEntry, bias: FixedEntry | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.entries = weight, bias
        return linear(x, weight.w, None if bias is None else bias.w[0])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (x,), (weight, bias) = ctx.saved_tensors, ctx.entries
        # Under autocast the inputs and gradients are in bfloat16, and the weights are not.
        above, rows = (each.reshape(-1, each.shape[-1]).to(weight.w.dtype) for each in (*gradients, x))
        # Read the weights of the forward pass before they change.
        below = above.mm(weight.w).view(x.shape).to(x.dtype) if ctx.needs_input_grad[0] else None
        weight.fold(Tensor.addmm_, above.mT, rows, 1)
        if bias is not None:
            bias.fold(Tensor.addmm_, above.new_ones(1, len(above)), above, 1)
        return below, None, None, None
