"""Checks of a model's parameters and of the samples that it takes."""

from collections.abc import Sequence
from typing import Annotated

from annotated_types import Ge

from raysim.common.errors import InputError

Count = Annotated[int, Ge(1)]
"""Positive whole number; the experiment file refuses others before anything is loaded."""


def positive(name: str, value: object) -> int:
    """Return `value` if it is a positive whole number.

    Raises:
        InputError: it is not; the message names the parameter `name`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is {value!r}, but must be a positive whole number: set {name} to 1 or more")
    return value


def positives(name: str, values: object) -> tuple[int, ...]:
    """Return `values` as a tuple if it is a list of at least one positive whole number.

    Raises:
        InputError: it is not; the message names the parameter `name`.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise InputError(f"{name} is {values!r}, but must be a list of positive whole numbers, like [200, 200]")
    return tuple(positive(f"{name}[{i}]", value) for i, value in enumerate(values))


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
