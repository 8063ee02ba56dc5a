"""Normalisers: what stands in the place of a model's batch-norm layers, found by their type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias, get_args

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from algorithms.engine.batch_norm import is_batch_norm
from raysim.common.errors import InputError
from raysim.models.checks import positive
from raysim.models.fixup import fixup
from raysim.models.renorm import BatchRenorm, Opening
from raysim.models.standardise import standardising

Norm: TypeAlias = Literal["none", "batch", "group", "layer", "instance", "group+ws", "batch-renorm", "fixup"]

NORMS: tuple[str, ...] = get_args(Norm)

OPENING = ("renorm_r_max", "renorm_d_max", "renorm_start", "renorm_r_end", "renorm_d_end")

KEYS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "batch": ("norm_momentum", "norm_eps"),
    "group": ("groups", "norm_eps"),
    "layer": ("norm_eps",),
    "instance": ("norm_eps",),
    "group+ws": ("groups", "norm_eps"),
    "batch-renorm": ("norm_momentum", "norm_eps", *OPENING),
    "fixup": (),
}
"""The keys of `[model]` that each normaliser has."""

GROUPS = 8
"""How many groups there are where nobody says."""


def check_keys(norm: str, given: Mapping[str, object]) -> None:
    """Refuse a key that a normaliser does not have.

    Args:
        norm: a known one.
        given: the keys with their values; None is not given.

    Raises:
        InputError: the first such key, and those that it has.
    """
    for key, value in given.items():
        if value is not None and key not in KEYS[norm]:
            takers = " or ".join(f'"{each}"' for each in NORMS if key in KEYS[each])
            raise InputError(
                f"{key} = {value} with norm {norm!r}, which has {' and '.join(KEYS[norm]) or 'no keys'}: must stand "
                f"with norm {takers}; leave it out"
            )


@dataclass(frozen=True)
class Normaliser:
    """A normaliser and its numbers.

    - none: nothing.
    - batch: BatchNorm as the model has it.
    - group: GroupNorm; layer: GroupNorm of one group, a sample's channels and places together; instance: GroupNorm of
      a group a channel. Scale and shift are by channel.
    - group+ws: GroupNorm, and the weights of each convolution before it standardised (`raysim.models.standardise`).
    - batch-renorm: `raysim.models.renorm`.
    - fixup: residual networks without normalisation: `raysim.models.fixup`.

    Args:
        norm: one of these.
        groups: of GroupNorm.
        momentum: of running statistics; None for the model's own, torch's default being 0.1.
        eps: added to variances; None for the model's own, torch's default being 1e-5.
        opening: how batch renormalisation opens.

    Raises:
        InputError: the norm is not known, or a number is out of its range, or the norm has no such number.
    """

    norm: str
    groups: int | None = None
    momentum: float | None = None
    eps: float | None = None
    opening: Opening = Opening()

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise InputError(f"norm {self.norm!r} is not known: choose one of {', '.join(NORMS)}")
        check_keys(self.norm, {"groups": self.groups, "norm_momentum": self.momentum, "norm_eps": self.eps})
        for name, value, most in (("norm_momentum", self.momentum, 1.0), ("norm_eps", self.eps, inf)):
            if value is not None and not 0 < value <= most:
                raise InputError(f"{name} is {value}, but must be above 0 and at most {most}: leave it out")


def normalise(norm: str, channels: int, *, spatial: bool) -> list[nn.Module]:
    """The layers, none or one, that a model's builder puts behind a layer of so many outputs.

    Args:
        norm: "none" or "batch", which is what others are made of: see `converted`.
        channels: outputs of the layer before.
        spatial: True behind a convolution, [n, channels, height, width]; False behind a linear layer.
    """
    if norm == "none":
        return []
    return [nn.BatchNorm2d(channels) if spatial else nn.BatchNorm1d(channels)]


def converted(module: nn.Module, normaliser: Normaliser, shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """The module with another normaliser instead of its batch-norm layers: wherever they stand, subclasses too.

    Entries keep their names, and scale and shift their values.

    Args:
        module: is changed, and returned, unless it is itself a batch-norm layer.
        normaliser: instead.
        shape: of one sample.
        seed: keys what Fixup draws; the others draw nothing.

    Raises:
        InputError: the module has no batch-norm layer, or the normaliser makes no sense for one.
    """
    norm, layers = normaliser.norm, {m: name for name, m in module.named_modules() if is_batch_norm(m)}
    if not layers and norm != "none":
        raise InputError(
            f"norm {norm!r} has no layer to put it behind: the model has no batch-norm layer that it could replace; "
            'choose norm = "none", or another model, such as "mlp" or "cnn"'
        )
    if norm == "fixup":
        fixup(module, shape, seed)
        return module
    if norm == "batch":
        for layer in layers:
            layer.momentum = layer.momentum if normaliser.momentum is None else normaliser.momentum
            layer.eps = layer.eps if normaliser.eps is None else normaliser.eps
        return module
    seen = _seen(module, shape) if layers and norm in GROUPED else {}
    made: dict[nn.Module, nn.Module] = {
        layer: MAKERS[norm](normaliser, layer, seen.get(layer) or Seen(name, 1 + (not _is_flat(layer)), None))
        for layer, name in layers.items()
    }
    if norm == "group+ws":
        made |= _standardised(module, seen)
    return _replaced(module, made)


@dataclass(frozen=True)
class Seen:
    """Where a batch-norm layer stands: its name, values a channel and sample, the convolution whose output it has."""

    name: str
    places: int
    behind: _ConvNd | None


def _is_flat(layer: _BatchNorm) -> bool:
    return isinstance(layer, nn.BatchNorm1d)


@torch.no_grad()
def _seen(module: nn.Module, shape: tuple[int, ...]) -> dict[nn.Module, Seen]:
    """Where the batch-norm layers stand, told by two samples that pass through the module in evaluation."""
    found: dict[nn.Module, Seen] = {}
    outputs: list[tuple[torch.Tensor, _ConvNd]] = []
    names = {layer: name for name, layer in module.named_modules()}

    def leave(layer: nn.Module, _: object, output: torch.Tensor) -> None:
        if isinstance(layer, _ConvNd):
            outputs.append((output, layer))

    def enter(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        x = inputs[0]
        behind = next((conv for output, conv in outputs if output is x), None)
        found[layer] = Seen(names[layer], x.numel() // (x.shape[0] * x.shape[1]), behind)

    hooks = [layer.register_forward_hook(leave) for layer in names if isinstance(layer, _ConvNd)]
    hooks += [layer.register_forward_pre_hook(enter) for layer in names if is_batch_norm(layer)]
    training = module.training
    try:
        module.eval()(torch.zeros(2, *shape))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return found


def _replaced(module: nn.Module, made: Mapping[nn.Module, nn.Module]) -> nn.Module:
    for parent in list(module.modules()):
        for name, layer in parent._modules.items():
            if layer is not None and layer in made:
                parent._modules[name] = made[layer]
    return made.get(module, module)


def _none(normaliser: Normaliser, layer: _BatchNorm, seen: Seen) -> nn.Module:
    return nn.Identity()


def _group(normaliser: Normaliser, layer: _BatchNorm, seen: Seen) -> nn.Module:
    groups = positive("groups", GROUPS if normaliser.groups is None else normaliser.groups)
    _check_groups(groups, layer.num_features, spatial=seen.places > 1)
    return _grouped(normaliser, layer, groups)


def _layer(normaliser: Normaliser, layer: _BatchNorm, seen: Seen) -> nn.Module:
    if layer.num_features * seen.places < 2:
        raise _dead(normaliser, seen)
    return _grouped(normaliser, layer, 1)


def _instance(normaliser: Normaliser, layer: _BatchNorm, seen: Seen) -> nn.Module:
    if seen.places < 2:
        raise _dead(normaliser, seen)
    return _grouped(normaliser, layer, layer.num_features)


def _dead(normaliser: Normaliser, seen: Seen) -> InputError:
    # The normalised value would always be 0.
    return InputError(
        f"norm {normaliser.norm!r} over model layer {seen.name or 'itself'} would have one value at a time: must be "
        'two or more, which no linear layer and no 1x1 map has a channel; choose norm = "batch" or "group"'
    )


def _grouped(normaliser: Normaliser, layer: _BatchNorm, groups: int) -> nn.Module:
    eps = layer.eps if normaliser.eps is None else normaliser.eps
    made = nn.GroupNorm(groups, layer.num_features, eps, layer.affine)
    made.weight, made.bias = layer.weight, layer.bias
    return made


def _renorm(normaliser: Normaliser, layer: _BatchNorm, seen: Seen) -> nn.Module:
    momentum = layer.momentum if normaliser.momentum is None else normaliser.momentum
    eps = layer.eps if normaliser.eps is None else normaliser.eps
    tracks = layer.running_mean is not None
    made = BatchRenorm(layer.num_features, eps, momentum, layer.affine, tracks, normaliser.opening)
    made._parameters.update(layer._parameters)
    made._buffers.update(layer._buffers)
    return made


Maker: TypeAlias = Callable[[Normaliser, _BatchNorm, Seen], nn.Module]

GROUPED: Mapping[str, Maker] = {"group": _group, "layer": _layer, "instance": _instance, "group+ws": _group}

MAKERS: Mapping[str, Maker] = {**GROUPED, "none": _none, "batch-renorm": _renorm}


def _standardised(module: nn.Module, seen: Mapping[nn.Module, Seen]) -> dict[nn.Module, nn.Module]:
    names = {layer: name for name, layer in module.named_modules()}
    before = dict.fromkeys(each.behind for each in seen.values() if each.behind is not None)
    if not before:
        raise InputError(
            "norm 'group+ws' on a model without convolutions before its normalisation: must have one, whose weights "
            'are standardised; choose norm = "group"'
        )
    return {conv: standardising(conv, names[conv]) for conv in before}


def _check_groups(groups: int, channels: int, *, spatial: bool) -> None:
    # A group of one value has no spread: its normalised value is always 0, and the layer is dead.
    most = channels if spatial else channels // 2
    allowed = [g for g in range(1, most + 1) if channels % g == 0]
    if groups not in allowed:
        size = "" if spatial else " of at least 2"
        remedy = f"choose one of {', '.join(map(str, allowed))}" if allowed else "choose a wider layer"
        raise InputError(
            f"groups is {groups}, which does not cut {channels} channels into equal groups{size}: {remedy}"
        )
