"""Batch-norm layers, found by type: nested, in shortcuts, and subclasses too."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeGuard

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn.modules.batchnorm import _BatchNorm

Statistics: TypeAlias = Literal["batch", "untracked", "frozen"]


def is_batch_norm(layer: nn.Module) -> TypeGuard[_BatchNorm]:
    """Return whether the layer is batch norm (1d, 2d, 3d, synchronised, or a subclass)."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return isinstance(layer, _BatchNorm)


def freeze(module: nn.Module, names: Collection[str]) -> None:
    """Freeze parameters and buffers of a module: they are never trained, tracked, sent or averaged.

    A batch-norm layer with all entries frozen normalises by its running statistics in training, too.

    Args:
        module: module to change.
        names: names of the entries in its state.
    """
    for prefix, layer in module.named_modules():
        own = {**layer._parameters, **layer._buffers}
        frozen = {name for name in own if (f"{prefix}.{name}" if prefix else name) in names}
        for name in frozen & layer._parameters.keys():
            layer.get_parameter(name).requires_grad_(False)
        layer.__dict__["frozen_entries"] = frozenset(frozen)


def is_frozen(layer: nn.Module, name: str) -> bool:
    """Return whether an entry of a layer is frozen, by `freeze` or as a parameter without gradient."""
    parameter = layer._parameters.get(name)
    return name in layer.__dict__.get("frozen_entries", ()) or (parameter is not None and not parameter.requires_grad)


def live_batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Return the batch-norm layers of a module, without those that are frozen as a whole."""
    found = (layer for layer in module.modules() if is_batch_norm(layer))
    return [layer for layer in found if not _is_frozen_whole(layer)]


def _is_frozen_whole(layer: nn.Module) -> bool:
    own = [name for name, tensor in {**layer._parameters, **layer._buffers}.items() if tensor is not None]
    return bool(own) and all(is_frozen(layer, name) for name in own)


def train_mode(module: nn.Module, statistics: Statistics) -> None:
    """Set a module to training, its batch-norm layers as `Local.statistics` says, and frozen layers to evaluation."""
    # Each stack of client updates comes here, and modules are slow to write to.
    if not module.training:
        module.train()
    for layer in module.modules():
        if is_batch_norm(layer):
            trains = statistics != "frozen" and not _is_frozen_whole(layer)
            if layer.training != trains:
                layer.train(trains)
            # A layer made without running statistics stays without them.
            tracks = layer.running_mean is not None and statistics != "untracked"
            if layer.track_running_stats != tracks:
                layer.track_running_stats = tracks


def refuses_single(module: nn.Module, sample: torch.Tensor) -> bool:
    """Return whether a training batch of one sample would give a batch-norm layer one value a channel.

    Args:
        module: the model; its statistics do not change.
        sample: one sample, [*shape]; its values do not matter.
    """
    import torch

    found: list[bool] = []

    def look(_: nn.Module, inputs: tuple[torch.Tensor, ...], named: dict[str, torch.Tensor]) -> None:
        x = next(iter((*inputs, *named.values())))
        found.append(x.numel() == 2 * x.shape[1])

    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in live_batch_norms(module)]
    training = module.training
    try:
        # In evaluation the shapes are equal and nothing is tracked. A layer without running statistics normalises by
        # the batch here, too, and needs two samples.
        module.eval()
        if hooks:
            with torch.no_grad():
                module(torch.stack([sample, sample]))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return any(found)
