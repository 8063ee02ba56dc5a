"""The keys of `[data]` that say what happens to samples between a data set's table and a visit's batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from raysim.common.errors import InputError
from raysim.config.check import Table

Pixels = Annotated[int, Field(ge=1)]
Augmentation = Literal["append", "crop", "resized-crop", "flip", "colour-jitter"]
Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[float, Field(gt=0)]

FEDMMB: tuple[Augmentation, ...] = ("append", "flip", "colour-jitter")
"""What "append" alone means: FedMMB's offline augmentation."""

OF_ROWS = ("split", "classes")
"""Keys that choose the rows of a population that is to be made."""

STRENGTHS: Mapping[str, tuple[str, ...]] = {
    "crop_padding": ("crop",),
    "crop_size": ("crop", "resized-crop"),
    "crop_scale": ("resized-crop",),
    "crop_ratio": ("resized-crop",),
    **dict.fromkeys(("brightness", "contrast", "saturation", "hue"), ("colour-jitter",)),
}
"""Of which augmentations each key is."""


def _listed(names: Augmentation | tuple[Augmentation, ...]) -> tuple[Augmentation, ...]:
    listed = (names,) if isinstance(names, str) else names
    if len(set(listed)) < len(listed):
        raise ValueError("should name each only once")
    return FEDMMB if listed == ("append",) else listed


def _ascending(values: tuple[float, float]) -> tuple[float, float]:
    if values[0] > values[1]:
        raise ValueError("should be the lowest and the highest")
    return values


def _size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Height and width; one number is both."""
    return (size, size) if isinstance(size, int) else size


class Preparation(Table):
    """The part of `[data]` that prepares samples; see "Preparing samples" in the README."""

    split: Literal["train", "test", "all"] = "train"
    classes: Annotated[tuple[int | str, ...], Field(min_length=1)] | None = None
    image_size: Pixels | tuple[Pixels, Pixels] | None = None
    channels: Literal[1, 3] | None = None
    standardise: Literal["none", "global", "client"] = "none"
    augment: Annotated[Augmentation | tuple[Augmentation, ...], AfterValidator(_listed)] = ()
    crop_padding: Annotated[int, Field(ge=0)] = 2
    crop_size: Pixels | tuple[Pixels, Pixels] | None = None
    crop_scale: Annotated[tuple[Part, Part], AfterValidator(_ascending)] = (0.08, 1.0)
    crop_ratio: Annotated[tuple[Positive, Positive], AfterValidator(_ascending)] = (3 / 4, 4 / 3)
    brightness: Share = 0.2
    contrast: Share = 0.2
    saturation: Share = 0.2
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.05

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of all images, where they are resized."""
        return _size(self.image_size)

    @property
    def appends(self) -> bool:
        """Whether augmented copies are added before partitioning, and visits change nothing."""
        return "append" in self.augment

    @property
    def changes(self) -> tuple[str, ...]:
        """The augmentations, in their order."""
        return tuple(name for name in self.augment if name != "append")

    @property
    def strengths(self) -> Mapping[str, Any]:
        """What the augmentations take."""
        own = {key.removeprefix("crop_"): getattr(self, key) for key in STRENGTHS}
        return own | {"size": _size(self.crop_size)}

    def check(self, made: bool) -> None:
        """Refuse keys that make no sense together.

        Args:
            made: whether the clients were made before, so that rows are fixed.

        Raises:
            InputError: the first such pair.
        """
        changed = [key for key, field in Preparation.model_fields.items() if getattr(self, key) != field.default]
        for key in OF_ROWS if made else ():
            if key in changed:
                raise InputError(
                    f"data.{key} with data.population: must be left out, for the clients are made; remove it"
                )
        if made and self.appends:
            raise InputError(
                'data.augment with "append" and data.population: must be without it, for copies are added before the '
                'clients are made; name the augmentations without "append"'
            )
        if self.appends and self.crop_size is not None:
            raise InputError(
                'data.crop_size with data.augment = "append": must be left out, for copies have the size of their '
                "images; remove it"
            )
        for key, names in STRENGTHS.items():
            if key in changed and not set(names) & set(self.augment):
                raise InputError(
                    f'data.{key} = {getattr(self, key)}: must stand with data.augment = ["{names[0]}"]; add it'
                )
        if self.standardise == "client" and "colour-jitter" in self.augment and not self.appends:
            raise InputError(
                'data.standardise = "client" with data.augment = ["colour-jitter"]: must be "global" or "none", for '
                'colours are changed before samples are standardised; set data.standardise = "global"'
            )
