"""Augmentations of images from the papers: pure functions of samples and uniform draws, batched on the device."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import torch
from torch.nn.functional import pad

from algorithms.training.loss import NO_PIXEL
from raysim.common.errors import InputError
from raysim.data.images import LUMA, is_image
from raysim.data.own_augment import Change, OwnAugmentation
from raysim.data.standardise import MeanAndStd, Standardisation

TRIES = 10
"""Parts of an image to draw; the first one that lies inside the image counts."""

Shape: TypeAlias = tuple[int, ...]
Size: TypeAlias = tuple[int, int]


class Augmentation(ABC):
    """Change of images [n, c, h, w] and, if it moves pixels, of labels [n, h, w] that are images.

    Each sample has `numbers` draws of its own, [n, numbers].
    """

    numbers: ClassVar[int]

    def shape(self, shape: Shape) -> Shape:
        """Return the shape of changed images [c, h, w]; raise an InputError if the change cannot take them."""
        return shape

    @abstractmethod
    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images."""

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change labels like their images."""
        return y


@dataclass(frozen=True)
class Crop(Augmentation):
    """Random crop of a padded image; the padding is 0, and has no class in labels that are images.

    In standardised samples 0 is the mean, and not black.

        x'[:, i, j] = padded[:, i + a, j + b],   a, b uniform over all places inside

    Args:
        padding: pixels on each side, >= 0.
        size: height and width of the part; None for the image's own.

    Raises:
        InputError: a call finds images that are not larger than the padding, or smaller than the part.

    Paper: FixBN, A.1 (2 pixels on CIFAR-10; 768x768 of Cityscapes).
    """

    padding: int = 2
    size: Size | None = None
    numbers = 2

    def shape(self, shape: Shape) -> Shape:
        height, width = self.size or shape[1:]
        if height > shape[1] + 2 * self.padding or width > shape[2] + 2 * self.padding:
            raise InputError(
                f"data.crop_size = [{height}, {width}] on images of height and width {shape[1:]}: must be at most "
                "the images with data.crop_padding on all sides; lower it, or enlarge images by data.image_size"
            )
        if self.padding >= min(shape[1:]):
            raise InputError(
                f"data.crop_padding = {self.padding} on images of {shape[1]}x{shape[2]}: must be below the smaller "
                "side, or a crop may miss its image; lower it"
            )
        return (shape[0], height, width)

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return self._cut(pad(x, [self.padding] * 4), self.shape(tuple(x.shape[1:])), draws)

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        padded = pad(y, [self.padding] * 4, value=NO_PIXEL)
        return self._cut(padded[:, None], self.shape((1, *y.shape[1:])), draws)[:, 0]

    def _cut(self, padded: torch.Tensor, shape: Shape, draws: torch.Tensor) -> torch.Tensor:
        channels, height, width = shape
        room = draws.new_tensor([padded.shape[2] - height, padded.shape[3] - width])
        # Rounding may turn a draw just below 1 into one place too many.
        top, left = torch.minimum(draws * (room + 1), room).long().unbind(1)
        rows = top[:, None] + torch.arange(height, device=padded.device)
        columns = left[:, None] + torch.arange(width, device=padded.device)
        places = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).flatten(1)
        return padded.flatten(2).gather(2, places[:, None].expand(-1, channels, -1)).view(-1, *shape)


@dataclass(frozen=True)
class ResizedCrop(Augmentation):
    """Crop of random area and shape at a random place, resized.

        h' = sqrt(s h w / r),   w' = sqrt(s h w r),   s uniform in the scale, log r between the logarithms of the ratio

    The first of ten draws that fits counts. If none fits, the crop is the middle of the image at the nearest ratio.
    Images are interpolated bilinearly; labels take the nearest pixel.

    Args:
        size: height and width of the result; None for the image's own.
        scale: lowest and highest share of the area.
        ratio: lowest and highest ratio of width to height.

    Paper: FixBN, A.1 (Tiny-ImageNet, "following the official PyTorch ImageNet training script").

    Deviations:
        A part larger than the result is not smoothed first.
    """

    size: Size | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    numbers = 2 * TRIES + 2

    def shape(self, shape: Shape) -> Shape:
        return (shape[0], *(self.size or shape[1:]))

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        first, extent = self.parts(draws, x.shape[2], x.shape[3])
        for axis, size in enumerate(self.shape(tuple(x.shape[1:]))[1:]):
            place = (_centres(size, extent[:, axis]) - 0.5).clamp(min=0)
            last = extent[:, axis, None] - 1
            low, high = torch.minimum(place.long(), last), torch.minimum(place.long() + 1, last)
            share = _along(axis, (place - low).to(x.dtype))
            begin = first[:, axis, None]
            x = torch.lerp(_picked(x, begin + low, axis), _picked(x, begin + high, axis), share)
        return x

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        first, extent = self.parts(draws, y.shape[1], y.shape[2])
        y = y[:, None]
        for axis, size in enumerate(self.size or y.shape[2:]):
            y = _picked(y, first[:, axis, None] + _centres(size, extent[:, axis]).long(), axis)
        return y[:, 0]

    def parts(self, draws: torch.Tensor, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the parts to cut: first row and column, and height and width, both int64 [n, 2]."""
        # All devices round float64 to the same pixels.
        draws, whole = draws.double(), torch.tensor([height, width], device=draws.device, dtype=torch.float64)
        area, ratio = draws[:, :-2].view(-1, TRIES, 2).unbind(2)
        area = height * width * (self.scale[0] + (self.scale[1] - self.scale[0]) * area)
        logarithms = [math.log(bound) for bound in self.ratio]
        ratio = (logarithms[0] + (logarithms[1] - logarithms[0]) * ratio).exp()
        tried = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()], 2).round()
        fits = ((tried > 0) & (tried <= whole)).all(2)
        chosen = tried[torch.arange(len(tried), device=tried.device), fits.int().argmax(1)]
        some = fits.any(1, keepdim=True)
        middle = [min(height, round(width / self.ratio[0])), min(width, round(height * self.ratio[1]))]
        extent = torch.where(some, chosen, whole.new_tensor(middle))
        first = torch.where(some, draws[:, -2:] * (whole - extent + 1), (whole - extent) / 2)
        return first.long(), extent.long()


@dataclass(frozen=True)
class Flip(Augmentation):
    """Mirror image, left to right, if the image's draw is below 1/2. Paper: FixBN, A.1; FedMMB, section 4."""

    numbers = 1

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return torch.where(draws[:, 0].view(-1, 1, 1, 1) < 0.5, x.flip(3), x)

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return self(y[:, None], draws)[:, 0]


@dataclass(frozen=True)
class ColourJitter(Augmentation):
    """Random change of brightness, contrast, saturation and hue, in this order, each by its own draw.

        x <- f x;   x <- f x + (1 - f) mean(grey(x));   x <- f x + (1 - f) grey(x);   hue(x) <- hue(x) + t

    Here f = 1 + s u and t = s u turns, with u uniform in [-1, 1) and s the strength. All results except the hue's are
    cut off to [0, 1]. Grey images change in brightness and contrast. `check_pixels` refuses values outside [0, 1].

    Args:
        brightness: strength in [0, 1]; 0 changes nothing.
        contrast: likewise.
        saturation: likewise.
        hue: strength in [0, 1/2] turns of the colour circle.
        standardised: standardisation of the samples, undone before the change and redone after; None for pixels.

    Paper: FedMMB, section 4.

    Deviations:
        The text gives no strengths; the defaults are raysim's.
    """

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2
    hue: float = 0.05
    standardised: MeanAndStd | None = None
    numbers = 4

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        if self.standardised is None:
            return self._on_pixels(x, draws)
        return self.standardised(self._on_pixels(self.standardised.undo(x), draws))

    def _on_pixels(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        strengths = x.new_tensor([self.brightness, self.contrast, self.saturation, self.hue])
        changes = (strengths * (2 * draws.to(x) - 1)).view(-1, 4, 1, 1, 1).unbind(1)
        x = _towards(torch.zeros_like(x), x, changes[0])
        x = _towards(_grey(x).mean((2, 3), keepdim=True), x, changes[1])
        if x.shape[1] == 1:
            return x
        return _turned(_towards(_grey(x), x, changes[2]), changes[3][:, 0])


AUGMENTATIONS: Mapping[str, type[Crop | ResizedCrop | Flip | ColourJitter]] = {
    "crop": Crop,
    "resized-crop": ResizedCrop,
    "flip": Flip,
    "colour-jitter": ColourJitter,
}
"""Augmentations by their names in an experiment file."""


@dataclass(frozen=True)
class AugmentationChain(Augmentation):
    """Changes one after the other, each with its own draws."""

    changes: tuple[Augmentation | OwnAugmentation, ...]

    @property
    def numbers(self) -> int:  # type: ignore[override]  # the sum of those of its changes
        return sum(change.numbers for change in self.changes)

    def shape(self, shape: Shape) -> Shape:
        for change in self.changes:
            shape = change.shape(shape)
        return shape

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        for change, own in self._with_draws(draws):
            x = change(x, own)
        return x

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        for change, own in self._with_draws(draws):
            y = change.labels(y, own)
        return y

    def _with_draws(self, draws: torch.Tensor) -> Iterable[tuple[Augmentation | OwnAugmentation, torch.Tensor]]:
        return zip(self.changes, torch.split(draws, [change.numbers for change in self.changes], 1), strict=True)


def make_chain(
    names: Sequence[str],
    strengths: Mapping[str, Any],
    standardised: MeanAndStd | None = None,
    own: Mapping[str, Change] = MappingProxyType({}),
) -> AugmentationChain:
    """Return the augmentations of these names, in this order.

    Args:
        names: names from `AUGMENTATIONS`, and of the user's own functions.
        strengths: parameters of all augmentations, by name.
        standardised: standardisation of the samples; None for pixels.
        own: the user's own functions, by name.
    """
    given = {**strengths, "standardised": standardised}

    def change(name: str) -> Augmentation | OwnAugmentation:
        if name in own:
            return OwnAugmentation(name, own[name])
        kind = AUGMENTATIONS[name]
        return kind(**{field.name: given[field.name] for field in fields(kind)})

    return AugmentationChain(tuple(map(change, names)))


def augmentation(
    names: Sequence[str],
    strengths: Mapping[str, Any],
    standardise: Standardisation | None,
    shape: tuple[int, ...],
    own: Mapping[str, Change] = MappingProxyType({}),
) -> AugmentationChain | None:
    """Return the augmentations of inputs in training; None for none.

    Args:
        names: names from `AUGMENTATIONS`, and of the user's own functions.
        strengths: parameters of all augmentations, by name.
        standardise: standardisation of the inputs before.
        shape: shape of one sample.
        own: the user's own functions, by name.

    Raises:
        InputError: samples are not images, or too small, or a function of the user's own does not fit them.
    """
    if not names:
        return None
    if not is_image(shape) and own.keys() < set(names):
        raise InputError(
            f"data.augment = {list(names)} on samples of shape {shape}: must be on images, [1 or 3, height, width]; "
            "remove it"
        )
    scale = None if standardise is None or standardise.per_client else standardise.scale
    chain = make_chain(names, strengths, scale, own)
    chain.shape(shape)
    return chain


def _centres(size: int, extent: torch.Tensor) -> torch.Tensor:
    """Return the centres of `size` pixels that divide each of the extents [n] evenly, float64 [n, size]."""
    return (torch.arange(size, device=extent.device, dtype=torch.float64) + 0.5) * extent[:, None] / size


def _along(axis: int, values: torch.Tensor) -> torch.Tensor:
    """Return values per row (axis 0) or column (1), [n, size], in a shape that broadcasts to images [n, c, h, w]."""
    return values[:, None, :, None] if axis == 0 else values[:, None, None, :]


def _picked(x: torch.Tensor, places: torch.Tensor, axis: int) -> torch.Tensor:
    """Return rows (axis 0) or columns (1) of images [n, c, h, w] at each image's own places [n, size]."""
    other = (-1, x.shape[1], -1, x.shape[3]) if axis == 0 else (-1, x.shape[1], x.shape[2], -1)
    return x.gather(2 + axis, _along(axis, places).expand(other))


def check_pixels(x: torch.Tensor, where: str) -> None:
    """Refuse values outside [0, 1], which "colour-jitter" cannot change.

    Args:
        x: values before standardisation.
        where: origin of the values, for the error message.

    Raises:
        InputError: a value is outside.
    """
    if x.numel() and not (x.min() >= 0 and x.max() <= 1):
        raise InputError(
            f'data.augment with "colour-jitter" on {where} with values of {x.min():g} to {x.max():g}: must be pixels '
            "in [0, 1], or uint8; scale them, or leave it out"
        )


def _towards(far: torch.Tensor, x: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Return f x + (1 - f) far with f = 1 + change, cut off to [0, 1]."""
    return (x + change * (x - far)).clamp(0, 1)


def _grey(x: torch.Tensor) -> torch.Tensor:
    """Return the luma of colour images, [n, 1, h, w]; grey images unchanged."""
    return x if x.shape[1] == 1 else (x * x.new_tensor(LUMA).view(-1, 1, 1)).sum(1, keepdim=True)


def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Return colours with another hue; their largest and smallest values stay.

    Args:
        x: [n, 3, h, w].
        turns: [n, 1, 1], 1 for once around the colour circle.
    """
    red, green, blue = x.unbind(1)
    most, least = x.amax(1), x.amin(1)
    chroma = most - least
    some = torch.where(chroma > 0, chroma, 1)
    on_green, on_blue = 2 + (blue - red) / some, 4 + (red - green) / some
    sixths = torch.where(most == red, (green - blue) / some, torch.where(most == green, on_green, on_blue))
    places = [(corner + sixths + 6 * turns) % 6 for corner in (5, 3, 1)]
    return torch.stack([most - chroma * torch.minimum(k, 4 - k).clamp(0, 1) for k in places], 1)
