"""Types of keys as a reader of TOML knows them, with the ranges of their numbers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from raysim.config.check import ConfigTable
from raysim.config.ranges import LIMITS, Accepts, static_range, true_range

WORDS = {int: "integer", float: "number", str: "text", bool: "true or false"}


def kind(annotation: Any, metadata: Iterable[Any] = (), tests: Sequence[Accepts] = ()) -> str:
    """Describe a type as a reader of TOML knows it, with the ranges of its numbers.

    Args:
        annotation: type of a key.
        metadata: bounds of the key, as `annotated_types` has them.
        tests: functions that accept values of the key, for numbers whose bounds the type does not know.
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [each for one in inner[1:] for each in (one.metadata if isinstance(one, FieldInfo) else [one])]
        return kind(inner[0], [*bounds, *metadata], tests)
    if origin is Literal:
        return " or ".join(json.dumps(value) for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(
            dict.fromkeys(
                kind(one, metadata, tests) for one in inner if one is not NoneType and get_origin(one) is not Callable
            )
        )
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return f"table of {_single(kind(inner[1], (), [_in_table(test) for test in tests]))}"
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return _list(origin, inner, tests)
    if annotation in LIMITS:
        static = static_range(annotation, list(metadata))
        own = (true_range(annotation, static, tests) or static).text(annotation)
        return f"{WORDS[annotation]} {own}".rstrip()
    if inspect.isclass(annotation) and issubclass(annotation, ConfigTable):
        return "table"
    return WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _list(origin: type, inner: Sequence[Any], tests: Sequence[Accepts]) -> str:
    items = [one for one in inner if one is not Ellipsis]
    count = len(items) if origin is tuple and Ellipsis not in inner else 0
    item = kind(items[0], (), [_in_list(test, (count,) if count else (1, 2)) for test in tests])
    return f"list of {count}: {_single(item)}" if count else f"list of {_single(item)}"


def _single(text: str) -> str:
    return f"({text})" if " or " in text else text


def _in_list(accepts: Accepts, sizes: Sequence[int]) -> Accepts:
    return lambda value: any(accepts([value] * size) for size in sizes)


def _in_table(accepts: Accepts) -> Accepts:
    return lambda value: accepts({"x": value})


def choices(annotation: Any) -> Iterator[Any]:
    """Yield the names in a type such as `Literal["a", "b"] | None`."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for inner in get_args(annotation):
            yield from choices(inner)
