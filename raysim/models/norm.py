"""Normalisers: layers that take the place of a model's batch-norm layers, found by type."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from algorithms.core.batch_norm import is_batch_norm
from raysim.common.errors import InputError
from raysim.models.keys import GROUPS, Norm
from raysim.models.normalisers.fixup import fixup
from raysim.models.normalisers.modified_convolutions import pass_observed, standardised_convolution
from raysim.models.normalisers.renorm import BatchRenorm
from raysim.models.options import ModelOptions

GROUPED = ("group", "layer", "instance", "group+ws")
"""Normalisers made of `nn.GroupNorm`."""


def batch_norm(norm: Norm, channels: int, *, spatial: bool) -> nn.Module | None:
    """Return the batch norm behind a layer of a model under construction; None for "none".

    `converted` later puts another normaliser in the place of batch norm.

    Args:
        norm: normaliser asked for.
        channels: outputs of the layer before.
        spatial: True behind a convolution, [n, channels, height, width]; False behind a linear layer.
    """
    if norm == "none":
        return None
    return nn.BatchNorm2d(channels) if spatial else nn.BatchNorm1d(channels)


def converted(module: nn.Module, options: ModelOptions, shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """Return the module with its batch-norm layers replaced by another normaliser.

    Batch-norm layers are found anywhere in the module, subclasses included. Entries keep their names, and scale and
    shift their values.

    - none: no normalisation.
    - batch: the model's own BatchNorm.
    - group: GroupNorm, with scale and shift by channel.
    - layer: GroupNorm of one group, over all channels and places of a sample.
    - instance: GroupNorm with one group per channel.
    - group+ws: GroupNorm, and standardised weights of each convolution before it.
    - batch-renorm: batch renormalisation (`raysim.models.normalisers.renorm`).
    - fixup: a residual network without normalisation (`raysim.models.normalisers.fixup`).

    Args:
        module: model to change; the same object is returned, unless it is itself a batch-norm layer.
        options: the normaliser, one of these names, and its keys; None leaves the module as it is.
        shape: shape of one sample.
        seed: key of Fixup's initial weights; the others draw nothing.

    Raises:
        InputError: the module has no batch-norm layer, or the normaliser makes no sense for one.
    """
    norm, layers = options.norm, {m: name for name, m in module.named_modules() if is_batch_norm(m)}
    if norm is None:
        return module
    if not layers and norm != "none":
        raise InputError(
            f"model.norm = {norm!r} on a model without batch norm: must have a batch-norm layer to replace; set "
            'model.norm = "none", or another model, such as "mlp" or "cnn"'
        )
    if norm == "fixup":
        fixup(module, shape, seed)
        return module
    if norm == "batch":
        for layer in layers:
            layer.momentum, layer.eps = _momentum(options, layer), _eps(options, layer)
        return module
    places, convolutions = _trace(module, shape) if layers and norm in GROUPED else ({}, [])
    made: dict[nn.Module, nn.Module] = {
        layer: _replacement(options, layer, name, places.get(layer) or 1 + (not isinstance(layer, nn.BatchNorm1d)))
        for layer, name in layers.items()
    }
    if norm == "group+ws":
        if not convolutions:
            raise InputError(
                "model.norm = 'group+ws' on a model without convolutions before its batch norm: must have one to "
                'standardise; set model.norm = "group"'
            )
        names = {layer: name for name, layer in module.named_modules()}
        made |= {layer: standardised_convolution(layer, names[layer]) for layer in convolutions}
    return _replaced(module, made)


@torch.no_grad()
def _trace(module: nn.Module, shape: tuple[int, ...]) -> tuple[dict[nn.Module, int], list[_ConvNd]]:
    """Pass two samples through the module in evaluation.

    Returns:
        Values per channel and sample at each batch-norm layer, and the convolutions directly before one, in the order
        of the pass.
    """
    places: dict[nn.Module, int] = {}
    before: dict[nn.Module, _ConvNd | None] = {}
    outputs: list[tuple[torch.Tensor, _ConvNd]] = []

    def after_convolution(layer: nn.Module, _: object, output: torch.Tensor) -> None:
        if isinstance(layer, _ConvNd):
            outputs.append((output, layer))

    def before_norm(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        x = inputs[0]
        before[layer] = next((conv for output, conv in outputs if output is x), None)
        places[layer] = x.numel() // (x.shape[0] * x.shape[1])

    layers = list(module.modules())
    hooks = [layer.register_forward_hook(after_convolution) for layer in layers if isinstance(layer, _ConvNd)]
    hooks += [layer.register_forward_pre_hook(before_norm) for layer in layers if is_batch_norm(layer)]
    pass_observed(module, torch.zeros(2, *shape), hooks)
    return places, list(dict.fromkeys(layer for layer in before.values() if layer is not None))


def _replaced(module: nn.Module, made: Mapping[nn.Module, nn.Module]) -> nn.Module:
    for parent in list(module.modules()):
        for name, layer in parent._modules.items():
            if layer is not None and layer in made:
                parent._modules[name] = made[layer]
    return made.get(module, module)


def _replacement(options: ModelOptions, layer: _BatchNorm, name: str, places: int) -> nn.Module:
    """Return the layer that takes a batch-norm layer's place; `places`: values per channel and sample."""
    norm, channels, eps = options.norm, layer.num_features, _eps(options, layer)
    if norm == "none":
        return nn.Identity()
    if norm == "batch-renorm":
        tracks = layer.running_mean is not None
        renorm = BatchRenorm(channels, eps, _momentum(options, layer), layer.affine, tracks, options.limits)
        renorm._parameters.update(layer._parameters)
        renorm._buffers.update(layer._buffers)
        return renorm
    if norm in ("layer", "instance"):
        groups = 1 if norm == "layer" else channels
        if channels // groups * places < 2:
            # The normalised value would always be 0.
            raise InputError(
                f"model.norm = {norm!r} over model layer {name or 'itself'} would normalise one value at a time: must "
                'be two or more, and linear layers and 1x1 maps have one per channel; set model.norm = "batch"'
            )
    else:
        groups = GROUPS if options.groups is None else options.groups
        _check_groups(groups, channels, spatial=places > 1)
    group_norm = nn.GroupNorm(groups, channels, eps, layer.affine)
    group_norm.weight, group_norm.bias = layer.weight, layer.bias
    return group_norm


def _momentum(options: ModelOptions, layer: _BatchNorm) -> float | None:
    return layer.momentum if options.norm_momentum is None else options.norm_momentum


def _eps(options: ModelOptions, layer: _BatchNorm) -> float:
    return layer.eps if options.norm_eps is None else options.norm_eps


def _check_groups(groups: int, channels: int, *, spatial: bool) -> None:
    # A group of one value has no spread: its normalised value is always 0, and the layer is dead.
    most = channels if spatial else channels // 2
    allowed = [g for g in range(1, most + 1) if channels % g == 0]
    if groups not in allowed:
        size = "" if spatial else " of at least 2"
        remedy = f"choose one of {', '.join(map(str, allowed))}" if allowed else "choose a wider layer"
        raise InputError(f"model.groups = {groups}: must divide {channels} channels into equal groups{size}; {remedy}")
