"""Augmentation of samples by a user's own function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from algorithms.core.returned import Returned
from raysim.common.errors import InputError, one_input_error

HALF = 24
"""Bits of a draw, a float32: two draws make a seed."""

Change = Callable[[torch.Tensor, torch.Generator], Any]
"""Function of a sample, or its label, and the sample's generator."""


@dataclass(frozen=True)
class OwnAugmentation:
    """Change of each sample by a user's function of the sample, [*shape], and a generator of the sample's draws.

    The generator is one of the CPU. Labels that are images stay, unless the function has an attribute `labels`, a
    function of a label, [height, width], and an equal generator.

    Args:
        name: name in the experiment file.
        function: the function; its result has the sample's shape and type.
    """

    name: str
    function: Change = field(repr=False)
    numbers = 2

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of changed samples, which stays; raise InputError if the function fails on zeros."""
        try:
            with one_input_error():
                Returned(f"data.augment = {self.name!r}", self.function).tried(
                    partial(self, torch.zeros(1, *shape), torch.zeros(1, self.numbers)),
                    "compute it anew for each sample, or make it in `__init__` if it never changes",
                )
        except (InputError, KeyboardInterrupt):
            raise
        except BaseException as error:  # A user's own function may raise anything.
            text = f"{type(error).__name__}: {error}".partition("\n")[0]
            package = error.name if isinstance(error, ModuleNotFoundError) else None
            remedy = (
                f"install {package}, or import it at the top if it lies beside your file" if package else "correct it"
            )
            raise InputError(
                f"data.augment = {self.name!r}: must take samples of shape {shape}, and raised {text}; {remedy}"
            ) from error
        return shape

    def __call__(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the changed samples; see `algorithms.Augment`."""
        return self._each(self.function, x, draws)

    def labels(self, y: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return labels that are images, changed by the same draws if the function has `labels`."""
        change: Change | None = getattr(self.function, "labels", None)
        return y if change is None else self._each(change, y, draws)

    def _each(self, change: Change, values: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        changed, rng = values.clone(), torch.Generator()
        for place, (high, low) in enumerate((draws.double() * 2**HALF).long().tolist()):
            found = change(values[place].clone(), rng.manual_seed(high << HALF | low))
            if not isinstance(found, torch.Tensor) or (found.shape, found.dtype) != (values.shape[1:], values.dtype):
                wanted = f"{tuple(values.shape[1:])} of {values.dtype}"
                tensor = isinstance(found, torch.Tensor)
                given = f"{tuple(found.shape)} of {found.dtype}" if tensor else f"a {type(found).__name__}"
                returned = Returned(f"data.augment = {self.name!r}", change)
                raise returned.fault(f"return a tensor {wanted}, like the given one, and returns {given}")
            changed[place] = found
        return changed
