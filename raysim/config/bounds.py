"""Bounds of all numbers and texts of a file. They keep every product of two numbers in the range of its type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from os import PathLike
from typing import Any

from partitioning.common.text import described, printable
from raysim.common.errors import InputError

LARGEST_WHOLE = 10**9
"""Largest whole number of a key, and with a minus sign the smallest, unless the key has narrower bounds."""

LARGEST_NUMBER = 1e12
"""Largest number of a key with fractions, and with a minus sign the smallest, unless the key has narrower bounds."""

DEEPEST = 32
"""Largest number of tables and lists inside each other."""

PLAIN = (str, int, float, date, time, PathLike, type(None))
"""Types of values that a file can hold, or that become text."""

MOST_ITEMS = 1000
"""Most numbers of an array that stands for a list; larger ones are data."""

_LIMITS = {"int": LARGEST_WHOLE, "float": LARGEST_NUMBER}


def bounded(schema: Any) -> Any:
    """Return pydantic's schema of a table with bounds for each number that lacks them; `schema` is changed.

    Args:
        schema: schema, or a part of one.
    """
    if isinstance(schema, dict):
        if (limit := _LIMITS.get(schema.get("type", ""))) is not None:
            if not schema.keys() & {"le", "lt"}:
                schema["le"] = limit
            if not schema.keys() & {"ge", "gt"}:
                schema["ge"] = -limit
        for inner in schema.values():
            bounded(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            bounded(inner)
    return schema


def plain(value: Any) -> Any:
    """Return a number or a short array of NumPy, or a tuple of them, as Python's own; any other value unchanged."""
    if type(value) is tuple:
        return [*map(plain, value)]
    is_short = type(value).__module__ == "numpy" and getattr(value, "size", MOST_ITEMS + 1) <= MOST_ITEMS
    return value.tolist() if is_short else value


def check_values(raw: Mapping[str, Any]) -> None:
    """Check that all values of a file can be shown, compared and written.

    Raises:
        InputError: a key is no text, a whole number has more than 64 bits, a text has a zero byte or is not UTF-8, or
            tables and lists are nested too deeply.
    """
    waiting: list[tuple[str, Any, int]] = [("", raw, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        is_data = any(f".{key}." in f".{path}." for key in ("data.dataset", "data.test"))
        value = value if is_data else plain(value)
        if isinstance(value, str):
            if fault := _fault(value):
                raise InputError(f"{path} {fault}: must be a text in UTF-8; correct it")
        elif isinstance(value, Mapping | list | tuple):
            if depth > DEEPEST:
                raise InputError(f"{path} is nested more than {DEEPEST} deep: must be flatter; correct it")
            entries = value.items() if isinstance(value, Mapping) else ((None, each) for each in value)
            waiting += [(_below(path, key), inner, depth + 1) for key, inner in entries]
            # Keys come last, to be checked first: the paths of the values contain them.
            for key in value if isinstance(value, Mapping) else ():
                where = f"a key of {path or 'the file'}"
                if not isinstance(key, str):
                    raise InputError(f"{where} is {printable(repr(key), 80)}: must be a text; write it in quotes")
                waiting.append((where, key, 0))
        elif not (isinstance(value, PLAIN) or callable(value)):
            remedy = "only data.dataset and data.test take data in memory"
            if is_data:
                remedy = (
                    "only raysim.run takes data in memory, and a study does not; write them to Parquet, and give "
                    '"file:PATH.parquet"'
                )
            raise InputError(f"{path} is {described(value)}: must be what a file can hold; {remedy}")
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InputError(f"{path} is a whole number of {value.bit_length()} bits: must fit 64 bits; correct it")


def _below(path: str, key: object) -> str:
    return path if key is None else f"{path}.{key}" if path else str(key)


def _fault(text: str) -> str:
    if "\0" in text:
        return "has a zero byte"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "has a character that is not UTF-8"
    return ""
