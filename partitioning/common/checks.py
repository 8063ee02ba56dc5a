"""Checks of single values: each returns the value in a plain Python or numpy type, or raises InputError."""

import math
import numbers

import numpy as np
import numpy.typing as npt

from partitioning.common.errors import InputError

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


LARGEST_WHOLE = 10**9
"""Largest number of clients, shards, labels and the like; products of two fit 64 bits."""

LARGEST_SEED = 2**128 - 1
"""Largest seed."""

LARGEST_NUMBER = 1e12
"""Largest concentration or strength; its square fits single precision."""


def whole(name: str, value: object, *, least: int, most: int = LARGEST_WHOLE) -> int:
    """Return `value` as an int from `least` to `most`."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        number = int(value)
        if least <= number <= most:
            return number
        # Python refuses to print numbers of thousands of digits.
        value = number if abs(number) < 2**128 else f"of {number.bit_length()} bits"
    raise InputError(f"{name} is {value!r}: give a whole number from {least} to {most}")


def read_seed(value: object) -> int:
    """Return a seed: a whole number from 0 to 2**128 - 1."""
    return whole("seed", value, least=0, most=LARGEST_SEED)


def positive(name: str, value: object) -> float:
    """Return `value` as a float above 0 and at most `LARGEST_NUMBER`."""
    number = _real(value)
    if number is None or not 0 < number <= LARGEST_NUMBER:
        raise InputError(f"{name} is {value!r}: give a finite number above 0, at most {LARGEST_NUMBER:g}")
    return number


def share(name: str, value: object) -> float:
    """Return `value` as a float in [0, 1)."""
    number = _real(value)
    if number is None or not 0 <= number < 1:
        raise InputError(f"{name} is {value!r}: give a share from 0 up to, but not including, 1")
    return number


def share_or_count(name: str, value: object, *, total: int) -> int:
    """Resolve a share in (0, 1) of `total` to a number, at least 1; return a whole number unchanged."""
    number = _real(value)
    if number is None or not 0 <= number <= LARGEST_WHOLE or (number >= 1 and number != math.floor(number)):
        raise InputError(
            f"{name} is {value!r}: give a share above 0 and below 1, or a whole number to {LARGEST_WHOLE}, 0 for none"
        )
    return max(1, int(floor_share(number, total))) if 0 < number < 1 else int(number)


def floor_share(portion: float, total: int | Integers) -> Integers:
    """Return floor(portion x total); 0.29 of 100 is 29, although 0.29 is slightly smaller in binary."""
    return np.floor(portion * np.asarray(total) + 1e-9).astype(np.int64)


def encode(labels: npt.ArrayLike, name: str = "labels") -> tuple[Integers, Integers]:
    """Return each sample's class number in sorted order of the labels [N], and the samples per class [C].

    Raises:
        InputError: the labels are not a non-empty vector of whole numbers, booleans or strings.
    """
    try:
        array = np.asarray(labels)
    except ValueError:
        raise InputError(f"{name}: the values are lists of different lengths; give one value per sample") from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name}: the shape is {list(array.shape)}; give one dimension with one value per sample")
    words = array.dtype.kind == "O" and all(isinstance(label, str) for label in array)
    if array.dtype.kind not in "biuU" and not words:
        raise InputError(f"{name}: the type is {array.dtype}; give whole numbers or strings, or cast them first")
    _, codes, counts = np.unique(array, return_inverse=True, return_counts=True)
    return codes.astype(np.int64), counts.astype(np.int64)


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
