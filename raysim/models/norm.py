"""The normalisation layer between a linear layer or convolution and its activation."""

from typing import Literal, TypeAlias, get_args

from torch import nn

from raysim.errors import InputError
from raysim.models.checks import positive

Norm: TypeAlias = Literal["none", "batch", "group"]

NORMS: tuple[str, ...] = get_args(Norm)


def normalise(norm: str, channels: int, *, groups: int, spatial: bool) -> list[nn.Module]:
    """Return the layers, none or one, that `norm` puts behind a layer of `channels` outputs.

    Args:
        norm: "none", "batch" (BatchNorm) or "group" (GroupNorm).
        channels: outputs of the layer before.
        groups: groups of a GroupNorm; not used by the others.
        spatial: True behind a convolution, [n, channels, height, width]; False behind a linear layer.

    Raises:
        InputError: the norm is not known, or the groups do not divide the channels.
    """
    if norm not in NORMS:
        raise InputError(f"norm {norm!r} is not known: choose one of {', '.join(NORMS)}")
    if norm == "none":
        return []
    if norm == "batch":
        return [nn.BatchNorm2d(channels) if spatial else nn.BatchNorm1d(channels)]
    _check_groups(positive("groups", groups), channels, spatial=spatial)
    return [nn.GroupNorm(groups, channels)]


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
