"""Errors: a wrong input, a training that diverged, or damaged personal state."""


class InputError(ValueError):
    """Wrong input, in one line: key, value, allowed values, remedy."""


class DivergedError(RuntimeError):
    """NaN or infinity from a client update or an aggregation, in one line: source, round, first bad entry, remedy."""


class DamagedError(RuntimeError):
    """Personal state that is not as it was written, in one line: file and place."""


def require(holds: bool, what: str, value: object, allowed: str, remedy: str) -> None:
    """Raise `InputError` unless `holds`."""
    if not holds:
        raise InputError(f"{what} = {value!r}: must be {allowed}; {remedy}")
