"""True range of a number in the experiment file, found by building the part that checks it.

A typed table knows its bounds. A part such as `Local` checks its numbers itself, in its constructor. Its bounds are
found by trying values: first the round numbers that are usual bounds, and then a bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nextafter
from typing import Any, TypeVar

from annotated_types import Ge, Gt, Le, Lt

from raysim.common.errors import InputError, one_input_error
from raysim.config.bounds import LARGEST_NUMBER, LARGEST_WHOLE

Number = TypeVar("Number", int, float)
Accepts = Callable[[Any], bool]

LIMITS: Mapping[type, float] = {int: LARGEST_WHOLE, float: LARGEST_NUMBER}
"""Bounds of numbers without narrower ones."""

USUAL = (0, 1, 2, 0.5, 10, 100, 1000)
"""Numbers that are usual bounds."""

INSIDE = (1, 0.5, 0, 2, 0.1, 10, 100, 0.001, 1000)
"""Numbers of which every range holds one."""

POWERS = {2**63: "2^63", 10**9: "10^9", -(10**9): "-10^9", 1e12: "10^12", -1e12: "-10^12", 2**23: "2^23"}
"""Bounds that are read more easily as powers."""


@dataclass(frozen=True)
class Range:
    """Range of a number; `least` and `most` belong to it unless they are `above` and `below`."""

    least: float
    most: float
    above: bool = False
    below: bool = False

    def __str__(self) -> str:
        lower, upper = ">" if self.above else "≥", "<" if self.below else "≤"
        return f"{lower} {_shown(self.least)}, {upper} {_shown(self.most)}"

    def text(self, kind: type) -> str:
        """Return the range without the ends that every number of this type has; empty if it has no others."""
        lower, _, upper = str(self).partition(", ")
        limit = LIMITS[kind]
        ends = ((lower, self.above or self.least != -limit), (upper, self.below or self.most != limit))
        return ", ".join(end for end, is_own in ends if is_own)

    def holds(self, value: float) -> bool:
        """Return whether a number lies in the range."""
        is_above = value > self.least if self.above else value >= self.least
        return is_above and (value < self.most if self.below else value <= self.most)


@dataclass(frozen=True)
class Construction:
    """Construction of the part that checks some keys.

    Args:
        build: function of the keys' values; it raises InputError for a value out of range.
        beside: other keys to try a value with. Some keys are taken, or checked, only beside others.
    """

    build: Callable[[Mapping[str, Any]], object]
    beside: Sequence[Mapping[str, Any]] = ({},)

    def tests(self, key: str) -> list[Accepts]:
        """Return functions that tell whether a key may have a value, one for each of the other keys."""
        return [lambda value, other=other: self.builds({**other, key: value}) for other in self.beside]  # type: ignore[misc]

    def builds(self, keys: Mapping[str, Any]) -> bool:
        """Return whether the part can be built from some keys."""
        try:
            with one_input_error():
                self.build(keys)
        except InputError:
            return False
        return True


def static_range(kind: type, metadata: Sequence[Any]) -> Range:
    """Return the bounds of a typed number; without its own, those of every number of a file."""
    ends = {type(each): getattr(each, type(each).__name__.lower()) for each in metadata if type(each) in _ENDS}
    limit = LIMITS[kind]
    least, most = ends.get(Gt, ends.get(Ge, -limit)), ends.get(Lt, ends.get(Le, limit))
    return Range(least, most, Gt in ends, Lt in ends)


_ENDS = (Ge, Gt, Le, Lt)


def true_range(kind: type, static: Range, tests: Sequence[Accepts]) -> Range | None:
    """Return the range of the numbers that every test accepts.

    Tests that accept no number, or only one where others accept more, do not count: their other keys exclude the key.

    Args:
        kind: int or float.
        static: bounds of the typed table.
        tests: functions that accept numbers of an interval.

    Returns:
        The range; None if no test accepts any number.
    """
    found = [each for test in tests if (each := _accepted(kind, static, test)) is not None]
    if not found:
        return None
    found = [each for each in found if each.least < each.most] or found
    lowest = max(found, key=lambda each: (each.least, each.above))
    highest = min(found, key=lambda each: (each.most, not each.below))
    return Range(lowest.least, highest.most, lowest.above, highest.below)


def _accepted(kind: type, static: Range, accepts: Accepts) -> Range | None:
    """Return the interval of the numbers that are accepted; None if no number is."""
    inside = next((kind(each) for each in _inside(kind, static) if accepts(kind(each))), None)
    if inside is None:
        return None
    least, above = _end(kind, kind(static.least), static.above, inside, accepts, -1)
    most, below = _end(kind, kind(static.most), static.below, inside, accepts, 1)
    return Range(least, most, above, below)


def _inside(kind: type, static: Range) -> Iterator[float]:
    middle = (static.least + static.most) / 2
    return (each for each in (*INSIDE, middle) if static.holds(each) and (kind is float or each == int(each)))


def _end(
    kind: type[Number], end: Number, is_open: bool, inside: Number, accepts: Accepts, sign: int
) -> tuple[Number, bool]:
    """Return an end of the range, and whether it lies outside; `sign` is 1 for the upper end."""
    farthest = _beside(end, -sign) if is_open else end
    if accepts(farthest):
        return end, is_open
    for each in (kind(usual) for usual in USUAL if kind is float or usual == int(usual)):
        if (inside - each) * sign > 0 or (each - end) * sign > 0:
            continue
        if accepts(each):
            if not accepts(_beside(each, sign)):
                return each, False
        elif each != inside and kind is float and accepts(_beside(each, -sign)):
            return each, True
    return _bisected(farthest, inside, accepts), False


def _bisected(outside: Number, inside: Number, accepts: Accepts) -> Number:
    """Return the last accepted number on the way from one inside to one outside."""
    while (middle := _middle(outside, inside)) not in (outside, inside):
        outside, inside = (outside, middle) if accepts(middle) else (middle, inside)
    return inside


def _middle(one: Number, other: Number) -> Number:
    return (one + other) // 2 if isinstance(one, int) else (one + other) / 2


def _beside(value: Number, sign: int) -> Number:
    """Return the next number above or below."""
    return value + sign if isinstance(value, int) else nextafter(value, sign * inf)


def _shown(value: float) -> str:
    if value in POWERS:
        return POWERS[value]
    return str(int(value)) if value == int(value) else repr(value)
