"""Errors: a wrong input, a training that diverged, or damaged personal state."""

from collections.abc import Iterator, Sequence


class InputError(ValueError):
    """Wrong input, in one line: key, value, allowed values, remedy.

    Args:
        message: the line.
        others: lines of further mistakes found with it.
    """

    def __init__(self, message: str, others: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.others = tuple(others)


class DivergedError(RuntimeError):
    """NaN or infinity from a client update or an aggregation, in one line: source, round, first bad entry, remedy."""


class DamagedError(RuntimeError):
    """Personal state that is not as it was written, in one line: file and place."""


def wrong(holds: bool, what: str, value: object, allowed: str, remedy: str) -> Iterator[str]:
    """Yield the line of a mistake unless `holds`."""
    if not holds:
        yield f"{what} = {value!r}: must be {allowed}; {remedy}"


def require(holds: bool, what: str, value: object, allowed: str, remedy: str) -> None:
    """Raise `InputError` unless `holds`."""
    for line in wrong(holds, what, value, allowed, remedy):
        raise InputError(line)


def require_one(what: str, value: object, allowed: Sequence[str], remedy: str) -> None:
    """Raise `InputError` unless a value is one of some names."""
    *names, last = (f'"{each}"' for each in allowed)
    require(value in allowed, what, value, f"{', '.join(names)} or {last}", remedy)
