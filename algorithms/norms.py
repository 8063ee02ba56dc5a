"""Which layers are batch normalisation: by type, so nested, shortcut and subclassed ones are all found."""

from typing import Literal, TypeAlias, TypeGuard

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

Statistics: TypeAlias = Literal["batch", "untracked", "frozen"]


def is_batch_norm(layer: nn.Module) -> TypeGuard[_BatchNorm]:
    """Whether the layer normalises by statistics of the batch (1d, 2d, 3d, synchronised, subclasses)."""
    return isinstance(layer, _BatchNorm)


def train_mode(module: nn.Module, statistics: Statistics) -> None:
    """Put a module in training mode, its batch-norm layers as `Local.statistics` says."""
    module.train()
    for layer in module.modules():
        if is_batch_norm(layer):
            layer.train(statistics != "frozen")
            # A layer that has none to track stays as it was made.
            layer.track_running_stats = layer.running_mean is not None and statistics != "untracked"


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

    hooks = [m.register_forward_pre_hook(look) for m in module.modules() if is_batch_norm(m)]
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
