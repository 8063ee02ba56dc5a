"""The images that a convolutional network takes."""

from raysim.common.errors import InputError


def image_of(model: str, shape: tuple[int, ...], least: int = 1, remedy: str = "") -> tuple[int, int, int]:
    """An image's channels, height and width, the last two at least so many.

    Args:
        model: its name, for the message.
        shape: one sample's shape.
        least: the smallest height and width at which a value is left behind every layer.
        remedy: of the model's own, for images that are smaller.

    Raises:
        InputError: the samples are no images, or smaller.
    """
    if len(shape) != 3 or min(shape[1:]) < least:
        raise InputError(
            f"model {model} on samples of shape {shape}: must be images, (channels, height, width), the last two from "
            f'{least} up; set model.name = "mlp", or enlarge images by data.image_size{remedy and f", or {remedy}"}'
        )
    return shape[0], shape[1], shape[2]
