"""Checking a table against a typed model, with errors of one line."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, time
from functools import cache, partial
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import PydanticUndefined

from raysim.common.errors import InputError, unknown


class Table(BaseModel):
    """A table of the experiment file: no unknown keys, no silent conversions, only finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    def beyond(self, base: type[Table]) -> dict[str, Any]:
        """The values of the keys that `base` does not have: what a named function takes."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in base.model_fields}


T = TypeVar("T", bound=Table)


def table_of(function: Callable[..., Any], skip: tuple[str, ...], base: type[T]) -> type[T]:
    """A table of a function's parameters, with their types and defaults, beside the keys of `base`."""
    table: type[T] = _table_of(function, skip, base)
    return table


def table_with(name: str, keys: Mapping[str, tuple[Any, Any]], base: type[T]) -> type[T]:
    """A table with these keys, a type and a default each (`inspect.Parameter.empty`: none), beside those of `base`."""
    fields: dict[str, Any] = {
        key: (kind, ... if default is inspect.Parameter.empty else default) for key, (kind, default) in keys.items()
    }
    return create_model(name, __base__=base, **fields)


@cache
def _table_of(function: Callable[..., Any], skip: tuple[str, ...], base: type[Any]) -> Any:
    subject = function.__init__ if inspect.isclass(function) else function
    hints = get_type_hints(subject)
    given = {name: each for name, each in inspect.signature(function).parameters.items() if name not in skip}
    keys = {name: (hints[name], each.default) for name, each in given.items()}
    return table_with(getattr(function, "__name__", "table"), keys, base)


def checked(model: type[T], raw: Mapping[str, Any], where: str, besides: Collection[str] = (), of: str = "") -> T:
    """Check a table.

    Args:
        model: what is allowed.
        raw: the table as it was written.
        where: its name in the file, for the message; "" at the top.
        besides: keys that are allowed and left for others to check.
        of: the named thing that takes these keys, for the message.

    Raises:
        InputError: an unknown key (its nearest neighbour is named), a wrong type, a number out of range.
    """
    for key in raw:
        if key not in model.model_fields and key not in besides:
            # Its own keys first: those that every table has come last.
            common = model.__base__.model_fields if model.__base__ and issubclass(model.__base__, Table) else {}
            names = sorted(model.model_fields, key=lambda name: name in common)
            raise unknown(f"key {_path(where, key)!r}" + (of and f" of {of}"), key, [*names, *besides])
    try:
        # As JSON: strict about numbers and texts, and a list is a tuple.
        own = {key: value for key, value in raw.items() if key not in besides}
        return model.model_validate_json(json.dumps(own, default=partial(_text, where)))
    except ValidationError as error:
        raise _explained(error, where, model) from None


def _text(where: str, value: Any) -> str:
    """What JSON cannot say as it is, as a text; a date would be one that nobody wrote."""
    if isinstance(value, date | time):
        raise InputError(f"{where or 'the file'} holds {value}, a date or time: must have none; write it in quotes")
    return str(value)


def known(key: str, name: object, table: Mapping[str, Any]) -> Any:
    """The entry of a table of names.

    Raises:
        InputError: no such name; the nearest is named.
    """
    if not isinstance(name, str) or name not in table:
        raise unknown(f"{key} = {name!r}", str(name), list(table))
    return table[name]


def _explained(error: ValidationError, where: str, model: type[Table]) -> InputError:
    """The first of pydantic's findings as one line."""
    found = error.errors()
    key = str(found[0]["loc"][0])
    path = _path(where, key)
    if found[0]["type"] == "missing":
        return InputError(f"{path} is missing: must be given; add it, or --set {path}=VALUE")
    # A key with alternatives ("auto" or a number) has a finding for each; one about an item says more than one
    # about the length that is left without it.
    same = [item["msg"] for item in found if item["loc"][0] == key and item["type"] != "too_short"]
    allowed = " or ".join(
        dict.fromkeys(
            message.removeprefix("Input ").removeprefix("Value error, ") for message in same or [found[0]["msg"]]
        )
    )
    default = model.model_fields[key].get_default()
    has_example = default is not None and default is not PydanticUndefined
    remedy = f"e.g. --set {path}={json.dumps(default)}" if has_example else "correct it, or leave it out"
    return InputError(f"{path} = {found[0]['input']!r}: {allowed}; {remedy}")


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def part(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One of a file's tables, empty where it does not have it; InputError where it is none."""
    table = raw.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{name} = {table!r}: must be a table; write [{name}] and its keys below")
    return table


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a table and, after a dot, of those in it; and their values."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
