"""Exact conversion of values to JSON and arrays, and back, without running code of the stored classes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pkgutil import resolve_name
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysim.common.errors import InputError

Arrays: TypeAlias = dict[str, NDArray[Any]]
Json: TypeAlias = Any

KINDS = "biuf"
"""NumPy kinds of arrays that a checkpoint may hold: booleans and numbers."""


class Codec:
    """Converter between values, and JSON with named arrays.

    A value is None, a boolean, a number, a text, an array of numbers, or a frozen dataclass of a known class. Tuples,
    lists and dicts hold values. An object that appears twice, such as an array that two states share, is stored once
    and shared again afterwards.

    Args:
        classes: known classes of raysim.
        own: names of the user's modules; all their dataclasses are known.
    """

    def __init__(self, classes: Iterable[type], own: Collection[str] = ()) -> None:
        self._classes = {each.__name__: each for each in classes}
        self._own = frozenset(own)

    def encode(self, value: object, given: Mapping[str, object]) -> tuple[Json, Arrays]:
        """Return a value as JSON and arrays.

        Args:
            value: value to store.
            given: objects, by name, to refer to instead of storing them.

        Raises:
            InputError: the value holds an object of another kind; its path is named.
        """
        names = {id(each): name for name, each in given.items()}
        objects: list[Json] = []
        arrays: Arrays = {}
        seen: dict[int, tuple[Json, object]] = {}

        def encoded(value: Any, path: str) -> Json:
            if id(value) in names:
                return {"given": names[id(value)]}
            if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
                return value
            if type(value) is float:
                return {"float": repr(value)}
            if type(value) in (list, tuple):
                items = [encoded(each, f"{path}[{index}]") for index, each in enumerate(value)]
                return items if type(value) is list else {"tuple": items}
            if type(value) is dict:
                pairs = [(key, each, f"{path}[{key!r}]") for key, each in value.items()]
                return {"dict": [[encoded(key, at), encoded(each, at)] for key, each, at in pairs]}
            if id(value) not in seen:
                # The reference keeps the id from being used again.
                seen[id(value)] = stored(value, path), value
            return seen[id(value)][0]

        def stored(value: Any, path: str) -> Json:
            if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in KINDS and value.dtype.itemsize <= 8:
                name = str(len(arrays))
                arrays[name] = np.array(value, value.dtype.newbyteorder("="), order="C", copy=None)
                return {"array" if isinstance(value, np.ndarray) else "scalar": name}
            kind = self._name(type(value))
            if kind is None:
                raise InputError(
                    f"{path.lstrip('.') or 'the value'} = {type(value).__module__}.{type(value).__qualname__}: must be "
                    "a plain value, an array of numbers, or a dataclass of your module, because a checkpoint stores "
                    "it; change what your round leaves in State.memory"
                )
            values = {each.name: encoded(getattr(value, each.name), f"{path}.{each.name}") for each in fields(value)}
            objects.append({"class": kind, "fields": values})
            return {"object": len(objects) - 1}

        root = encoded(value, "")
        return {"objects": objects, "value": root}, arrays

    def decode(self, json: Json, arrays: Mapping[str, NDArray[Any]], given: Mapping[str, object]) -> Any:
        """Return the value of `encode`; `given` holds the objects that were not stored.

        Raises:
            ValueError: an unknown class, or a class whose fields have changed.
        """
        objects: list[Any] = []

        def decoded(json: Json) -> Any:
            if isinstance(json, list):
                return [decoded(each) for each in json]
            if not isinstance(json, dict):
                return json
            ((kind, content),) = json.items()
            match kind:
                case "float":
                    return float(content)
                case "tuple":
                    return tuple(decoded(each) for each in content)
                case "dict":
                    return {decoded(key): decoded(each) for key, each in content}
                case "given":
                    return given[content]
                case "array":
                    return arrays[content]
                case "scalar":
                    return arrays[content][()]
                case "object":
                    return objects[content]
            raise ValueError(f"{kind!r} is an unknown kind of value")

        # An object stands after the objects that it holds.
        for each in json["objects"]:
            kind = self._class(each["class"])
            if [field.name for field in fields(kind)] != list(each["fields"]):
                raise ValueError(f"{kind.__name__} has other fields: it was written by another version")
            made: Any = object.__new__(kind)
            for name, content in each["fields"].items():
                object.__setattr__(made, name, decoded(content))
            objects.append(made)
        return decoded(json["value"])

    def _name(self, kind: type) -> str | None:
        """Return the stored name of a class, None for an unknown class."""
        if self._classes.get(kind.__name__) is kind:
            return kind.__name__
        if _top(kind.__module__) in self._own and is_dataclass(kind) and "<" not in kind.__qualname__:
            return f"{kind.__module__}:{kind.__qualname__}"
        return None

    def _class(self, name: str) -> type[Any]:
        module, colon, _ = name.partition(":")
        if not colon and name in self._classes:
            return self._classes[name]
        if colon and _top(module) in self._own:
            found: object = resolve_name(name)
            if isinstance(found, type) and is_dataclass(found):
                return found
        raise ValueError(f"{name} is not a known class")


def _top(module: str) -> str:
    return module.partition(".")[0]
