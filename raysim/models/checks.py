"""Checks of the numbers that describe a model."""

from collections.abc import Sequence

from raysim.errors import InputError


def positive(name: str, value: object) -> int:
    """Return `value` if it is a positive whole number.

    Raises:
        InputError: it is not, `name` says of which parameter.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is {value!r}, but must be a positive whole number: set {name} to 1 or more")
    return value


def positives(name: str, values: object) -> tuple[int, ...]:
    """Return `values` as a tuple if it is a list of at least one positive whole number.

    Raises:
        InputError: it is not, `name` says of which parameter.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise InputError(f"{name} is {values!r}, but must be a list of positive whole numbers, like [200, 200]")
    return tuple(positive(f"{name}[{i}]", value) for i, value in enumerate(values))
