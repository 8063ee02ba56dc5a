"""Initial weights by the type of the layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from raysim.common.errors import InputError

Init: TypeAlias = Literal["default", "glorot", "normal"]

NORMALISATION = (_NormBase, nn.GroupNorm, nn.LayerNorm)
"""Layers that initial weights leave as they are: scale 1 and shift 0, as a rule."""

Draw: TypeAlias = Callable[[torch.Tensor, torch.Generator], object]


@torch.no_grad()
def initialise(module: nn.Module, init: Init, std: float | None, seed: int) -> None:
    """Draw the weights of all linear layers and convolutions; normalisation layers stay as they are.

    - default: nothing is drawn, the model's builder has decided.
    - glorot: weights from U(-a, a), a = sqrt(6 / (fan_in + fan_out)), biases 0, as Keras has them (FedMMB).
    - normal: weights and biases from N(0, std^2) (FedBN, appendix F: std = 10).

    Args:
        module: is changed.
        init: one of these.
        std: of "normal".
        seed: keys the draws, in the order of the module's layers.

    Raises:
        InputError: a layer is of another type, and has entries to train.
    """
    if init == "default":
        return
    generator = torch.Generator().manual_seed(seed)
    for name, layer in module.named_modules():
        own = [each for each in layer._parameters.values() if each is not None]
        if isinstance(layer, NORMALISATION) or not own:
            continue
        if not isinstance(layer, (nn.Linear, _ConvNd)):
            raise InputError(
                f"model.init = {init!r} over model layer {name or 'itself'}, a {type(layer).__name__}: must be linear, "
                'a convolution or a normalisation; set model.init = "default"'
            )
        for parameter in own:
            if init == "normal":
                nn.init.normal_(parameter, 0, std or 0.0, generator=generator)
            elif parameter is layer.weight:
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                parameter.zero_()
