"""Values of the keys of models, and their checks; torch, which takes seconds to import, is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args

from annotated_types import Ge, MinLen

from raysim.common.errors import InputError

if TYPE_CHECKING:
    import torch

Count = Annotated[int, Ge(1)]
"""Positive whole number; the experiment file refuses others before anything is loaded."""

Counts = Annotated[tuple[Count, ...], MinLen(1)]
"""Positive whole numbers, at least one."""

Norm: TypeAlias = Literal["none", "batch", "group", "layer", "instance", "group+ws", "batch-renorm", "fixup"]

NORMS: tuple[str, ...] = get_args(Norm)

RENORM_KEYS = ("renorm_r_max", "renorm_d_max", "renorm_start", "renorm_r_end", "renorm_d_end")

KEYS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "batch": ("norm_momentum", "norm_eps"),
    "group": ("groups", "norm_eps"),
    "layer": ("norm_eps",),
    "instance": ("norm_eps",),
    "group+ws": ("groups", "norm_eps"),
    "batch-renorm": ("norm_momentum", "norm_eps", *RENORM_KEYS),
    "fixup": (),
}
"""Keys of `[model]` that each normaliser has."""

GROUPS = 8
"""Default number of groups."""

Init: TypeAlias = Literal["default", "glorot", "normal"]

WEIGHTS_SUFFIX = ".safetensors"

WHOLE_MODEL = "all"


def image_shape(model: str, shape: tuple[int, ...], least: int = 1, remedy: str = "") -> tuple[int, int, int]:
    """Return the channels, height and width of the images that a model takes.

    Args:
        model: name of the model, for the error message.
        shape: shape of one sample.
        least: smallest height and width that leave a value behind every layer.
        remedy: the model's own remedy for smaller images.

    Raises:
        InputError: the samples are not images, or smaller.
    """
    if len(shape) != 3 or min(shape[1:]) < least:
        other = f", or {remedy}" if remedy else ""
        raise InputError(
            f"model {model} on samples of shape {shape}: must be images, (channels, height, width), of at least "
            f'{least}x{least}; set model.name = "mlp", or enlarge images by data.image_size{other}'
        )
    return shape[0], shape[1], shape[2]


@dataclass(frozen=True)
class RenormLimits:
    """Limits of r and d as functions of t, the number of batches that the layer has tracked.

        r_max(t) = 1 + (r_max - 1) o(t; r_end),   d_max(t) = d_max o(t; d_end),
        o(t; end) = (t - start) / (end - start), within [0, 1]

    Args:
        r_max: the limit of r at the end, >= 1.
        d_max: the limit of d at the end, >= 0.
        start: batches before which the layer is batch norm, >= 0; its first batch always is.
        r_end: batches at which r_max is reached, >= start.
        d_end: batches at which d_max is reached, >= start.

    Raises:
        InputError: an end is before the start.

    Paper: section 4 opens r from 1 to 3 between 5,000 and 40,000 steps, and d from 0 to 5 between 5,000 and 25,000.

    Deviations:
        The defaults are a tenth of these steps, because federated runs are shorter.
    """

    r_max: float = 3.0
    d_max: float = 5.0
    start: int = 500
    r_end: int = 4_000
    d_end: int = 2_500

    def __post_init__(self) -> None:
        for key, end in (("model.renorm_r_end", self.r_end), ("model.renorm_d_end", self.d_end)):
            if end < self.start:
                raise InputError(f"{key} = {end}: must be {self.start} or more; set {key} = {self.start}")

    def after(self, tracked: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return r_max and d_max after `tracked` batches, as tensors."""
        open_r, open_d = (
            ((tracked - self.start) / max(1, end - self.start)).clamp(0, 1) for end in (self.r_end, self.d_end)
        )
        return 1 + (self.r_max - 1) * open_r, self.d_max * open_d
