"""The papers' augmentations of images: pure functions of samples and uniform draws, batched on the device."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from torch.nn.functional import pad

from algorithms import Augment
from raysim.data.images import LUMA, is_image
from raysim.data.standardise import Global, Scale, Standardise
from raysim.errors import InputError


@dataclass(frozen=True)
class Crop:
    """Pad each image with zeros on all sides, and cut its size out again at a random place.

        x'[:, i, j] = padded[:, i + a, j + b],   a, b uniform in 0 ... 2 padding

    Args:
        padding: pixels on each side, >= 0.

    Raises:
        InputError: the images are no larger than the padding (from a call).

    Paper: FixBN, A.1 (2 pixels on CIFAR-10).
    """

    padding: int = 2
    numbers = 2

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w] by the row a and the column b that two draws each come to."""
        channels, height, width = x.shape[1:]
        if self.padding >= min(height, width):
            raise InputError(
                f"data.crop_padding = {self.padding} on images of {height}x{width}: must be below the smaller side, or "
                "a crop may have nothing of its image; lower it"
            )
        padded = pad(x, [self.padding] * 4)
        top, left = (draws * (2 * self.padding + 1)).long().unbind(1)
        rows = top[:, None] + torch.arange(height, device=x.device)
        columns = left[:, None] + torch.arange(width, device=x.device)
        places = (rows[:, :, None] * padded.shape[3] + columns[:, None, :]).flatten(1)
        return padded.flatten(2).gather(2, places[:, None].expand(-1, channels, -1)).view_as(x)


@dataclass(frozen=True)
class Flip:
    """Mirror each image left to right where its draw is below 1/2. Paper: FixBN, A.1; FedMMB, section 4."""

    numbers = 1

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w]."""
        return torch.where(draws[:, 0].view(-1, 1, 1, 1) < 0.5, x.flip(3), x)


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

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w] with values in [0, 1], c being 1 or 3."""
        strengths = x.new_tensor([self.brightness, self.contrast, self.saturation, self.hue])
        changes = (strengths * (2 * draws.to(x) - 1)).view(-1, 4, 1, 1, 1).unbind(1)
        x = _towards(torch.zeros_like(x), x, changes[0])
        x = _towards(_grey(x).mean((2, 3), keepdim=True), x, changes[1])
        if x.shape[1] == 1:
            return x
        return _turned(_towards(_grey(x), x, changes[2]), changes[3][:, 0])


Augmentation: TypeAlias = Crop | Flip | ColourJitter

AUGMENTATIONS: Mapping[str, type[Augmentation]] = {"crop": Crop, "flip": Flip, "colour-jitter": ColourJitter}
"""By their names in an experiment's file."""


@dataclass(frozen=True)
class OnPixels:
    """A change that needs pixels in [0, 1], on samples that are standardised."""

    change: Augment
    scale: Scale

    @property
    def numbers(self) -> int:
        """As many as the change takes."""
        return self.change.numbers

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change standardised images [n, c, h, w]."""
        return self.scale(self.change(self.scale.undo(x), draws))


@dataclass(frozen=True)
class Chain:
    """Changes one after the other, each with draws of its own."""

    changes: tuple[Augment, ...]

    @property
    def numbers(self) -> int:
        """What all of them take."""
        return sum(change.numbers for change in self.changes)

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Change images [n, c, h, w]."""
        own = torch.split(draws, [change.numbers for change in self.changes], 1)
        for change, numbers in zip(self.changes, own, strict=True):
            x = change(x, numbers)
        return x


def chain(names: Sequence[str], strengths: Mapping[str, Any], scale: Scale | None = None) -> Chain:
    """Augmentations by their names, in this order.

    Args:
        names: of `AUGMENTATIONS`.
        strengths: what they take, by name.
        scale: by which the samples are standardised, where they are.
    """
    changes: list[Augment] = []
    for name in names:
        kind = AUGMENTATIONS[name]
        change: Augment = kind(**{each.name: strengths[each.name] for each in fields(kind)})
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
    made(torch.zeros(1, *shape), torch.zeros(1, made.numbers))  # what does not fit the images is refused here
    return made


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
