"""Smaller models inside a model: the first channels of each layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import nn

from algorithms.core.errors import InputError
from algorithms.training.dropout import ClassMask, KeyedDropout, OrderedDropout

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers whose channels are cut."""

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
"""Layers that have the channels of their input."""

ALLOWED = "Linear, Conv1d, Conv2d, Conv3d without groups, BatchNorm1d, BatchNorm2d or BatchNorm3d"

Layer = Any
"""One of `LAYERS`, or a batch-norm layer."""


def channels(rate: float, count: int) -> int:
    """Return the number of channels that a level keeps: ceil(rate count), at least 1."""
    return max(1, ceil(round(rate * count, 9)))


@dataclass(frozen=True)
class Slice:
    """Part of a model: the first channels of each layer; the first layer's input and the last one's output are whole.

    Args:
        rate: share of the channels, in (0, 1].
        scales: whether hidden layers divide their output by the rate in training (HeteroFL's scaler).
        widths: shares of the whole model's channels, at most `rate`, of which each step of training draws one and drops
            the other channels (ordered dropout); none to train all.
        masks: whether the outputs of classes that a client has no sample of are 0 in training (HeteroFL's masked loss).
    """

    rate: float
    scales: bool = False
    widths: tuple[float, ...] = ()
    masks: bool = False

    @property
    def changes_training(self) -> bool:
        """Whether training differs from that of a plain module of the same size."""
        return len(self.widths) > 1 or (self.scales and self.rate < 1) or self.masks

    @property
    def is_whole(self) -> bool:
        """Whether it is the model itself."""
        return self.rate == 1 and not self.changes_training

    def of(self, module: nn.Module, sample: torch.Tensor) -> tuple[nn.Module, float]:
        """Return the smaller model as a module of its own, and its FLOPs for one sample.

        A multiplication and an addition count as two; only linear layers and convolutions count, forward.

        Args:
            module: model; left unchanged.
            sample: one sample, [*shape]; its values do not matter.

        Raises:
            InputError: the model has a layer of another kind, or calls one twice.
            RuntimeError: a layer does not fit the channels of the one before it.
        """
        made, x = deepcopy(module).eval(), _ramp(sample)
        layers, flops = _cut_layers(made), dict[str, float]()
        order = _called(made, layers, x)
        *hidden, last = [name for name in order if isinstance(layers[name], LAYERS)]
        counts = {name: getattr(layer, "num_features", None) or layer.weight.shape[0] for name, layer in layers.items()}
        cut = partial(self._cut, last=last)
        with _hooked(layers, cut, before=True), _hooked(layers, partial(_count, flops), before=False):
            made(x)
        for name in order[: order.index(last)]:
            if len(self.widths) > 1:
                _mask(layers[name], OrderedDropout(tuple(channels(width, counts[name]) for width in self.widths)))
            elif self.scales and self.rate < 1 and name in hidden:
                layers[name].register_forward_hook(partial(_scaled, self.rate))
        if self.masks:
            _mask(layers[last], ClassMask())
        return made.train(module.training), sum(flops.values())

    def check(self, module: nn.Module, sample: torch.Tensor) -> None:
        """Compare the smaller model with the whole one that has 0 in place of everything else.

        Raises:
            InputError: as `of`; or the two differ, because channels do not pass from layer to layer one by one.
        """
        try:
            made, whole, x = self.of(module, sample)[0].eval(), deepcopy(module).eval(), _ramp(sample)
            kept = made.state_dict()
            with torch.no_grad():
                for name, tensor in whole.state_dict().items():
                    part = tuple(slice(size) for size in kept[name].shape)
                    values = tensor[part].clone()
                    tensor.zero_()[part] = values
                fits = torch.allclose(made(x), whole(x), rtol=1e-4, atol=1e-5)
        except RuntimeError:  # layers raise it if shapes do not fit
            fits = False
        if not fits:
            raise InputError(
                f"model: must have layers whose first channels are a model of their own at level {self.rate:g}, and "
                "channels do not pass from layer to layer one by one; choose another model, such as mlp or cnn"
            )

    def _cut(self, name: str, layer: Layer, inputs: tuple[torch.Tensor, ...], last: str) -> None:
        """Cut a layer's channels to those of its input, and to the level."""
        (x,), keeps = inputs, isinstance(layer, LAYERS)
        columns = x.shape[-1 if isinstance(layer, nn.Linear) else 1]
        rows = columns if not keeps else len(layer.weight) if name == last else channels(self.rate, len(layer.weight))
        for tensor in (*layer._parameters.values(), *layer._buffers.values()):
            if tensor is not None and tensor.dim():
                part = tensor.data[:rows, :columns] if keeps and tensor.dim() > 1 else tensor.data[:rows]
                tensor.data = part.clone()
        sizes = {"in_features": columns, "out_features": rows, "in_channels": columns, "out_channels": rows}
        for key, size in {**sizes, "num_features": rows}.items():
            if hasattr(layer, key):
                setattr(layer, key, size)


def _ramp(sample: torch.Tensor) -> torch.Tensor:
    """Return a batch of two samples, as batch norm without statistics needs; no two values are equal."""
    return torch.linspace(-1, 1, 2 * sample.numel()).to(sample).reshape(2, *sample.shape)


def _mask(layer: Layer, mask: KeyedDropout) -> None:
    """Let a mask follow a layer."""
    layer.masked = mask
    layer.register_forward_hook(_masked)


def _masked(layer: Layer, _: object, y: torch.Tensor) -> torch.Tensor:
    masked: torch.Tensor = layer.masked(y)
    return masked


def _scaled(rate: float, layer: nn.Module, _: object, y: torch.Tensor) -> torch.Tensor:
    return y / rate if layer.training else y


def _count(flops: dict[str, float], name: str, layer: Layer, y: torch.Tensor) -> None:
    if isinstance(layer, LAYERS):
        flops[name] = 2.0 * y[0].numel() * layer.weight[0].numel()


def _cut_layers(module: nn.Module) -> dict[str, Layer]:
    """Return the layers with entries by name; raise InputError for one that cannot be cut."""
    found = {}
    for name, layer in module.named_modules():
        stored = [key for key in layer._buffers if key not in layer._non_persistent_buffers_set]
        if not layer._parameters and not stored:
            continue
        if type(layer) not in (*LAYERS, *NORMS) or getattr(layer, "groups", 1) != 1:
            raise InputError(f"model layer {name} = {type(layer).__name__}: must be {ALLOWED}; choose another model")
        found[name] = layer
    return found


@torch.no_grad()
def _called(module: nn.Module, layers: dict[str, Layer], x: torch.Tensor) -> list[str]:
    """Return the layers in the order of their calls."""
    called: list[str] = []
    with _hooked(layers, lambda name, layer, y: called.append(name), before=False):
        module(x)
    if sorted(called) != sorted(layers) or not any(isinstance(layer, LAYERS) for layer in layers.values()):
        raise InputError("model: must call each layer once in a pass, to be cut to a level; choose another model")
    return called


@contextmanager
def _hooked(layers: dict[str, Layer], call: Callable[..., object], *, before: bool) -> Iterator[None]:
    """Call a function of name, layer and inputs before each layer, or of its output behind it, without gradients."""

    def hook(name: str, layer: Layer, *given: Any) -> None:
        call(name, layer, given[-1])

    handles = [
        (layer.register_forward_pre_hook if before else layer.register_forward_hook)(partial(hook, name))
        for name, layer in layers.items()
    ]
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()
