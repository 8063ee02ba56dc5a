"""Stages that a change of the model passes on its way to the server, or to the clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, isfinite, sqrt
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from algorithms.core.entries import Entry
from algorithms.core.errors import require, require_one

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch

MOST_BYTES = 2**40
"""Largest message: sums of so many bytes over all clients and rounds are whole numbers of 64 bits."""

SEED_BYTES = 8
"""Bytes of the seed from which the server repeats a client's random places."""


@dataclass(frozen=True)
class Changes:
    """Changes of some models on their way to the server.

    Args:
        values: values that are sent, [models, k].
        size: n, number of values of a whole change.
        layers: number of values of each layer; they add up to n.
        places: places of the values among the n, ascending, [models, k]; None if all are sent.
        draws: random stream of each model; empty if no stage draws.
    """

    values: torch.Tensor
    size: int
    layers: tuple[int, ...]
    places: torch.Tensor | None = None
    draws: tuple[torch.Generator, ...] = ()

    def drawn(self, draw: str) -> torch.Tensor:
        """Draw a number for each value from its model's own stream: "rand", uniform in [0, 1), or "randn", normal."""
        import torch

        like = {"dtype": self.values.dtype, "device": self.values.device}
        count = self.values.shape[1]
        return torch.stack([getattr(torch, draw)(count, generator=each, **like) for each in self.draws])

    def at(self, places: torch.Tensor) -> Changes:
        """Return the changes with the values at some of their places alone, [models, k]."""
        kept = places if self.places is None else self.places.gather(1, places)
        return replace(self, values=self.values.gather(1, places), places=kept)

    def whole(self) -> torch.Tensor:
        """Return all n values of each change, [models, n]; 0 where nothing was sent."""
        if self.places is None:
            return self.values
        return self.values.new_zeros(len(self.values), self.size).scatter_(1, self.places, self.values)


def layer_sizes(entries: Iterable[Entry]) -> tuple[int, ...]:
    """Return the number of values of each layer in a change of some entries, in their order."""
    layers = groupby(entries, key=lambda entry: entry.name.rpartition(".")[0])
    return tuple(sum(entry.size for entry in layer) for _, layer in layers)


@dataclass(frozen=True)
class Message:
    """Size of a serialised change.

    Args:
        size: n, number of values of a whole change.
        values: number of values that are sent.
        bits: bits of each value.
        scalar: bytes of a number in full precision, such as a scale.
        beside: bytes of everything beside the values: places, scales, a seed.

    Raises:
        InputError: a field is no number from 0 to `MOST_BYTES`, or all values together have more bytes.
    """

    size: int
    values: int
    bits: int
    scalar: int
    beside: int = 0

    def __post_init__(self) -> None:
        fields: dict[str, Any] = vars(self)
        for name, value in fields.items():
            holds = isinstance(fields[name], Real) and 0 <= value <= MOST_BYTES
            # Python shows no number of more than 4,300 digits.
            shown = "a number beyond 2^64" if isinstance(value, int) and abs(value) > 2**64 else value
            require(holds, f"a Message's {name}", shown, "a number from 0 to 2^40", "correct the stage")
        most = "at most 2^43 bits"
        require(self.values * self.bits <= 8 * MOST_BYTES, "a Message's values x bits", self.bits, most, "send fewer")

    @property
    def nbytes(self) -> int:
        return ceil(self.values * self.bits / 8) + self.beside


@dataclass(frozen=True)
class Stage(ABC):
    """A stage of the chain: it maps the changes of some models, and says how the message's size changes."""

    draws: ClassVar[bool] = False
    """Whether it draws random numbers."""
    picks: ClassVar[bool] = False
    """Whether it sends only some of the values."""
    rounds: ClassVar[bool] = False
    """Whether it sends values in fewer bits."""

    @abstractmethod
    def __call__(self, changes: Changes) -> Changes:
        """Return the changes after this stage."""

    def message(self, message: Message) -> Message:
        """Return the size of the message after this stage."""
        return message


@dataclass(frozen=True)
class Clip(Stage):
    """Clip each change to a largest L2 norm (McMahan et al., 2018, Algorithm 1).

        D <- D min(1, C / |D|)

    Args:
        norm: C, the largest norm of a model's change, > 0.
        by: "model", or "layer" to clip each of L layers to C / sqrt(L), so that the model's norm is at most C.

    Raises:
        InputError: `norm` or `by` is out of range.
    """

    norm: float
    by: Literal["model", "layer"] = "model"

    def __post_init__(self) -> None:
        require(self.norm > 0, "uplink.norm", self.norm, "a number > 0", "set uplink.norm = 1.0")
        require_one("uplink.by", self.by, ("model", "layer"), 'set uplink.by = "model"')

    def __call__(self, changes: Changes) -> Changes:
        import torch

        sizes = [changes.values.shape[1]] if self.by == "model" else list(changes.layers)
        largest = self.norm / sqrt(len(sizes))
        parts = torch.split(changes.values, sizes, dim=1)
        clipped = [part * (largest / _norm(part)).clamp(max=1).to(part) for part in parts]
        return replace(changes, values=torch.cat(clipped, 1))


@dataclass(frozen=True)
class Noise(Stage):
    """Add Gaussian noise to each value that is sent: local noise, which each client adds itself.

        D <- D + N(0, std^2)

    Args:
        std: standard deviation, >= 0.

    Raises:
        InputError: `std` is negative or not finite.
    """

    std: float
    draws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        holds = isfinite(self.std) and self.std >= 0
        require(holds, "uplink.std", self.std, "a finite number >= 0", "set uplink.std = 0.1")

    def __call__(self, changes: Changes) -> Changes:
        return replace(changes, values=changes.values + self.std * changes.drawn("randn"))


@dataclass(frozen=True)
class Picked(Stage):
    """A stage that sends k = max(1, share x n) of n values, rounded to a whole number.

    Args:
        share: share of the values, in (0, 1].

    Raises:
        InputError: `share` is out of range.
    """

    share: float
    picks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, "uplink.share", self.share, "in (0, 1]", "set uplink.share = 0.01")

    def count(self, size: int) -> int:
        """Return k of n values."""
        return min(size, max(1, round(self.share * size)))


@dataclass(frozen=True)
class TopK(Picked):
    """Send the share of values with the largest magnitude (Stich et al., 2018, Definition 2.2).

    The message holds each value, and its place in ceil(log2 n) bits or as one of n bits, whichever is shorter.

    Args:
        share: share of the values, in (0, 1].
    """

    def __call__(self, changes: Changes) -> Changes:
        count = self.count(changes.values.shape[1])
        return changes.at(changes.values.abs().topk(count, dim=1).indices.sort(dim=1).values)

    def message(self, message: Message) -> Message:
        count, all_values = self.count(message.values), message.values
        places = 0 if count == all_values else ceil(min(count * (all_values - 1).bit_length(), all_values) / 8)
        return replace(message, values=count, beside=message.beside + places)


@dataclass(frozen=True)
class RandomK(Picked):
    """Send a random share of the values, and scale them so that their mean over all draws is the change.

        D_j <- (n / k) D_j for k random places j, 0 for the others

    The message holds the values and the seed of their places.

    Args:
        share: share of the values, in (0, 1].
        scale: whether to scale by n / k; error feedback needs values that are not scaled.

    Paper: Stich et al., 2018, Definition 2.2, without the scale; Wangni et al., 2018, with it.
    """

    scale: bool = True
    draws: ClassVar[bool] = True

    def __call__(self, changes: Changes) -> Changes:
        import torch

        size = changes.values.shape[1]
        count, device = self.count(size), changes.values.device
        orders = [torch.randperm(size, generator=each, device=device) for each in changes.draws]
        picked = changes.at(torch.stack(orders)[:, :count].sort(dim=1).values)
        return replace(picked, values=picked.values * (size / count)) if self.scale else picked

    def message(self, message: Message) -> Message:
        count = self.count(message.values)
        seed = SEED_BYTES if count < message.values else 0
        return replace(message, values=count, beside=message.beside + seed)


@dataclass(frozen=True)
class Quantise(Stage):
    """Round each value at random to one of s levels of the change's norm, without bias: QSGD.

        D_j <- |D| sign(D_j) xi_j,   xi_j = l / s or (l + 1) / s, with mean |D_j| / |D|

    The message holds the norm, and each value in ceil(log2(2 s + 1)) bits.

    Args:
        levels: s, number of levels beside 0, from 1 to 2^23.

    Raises:
        InputError: `levels` is out of range.

    Paper: Alistarh et al., 2017, section 3.1. Deviations: all values have the same number of bits, in place of the
    paper's Elias code.
    """

    levels: int
    draws: ClassVar[bool] = True
    rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        holds = 1 <= self.levels <= 2**23
        require(holds, "uplink.levels", self.levels, "a whole number from 1 to 8388608", "set uplink.levels = 16")

    def __call__(self, changes: Changes) -> Changes:
        import torch

        norm = _norm(changes.values).to(changes.values)
        exact = self.levels * changes.values.abs() / norm.where(norm > 0, torch.ones_like(norm))
        below = exact.floor()
        level = below + (changes.drawn("rand") < exact - below)
        return replace(changes, values=norm * changes.values.sign() * (level / self.levels))

    def message(self, message: Message) -> Message:
        return replace(message, bits=(2 * self.levels).bit_length(), beside=message.beside + message.scalar)


@dataclass(frozen=True)
class Sign(Stage):
    """Send the sign of each value, and one scale (Karimireddy et al., 2019, section 4).

        D_j <- |D|_1 / n sign(D_j),   sign(0) = 1

    The message holds the scale, and each sign in a bit.
    """

    rounds: ClassVar[bool] = True

    def __call__(self, changes: Changes) -> Changes:
        import torch

        scale = changes.values.abs().mean(dim=1, keepdim=True)
        return replace(changes, values=torch.where(changes.values < 0, -scale, scale))

    def message(self, message: Message) -> Message:
        return replace(message, bits=1, beside=message.beside + message.scalar)


def _norm(values: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of each row, [models, 1], in float64: sums of millions of float32 squares lose digits."""
    import torch

    norm: torch.Tensor = torch.linalg.vector_norm(values, dim=1, keepdim=True, dtype=torch.float64)
    return norm
