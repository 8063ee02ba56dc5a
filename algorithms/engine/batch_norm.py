"""Which layers are batch normalisation: by type, so nested, shortcut and subclassed ones are all found."""

from collections.abc import Collection
from typing import Literal, TypeAlias, TypeGuard

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

Statistics: TypeAlias = Literal["batch", "untracked", "frozen"]


def is_batch_norm(layer: nn.Module) -> TypeGuard[_BatchNorm]:
    """Whether the layer normalises by statistics of the batch (1d, 2d, 3d, synchronised, subclasses)."""
    return isinstance(layer, _BatchNorm)


def freeze(module: nn.Module, names: Collection[str]) -> None:
    """Freeze entries of a module, parameters and buffers: nobody trains, tracks, sends or averages them.

    A batch-norm layer all of whose entries are frozen normalises by its running statistics, in training too.

    Args:
        module: is changed.
        names: of the entries, as its state has them.
    """
    for prefix, layer in module.named_modules():
        own = {**layer._parameters, **layer._buffers}
        frozen = {name for name in own if (f"{prefix}.{name}" if prefix else name) in names}
        for name in frozen & layer._parameters.keys():
            layer.get_parameter(name).requires_grad_(False)
        layer.__dict__["frozen_entries"] = frozenset(frozen)


def is_frozen(layer: nn.Module, name: str) -> bool:
    """Whether one of a layer's own entries is frozen: by `freeze`, or a parameter whose gradient is switched off."""
    parameter = layer._parameters.get(name)
    return name in layer.__dict__.get("frozen_entries", ()) or (parameter is not None and not parameter.requires_grad)


def live_batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """The batch-norm layers of a module but for those that are frozen as a whole, statistics too."""
    found = (layer for layer in module.modules() if is_batch_norm(layer))
    return [layer for layer in found if not _is_frozen_whole(layer)]


def _is_frozen_whole(layer: nn.Module) -> bool:
    own = [name for name, tensor in {**layer._parameters, **layer._buffers}.items() if tensor is not None]
    return bool(own) and all(is_frozen(layer, name) for name in own)


def train_mode(module: nn.Module, statistics: Statistics) -> None:
    """Put a module in training mode, its batch-norm layers as `Local.statistics` says; frozen ones in evaluation."""
    module.train()
    for layer in module.modules():
        if is_batch_norm(layer):
            if statistics == "frozen" or _is_frozen_whole(layer):
                layer.eval()
            # A layer that has none to track stays as it was made.
            tracks = layer.running_mean is not None and statistics != "untracked"
            if layer.track_running_stats != tracks:  # this comes once a visit, and modules are slow to write to
                layer.track_running_stats = tracks


@torch.no_grad()
def refuses_single(module: nn.Module, sample: torch.Tensor) -> bool:
    """Whether a training batch of one such sample would leave a batch-norm layer one value a channel.

    Args:
        module: the model; its statistics are left as they are.
        sample: one sample, [*shape]; its values do not matter.
    """
    found: list[bool] = []

    def look(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        found.append(inputs[0].numel() == 2 * inputs[0].shape[1])

    hooks = [layer.register_forward_pre_hook(look) for layer in live_batch_norms(module)]
    training = module.training
    try:
        # Evaluation mode: the shapes are the same, and nothing is tracked. Two samples, for a layer that tracks no
        # statistics normalises by the batch here, too.
        module.eval()
        if hooks:
            module(torch.stack([sample, sample]))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return any(found)
