"""Amounts of memory with units."""

import re

from partitioning.common.errors import InputError, listing

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def parse_bytes(name: str, text: str) -> int:
    """Return the bytes of an amount such as "256MB" or "1.5 GiB".

    Args:
        text: amount and unit.
    """
    amount = _AMOUNT.fullmatch(text.strip())
    factor = {unit.lower(): factor for unit, factor in _UNITS.items()}.get(amount[2].lower()) if amount else None
    size = int(float(amount[1]) * factor) if amount and factor else 0
    if size < 1:
        raise InputError(f"{name} is {text!r}: give a number above 0 and one of {listing(_UNITS)}, as 256MB")
    return size
