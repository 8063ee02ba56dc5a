"""Checks of a table against a typed model, with errors of one line."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, time
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, create_model
from pydantic_core import CoreSchema, PydanticUndefined

from partitioning.common.text import printable
from raysim.common.errors import InputError, UnknownError, joined
from raysim.common.surface import given
from raysim.config.bounds import bounded


class ConfigTable(BaseModel):
    """A table of the experiment file: no unknown keys, no silent conversions, only finite numbers."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Give every number of the table bounds, see `raysim.config.bounds`."""
        schema: CoreSchema = bounded(handler(source))
        return schema

    def to_toml(self) -> dict[str, Any]:
        """Return the table as one of a file, every default included."""
        return self.model_dump(mode="json", exclude_none=True, serialize_as_any=True)

    def beyond(self, base: type[ConfigTable]) -> dict[str, Any]:
        """Return the values of the keys that `base` lacks: the arguments of a named function."""
        common = base.model_fields
        return {key: getattr(self, key) for key in type(self).model_fields if key not in common}


LONGEST = 120
"""Most characters of a wrong value in a message."""


KINDS = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a text",
    "a valid boolean": "true or false",
    "a valid (tuple|list|array)": "a list",
    "an object": "a table",
    "Tuple should have at least 1 item after validation, not 0": "should have at least one item",
    r"Tuple should have at most (\d+) items? after validation, not \d+": r"should be a list of at most \1 items",
    "Field required": "should be a longer list",
    "String should have at least 1 character": "should be a text that is not empty",
}
"""Patterns of pydantic's words for types of values and for lengths, and ours."""

OF_REPRODUCTIONS = ("reproduction", "reduced", "claim", "figure")
"""Tables of the file of a reproduction, whose keys `raysim list keys` does not list."""


class UnknownKeyError(UnknownError):
    """Unknown key of a table.

    Args:
        where: name of the table; "" at the top level.
        key: key in the table.
        allowed: known keys of the table.
        of: named thing that takes these keys, such as "algorithm fedprox".
        nearest: question that names the nearest known key; by default about this table's, if one is near.
        above: path of the table that holds this one, and a dot; "" for the file.
    """

    def __init__(
        self, where: str, key: str, allowed: Collection[str], of: str = "", nearest: str = "", above: str = ""
    ) -> None:
        self.where, self.of, self.above = where, of, above
        listed = where.partition(".")[0] not in OF_REPRODUCTIONS
        more = f"see `raysim list keys {where or 'top'}`" if listed else "use one of them"
        super().__init__(f"key {above + _path(where, key)!r}" + (of and f" of {of}"), key, allowed, nearest, more=more)

    def inside(self, above: str, nearest: str = "") -> UnknownKeyError:
        """Return the error with the path of the table that holds this one, and perhaps another question."""
        return UnknownKeyError(self.where, self.name, self.allowed, self.of, nearest, above)


T = TypeVar("T", bound=ConfigTable)
Names = TypeVar("Names", bound=tuple[Any, ...])


def distinct(names: Names) -> Names:
    """Return the names; raise ValueError if one stands twice. For pydantic's `AfterValidator`."""
    if len(set(names)) < len(names):
        raise ValueError("should name each only once")
    return names


def table_in(annotation: Any) -> type[ConfigTable] | None:
    """Return the table of keys in a type such as `tuple[Table, ...]` or `Table | None`; None if there is none."""
    if inspect.isclass(annotation) and issubclass(annotation, ConfigTable):
        return annotation
    return next((table for inner in get_args(annotation) if (table := table_in(inner))), None)


@cache
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function or class; it is read once, because a study asks at every point of its grid."""
    return inspect.signature(function)


def table_of(function: Callable[..., Any], skip: tuple[str, ...], base: type[T]) -> type[T]:
    """Return a table of a function's parameters, with their types and defaults, beside the keys of `base`."""
    table: type[T] = _table_of(function, skip, base)
    return table


def table_with(name: str, keys: Mapping[str, tuple[Any, Any]], base: type[T]) -> type[T]:
    """Return a table with more keys than `base`.

    Args:
        name: name of the class.
        keys: type and default of each key; `inspect.Parameter.empty` is no default.
        base: table with the common keys.
    """
    fields: dict[str, Any] = {
        key: (kind, ... if default is inspect.Parameter.empty else default) for key, (kind, default) in keys.items()
    }
    # These keys have no docstrings, and pydantic would look for them in the files of all modules.
    return create_model(name, __base__=base, __cls_kwargs__={"use_attribute_docstrings": False}, **fields)


@cache
def _table_of(function: Callable[..., Any], skip: tuple[str, ...], base: type[Any]) -> Any:
    given = {name: each for name, each in inspect.signature(function).parameters.items() if name not in skip}
    hints = _hints(function.__init__ if inspect.isclass(function) else function, given)
    own = fields(function) if is_dataclass(function) else ()
    made = {field.name: field.default_factory() for field in own if field.default_factory is not MISSING}
    keys = {name: (hints.get(name, type(each.default)), made.get(name, each.default)) for name, each in given.items()}
    return table_with(getattr(function, "__name__", "table"), keys, base)


def _hints(function: Callable[..., Any], names: Collection[str]) -> dict[str, Any]:
    """Return the types of some parameters; the other annotations may name modules that are not imported."""
    written = {name: hint for name, hint in getattr(function, "__annotations__", {}).items() if name in names}
    return get_type_hints(
        SimpleNamespace(__annotations__=written),
        getattr(inspect.unwrap(function), "__globals__", {}),
        include_extras=True,
    )


def checked(model: type[T], raw: Mapping[str, Any], where: str, besides: Collection[str] = (), of: str = "") -> T:
    """Check a table.

    Args:
        model: allowed keys and types.
        raw: the table from the file.
        where: name of the table, for the message; "" at the top level.
        besides: further keys, checked elsewhere.
        of: named thing that takes these keys, for the message.

    Raises:
        InputError: unknown keys (their nearest neighbours are named), wrong types, numbers out of range.
    """
    errors = list(_unknown_keys(model, raw, where, besides, of))
    keys = model.model_fields
    own = {key: value for key, value in raw.items() if key in keys and key not in besides}
    try:
        # JSON mode is strict about numbers and texts, and turns a list into a tuple.
        table = model.model_validate_json(json.dumps(own, default=partial(_text, where)))
    except ValidationError as error:
        errors += _explained(error.errors(), where, model)
    except InputError as error:
        errors.append(error)
    if errors:
        raise joined(errors)
    return table


def _unknown_keys(
    model: type[ConfigTable], raw: Mapping[str, Any], where: str, besides: Collection[str], of: str
) -> Iterator[InputError]:
    keys = model.model_fields
    for key in raw:
        if key not in keys and key not in besides:
            # Keys of this table first, common keys last.
            common = model.__base__.model_fields if model.__base__ and issubclass(model.__base__, ConfigTable) else {}
            names = sorted(keys, key=lambda name: name in common)
            yield UnknownKeyError(where, key, [*names, *besides], of)


def _text(where: str, value: Any) -> str:
    """Return a value that JSON lacks as text; refuse a date, which is a text without quotes."""
    if isinstance(value, date | time):
        raise InputError(f"{where or 'the file'} holds {value}, a date or time: must have none; write it in quotes")
    return str(value)


def _explained(findings: Sequence[Any], where: str, model: type[ConfigTable]) -> Iterator[InputError]:
    """Yield pydantic's findings in one line for each key, those of inner tables with the inner key."""
    found: dict[str, list[Any]] = {}
    for finding in findings:
        found.setdefault(str(finding["loc"][0]), []).append(finding)
    for key, own in found.items():
        inner = table_in(model.model_fields[key].annotation) if key in model.model_fields else None
        if inner is not None and len(own[0]["loc"]) > 1:
            yield from _explained([{**each, "loc": each["loc"][1:]} for each in own], _path(where, key), inner)
        elif own[0]["type"] == "extra_forbidden":
            yield UnknownKeyError(where, key, list(model.model_fields))
        else:
            yield _finding(key, own, where, model)


def _finding(key: str, found: Sequence[Any], where: str, model: type[ConfigTable]) -> InputError:
    path = _path(where, key)
    if found[0]["type"] == "missing" and len(found[0]["loc"]) == 1:  # and not an item of a list
        return InputError(f"{path} is missing: must be given; add it, or {given('set', f'{path}=VALUE')}")
    # A key with alternatives ("auto" or a number) has a finding for each.
    # A finding about an item says more than "too short", which the removed item causes.
    same = [item["msg"] for item in found if item["type"] != "too_short"]
    allowed = " or ".join(dict.fromkeys(_plain(message) for message in same or [found[0]["msg"]]))
    allowed = allowed.replace(" or should be ", " or ")
    default = model.model_fields[key].get_default()
    has_example = default is not None and default is not PydanticUndefined and not isinstance(default, BaseModel)
    remedy = f"e.g. {given('set', f'{path}={json.dumps(default)}')}" if has_example else "correct it, or leave it out"
    return InputError(f"{path} = {printable(repr(found[0]['input']), LONGEST)}: {allowed}; {remedy}")


def _plain(message: str) -> str:
    """Return a message of pydantic in the words of an experiment file."""
    message = message.removeprefix("Input ").removeprefix("Value error, ")
    for theirs, ours in KINDS.items():
        message = re.sub(rf"\b{theirs}\b", ours, message)
    return message


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def changed_keys(table: ConfigTable) -> list[str]:
    """Return the keys with another value than their default."""
    return [key for key, field in type(table).model_fields.items() if getattr(table, key) != field.default]


def part(raw: Mapping[str, Any], name: str, where: str = "") -> dict[str, Any]:
    """Return a table of the file, empty if it is missing.

    Args:
        raw: table that holds it.
        name: key of the table.
        where: path of `raw`, for the message; "" for the whole file.

    Raises:
        InputError: the value is no table.
    """
    table = raw.get(name, {})
    if not isinstance(table, dict):
        path = _path(where, name)
        raise InputError(f"{path} = {table!r}: must be a table; write [{path}] and its keys below")
    return table


def flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys and values of nested tables, with dotted keys."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
