"""The order of options, which is that of their hooks and part of every result."""

from __future__ import annotations

from collections.abc import Iterable

from algorithms.core.errors import InputError
from algorithms.parts.option import Option

ORDER = (
    *("devices", "joins", "newcomer", "importance", "virtual-time", "oort", "own-selection", "candidates"),
    *("attack", "uplink", "privacy", "aggregate", "downlink", "dl", "common-step", "bn", "topology", "edges", "sizes"),
    "server-columns",
)
"""Names of the options in the order of their hooks, which is part of every result; other options come last."""

RESERVED = ("server", "until", "redistribution", "arrivals", "clusters")
"""Names of memories that are no option's; see `State.memory`."""


def ordered(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return options in the order of their hooks, with those that they bring.

    Raises:
        InputError: two options have one name, or an option has a name that the engine uses.
    """
    given: dict[str, Option] = {}
    for option in options:
        if not isinstance(option, Option) or not isinstance(option.name, str) or _has_taken(option):
            raise InputError(
                f"option {option}: must be an object of a subclass of Option whose `name` is a text that is no option "
                f"or memory of raysim's, and its name is {getattr(option, 'name', None)!r}; set another name in its "
                "class"
            )
        if given.setdefault(option.name, option) is not option:
            raise InputError(
                f"options {given[option.name]} and {option} of the name {option.name!r}: must have names of their own, "
                "by which their memories are kept; set `name` in the class, or leave one out"
            )
    brought = {each.name: each for option in given.values() for each in option.brings}
    return tuple(sorted((brought | given).values(), key=place))


def _has_taken(option: Option) -> bool:
    """Return whether an option has a name of the engine's; a subclass of one of the engine's options keeps its name."""
    return option.name in RESERVED or (option.name in ORDER and option.name != engine_kind(option).name)


def engine_kind(option: Option) -> type[Option]:
    """Return the nearest class of an option that is the engine's, perhaps `Option` itself."""
    kinds = (kind for kind in type(option).__mro__ if issubclass(kind, Option))
    return next(kind for kind in kinds if kind.__module__.startswith("algorithms."))


def place(option: Option | type[Option]) -> int:
    """Return the place of an option in `ORDER`."""
    return ORDER.index(option.name) if option.name in ORDER else len(ORDER)
