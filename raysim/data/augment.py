"""The papers' augmentations of images: pure functions of samples and uniform draws, batched on the device."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from torch.nn.functional import pad

from algorithms.training.losses import IGNORED
from raysim.common.errors import InputError
from raysim.data.images import LUMA, is_image
from raysim.data.standardise import Global, Scale, Standardise

TRIES = 10
"""Parts of an image that are drawn until one lies inside it."""

Shape: TypeAlias = tuple[int, ...]
Size: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Crop:
    """Pad each image on all sides, with zeros and its label with no class, and cut a part out at a random place.

        x'[:, i, j] = padded[:, i + a, j + b],   a, b uniform where the part lies inside

    Args:
        padding: pixels on each side, >= 0.
        size: height and width of the part; None for the image's own.

    Raises:
        InputError: the images are no larger than the padding, or smaller than the part (from a call).

    Paper: FixBN, A.1 (2 pixels on CIFAR-10; 768x768 of Cityscapes).
    """

    padding: int = 2
    size: Size | None = None
    numbers = 2

    def shape(self, shape: Shape) -> Shape:
        """The shape that images [c, h, w] come to; InputError where they are too small."""
        height, width = self.size or shape[1:]
        if height > shape[1] + 2 * self.padding or width > shape[2] + 2 * self.padding:
            raise InputError(
                f"data.crop_size = [{height}, {width}] on images of height and width {shape[1:]}: must be at most "
                "these and twice data.crop_padding; lower it, or enlarge images by data.image_size"
            )
        if self.padding >= min(shape[1:]):
            raise InputError(
                f"data.crop_padding = {self.padding} on images of {shape[1]}x{shape[2]}: must be below the smaller "
                "side, or a crop may have nothing of its image; lower it"
            )
        return (shape[0], height, width)

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w] by the row a and the column b that two draws each come to."""
        return self._cut(pad(x, [self.padding] * 4), self.shape(tuple(x.shape[1:])), draws)

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change labels [n, h, w] as their images."""
        return self._cut(pad(y, [self.padding] * 4, value=IGNORED)[:, None], self.shape((1, *y.shape[1:])), draws)[:, 0]

    def _cut(self, padded: torch.Tensor, shape: Shape, draws: torch.Tensor) -> torch.Tensor:
        channels, height, width = shape
        room = draws.new_tensor([padded.shape[2] - height, padded.shape[3] - width])
        # A draw just below 1 may be rounded up to one place too many.
        top, left = torch.minimum(draws * (room + 1), room).long().unbind(1)
        rows = top[:, None] + torch.arange(height, device=padded.device)
        columns = left[:, None] + torch.arange(width, device=padded.device)
        places = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).flatten(1)
        return padded.flatten(2).gather(2, places[:, None].expand(-1, channels, -1)).view(-1, *shape)


@dataclass(frozen=True)
class ResizedCrop:
    """Cut a part of random area and shape out of each image at a random place, and resize it.

        h' = sqrt(s h w / r),   w' = sqrt(s h w r),   s uniform in the scale, log r between the logarithms of the ratio

    The first of ten draws that fits counts; where none does, the image's middle at the nearest ratio. Images are
    interpolated bilinearly, of labels the nearest pixel is taken.

    Args:
        size: height and width to come to; None for the image's own.
        scale: shares of the area, lowest and highest.
        ratio: of width to height, likewise.

    Paper: FixBN, A.1 (Tiny-ImageNet, "following the official PyTorch ImageNet training script"). Deviations: a part
    that is larger than what it comes to is not smoothed before.
    """

    size: Size | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    numbers = 2 * TRIES + 2

    def shape(self, shape: Shape) -> Shape:
        """The shape that images [c, h, w] come to."""
        return (shape[0], *(self.size or shape[1:]))

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w]."""
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
        """Change labels [n, h, w] as their images."""
        first, extent = self.parts(draws, y.shape[1], y.shape[2])
        y = y[:, None]
        for axis, size in enumerate(self.size or y.shape[2:]):
            y = _picked(y, first[:, axis, None] + _centres(size, extent[:, axis]).long(), axis)
        return y[:, 0]

    def parts(self, draws: torch.Tensor, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The parts of images of a height and a width: first row and column, and height and width, int64 [n, 2]."""
        # In float64, so that all devices round to the same pixels.
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
class Flip:
    """Mirror each image left to right where its draw is below 1/2. Paper: FixBN, A.1; FedMMB, section 4."""

    numbers = 1

    def shape(self, shape: Shape) -> Shape:
        """The shape that images come to: their own."""
        return shape

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w]."""
        return torch.where(draws[:, 0].view(-1, 1, 1, 1) < 0.5, x.flip(3), x)

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change labels [n, h, w] as their images."""
        return self(y[:, None], draws)[:, 0]


@dataclass(frozen=True)
class ColourJitter:
    """Change brightness, contrast, saturation and hue, in this order, each by a draw of its own.

        x <- f x;   x <- f x + (1 - f) mean(grey(x));   x <- f x + (1 - f) grey(x);   hue(x) <- hue(x) + t

    with f = 1 + s u, t = s u turns, u uniform in [-1, 1), s the strength; all but the hue's cut off to [0, 1]. Of a
    grey image brightness and contrast change. Other values than those of pixels in [0, 1] have no colours: they are
    refused before (`check_pixels`).

    Args:
        brightness, contrast, saturation: in [0, 1]; 0 changes nothing.
        hue: in [0, 1/2] turns of the colour circle.

    Paper: FedMMB, section 4. Deviations: its text gives no strengths; the defaults are ours.
    """

    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2
    hue: float = 0.05
    numbers = 4

    def shape(self, shape: Shape) -> Shape:
        """The shape that images come to: their own."""
        return shape

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w] with values in [0, 1], c being 1 or 3."""
        strengths = x.new_tensor([self.brightness, self.contrast, self.saturation, self.hue])
        changes = (strengths * (2 * draws.to(x) - 1)).view(-1, 4, 1, 1, 1).unbind(1)
        x = _towards(torch.zeros_like(x), x, changes[0])
        x = _towards(_grey(x).mean((2, 3), keepdim=True), x, changes[1])
        if x.shape[1] == 1:
            return x
        return _turned(_towards(_grey(x), x, changes[2]), changes[3][:, 0])

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Leave labels as they are."""
        return y


Augmentation: TypeAlias = Crop | ResizedCrop | Flip | ColourJitter

AUGMENTATIONS: Mapping[str, type[Augmentation]] = {
    "crop": Crop,
    "resized-crop": ResizedCrop,
    "flip": Flip,
    "colour-jitter": ColourJitter,
}
"""By their names in an experiment's file."""


@dataclass(frozen=True)
class OnPixels:
    """A change that needs pixels in [0, 1], on samples that are standardised."""

    change: ColourJitter
    scale: Scale

    @property
    def numbers(self) -> int:
        """As many as the change takes."""
        return self.change.numbers

    def shape(self, shape: Shape) -> Shape:
        """The shape that images come to."""
        return self.change.shape(shape)

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change standardised images [n, c, h, w]."""
        return self.scale(self.change(self.scale.undo(x), draws))

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change labels [n, h, w] as the change does."""
        return self.change.labels(y, draws)


@dataclass(frozen=True)
class Chain:
    """Changes one after the other, each with draws of its own."""

    changes: tuple[Augmentation | OnPixels, ...]

    @property
    def numbers(self) -> int:
        """What all of them take."""
        return sum(change.numbers for change in self.changes)

    def shape(self, shape: Shape) -> Shape:
        """The shape that images [c, h, w] come to; InputError where a change cannot be made to them."""
        for change in self.changes:
            shape = change.shape(shape)
        return shape

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w]."""
        for change, numbers in self._with(draws):
            x = change(x, numbers)
        return x

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change labels [n, h, w] as their images."""
        for change, numbers in self._with(draws):
            y = change.labels(y, numbers)
        return y

    def _with(self, draws: torch.Tensor) -> Iterable[tuple[Augmentation | OnPixels, torch.Tensor]]:
        return zip(self.changes, torch.split(draws, [change.numbers for change in self.changes], 1), strict=True)


def chain(names: Sequence[str], strengths: Mapping[str, Any], scale: Scale | None = None) -> Chain:
    """Augmentations by their names, in this order.

    Args:
        names: of `AUGMENTATIONS`.
        strengths: what they take, by name.
        scale: by which the samples are standardised, where they are.
    """
    changes: list[Augmentation | OnPixels] = []
    for name in names:
        kind = AUGMENTATIONS[name]
        change: Augmentation = kind(**{each.name: strengths[each.name] for each in fields(kind)})
        changes.append(OnPixels(change, scale) if isinstance(change, ColourJitter) and scale is not None else change)
    return Chain(tuple(changes))


def augmentation(
    names: Sequence[str], strengths: Mapping[str, Any], standardise: Standardise | None, shape: tuple[int, ...]
) -> Chain | None:
    """What changes inputs in training; None where nothing does.

    Args:
        names: of `AUGMENTATIONS`.
        strengths: what they take, by name.
        standardise: what is done to inputs before.
        shape: of one sample.

    Raises:
        InputError: samples are no images, or too small.
    """
    if not names:
        return None
    if not is_image(shape):
        raise InputError(
            f"data.augment = {list(names)} on samples of shape {shape}: must be on images, [1 or 3, height, width]; "
            "remove it"
        )
    made = chain(names, strengths, standardise.scale if isinstance(standardise, Global) else None)
    made.shape(shape)
    return made


def _centres(size: int, extent: torch.Tensor) -> torch.Tensor:
    """Where the middles of so many pixels fall on extents [n], float64 [n, size]."""
    return (torch.arange(size, device=extent.device, dtype=torch.float64) + 0.5) * extent[:, None] / size


def _along(axis: int, values: torch.Tensor) -> torch.Tensor:
    """Values of each image's rows (0) or columns (1), [n, size], to go with images [n, c, h, w]."""
    return values[:, None, :, None] if axis == 0 else values[:, None, None, :]


def _picked(x: torch.Tensor, places: torch.Tensor, axis: int) -> torch.Tensor:
    """Rows (0) or columns (1) of images [n, c, h, w], at each one's own places [n, size]."""
    other = (-1, x.shape[1], -1, x.shape[3]) if axis == 0 else (-1, x.shape[1], x.shape[2], -1)
    return x.gather(2 + axis, _along(axis, places).expand(other))


def check_pixels(x: torch.Tensor, names: Collection[str], where: str) -> None:
    """Refuse values that are no pixels in [0, 1] where colours are to be changed.

    Args:
        x: before they are standardised.
        names: the augmentations.
        where: whose values they are, for the message.

    Raises:
        InputError: some are beyond.
    """
    if "colour-jitter" in names and x.numel() and not (x.min() >= 0 and x.max() <= 1):
        raise InputError(
            f'data.augment with "colour-jitter" on {where} with values of {x.min():g} to {x.max():g}: must be pixels '
            "in [0, 1], or uint8; scale them, or leave it out"
        )


def _towards(far: torch.Tensor, x: torch.Tensor, change: torch.Tensor) -> torch.Tensor:
    """Return f x + (1 - f) far with f = 1 + change, cut off to [0, 1]."""
    return (x + change * (x - far)).clamp(0, 1)


def _grey(x: torch.Tensor) -> torch.Tensor:
    """The luma of colour, [n, 1, h, w]; of grey itself."""
    return x if x.shape[1] == 1 else (x * x.new_tensor(LUMA).view(-1, 1, 1)).sum(1, keepdim=True)


def _turned(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Colours with their hue turned, their largest and smallest values as they were.

    Args:
        x: [n, 3, h, w].
        turns: [n, 1, 1], 1 being once around.
    """
    red, green, blue = x.unbind(1)
    most, least = x.amax(1), x.amin(1)
    chroma = most - least
    some = torch.where(chroma > 0, chroma, 1)
    on_green, on_blue = 2 + (blue - red) / some, 4 + (red - green) / some
    sixths = torch.where(most == red, (green - blue) / some, torch.where(most == green, on_green, on_blue))
    places = [(corner + sixths + 6 * turns) % 6 for corner in (5, 3, 1)]
    return torch.stack([most - chroma * torch.minimum(k, 4 - k).clamp(0, 1) for k in places], 1)
