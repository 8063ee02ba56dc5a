"""The keys of `[data]` that say what happens to samples between a data set's table and a visit's batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from raysim.config.check import Table
from raysim.errors import InputError

Pixels = Annotated[int, Field(ge=1)]
Augmentation = Literal["append", "crop", "flip", "colour-jitter"]
Share = Annotated[float, Field(ge=0, le=1)]

FEDMMB: tuple[Augmentation, ...] = ("append", "flip", "colour-jitter")
"""What "append" alone means: FedMMB's offline augmentation."""

OF_ROWS = ("split", "classes")
"""Keys that choose the rows of a population that is to be made."""

STRENGTHS = {"crop_padding": "crop", **dict.fromkeys(("brightness", "contrast", "saturation", "hue"), "colour-jitter")}
"""Of which augmentation each key is."""


def _listed(names: Augmentation | tuple[Augmentation, ...]) -> tuple[Augmentation, ...]:
    listed = (names,) if isinstance(names, str) else names
    if len(set(listed)) < len(listed):
        raise ValueError("should name each only once")
    return FEDMMB if listed == ("append",) else listed


class Preparation(Table):
    """The part of `[data]` that prepares samples; see "Preparing samples" in the README."""

    split: Literal["train", "test", "all"] = "train"
    classes: Annotated[tuple[int | str, ...], Field(min_length=1)] | None = None
    image_size: Pixels | tuple[Pixels, Pixels] | None = None
    channels: Literal[1, 3] | None = None
    standardise: Literal["none", "global", "client"] = "none"
    augment: Annotated[Augmentation | tuple[Augmentation, ...], AfterValidator(_listed)] = ()
    crop_padding: Pixels = 2
    brightness: Share = 0.2
    contrast: Share = 0.2
    saturation: Share = 0.2
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.05

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of all images, where they are resized."""
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size

    @property
    def appends(self) -> bool:
        """Whether augmented copies are added before partitioning, and visits change nothing."""
        return "append" in self.augment

    @property
    def changes(self) -> tuple[str, ...]:
        """The augmentations, in their order."""
        return tuple(name for name in self.augment if name != "append")

    @property
    def strengths(self) -> Mapping[str, float]:
        """What the augmentations take."""
        own = {key: getattr(self, key) for key in STRENGTHS}
        return {"padding": own.pop("crop_padding"), **own}

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
        for key, name in STRENGTHS.items():
            if key in changed and name not in self.augment:
                raise InputError(
                    f'data.{key} = {getattr(self, key)}: must stand with data.augment = ["{name}"]; add it'
                )
        if self.standardise == "client" and "colour-jitter" in self.augment and not self.appends:
            raise InputError(
                'data.standardise = "client" with data.augment = ["colour-jitter"]: must be "global" or "none", for '
                'colours are changed before samples are standardised; set data.standardise = "global"'
            )
