"""The errors: the caller's numbers or their combination make no sense; or training gave numbers that are none."""


class InputError(ValueError):
    """A wrong value, in one line: what, the value, what is allowed, the remedy."""


class DivergedError(RuntimeError):
    """A visit or a merge gave NaN or infinity: one line with whose, the round and the first entry, and the remedy."""


def require(holds: bool, what: str, value: object, allowed: str, remedy: str) -> None:
    """Raise `InputError` unless `holds`; all refusals of this package are worded here."""
    if not holds:
        raise InputError(f"{what} = {value!r}: must be {allowed}; {remedy}")
