"""Values as JSON and arrays, and back, exactly: of classes that are known by name, and without running their code."""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysim.common.errors import InputError

Arrays: TypeAlias = dict[str, NDArray[Any]]
Json: TypeAlias = Any

KINDS = "biuf"
"""The kinds of arrays that are held: numbers, and True and False."""


class Codec:
    """Turns values into JSON and named arrays, and back.

    A value is None, True, a number, a text, a tuple, list or dict of values, an array of numbers, or a frozen
    dataclass of a known class. What appears twice, such as an array that two states share, is held once, and shared
    again afterwards.

    Args:
        classes: our own that are known.
        own: modules of the user, all dataclasses of which are known.
    """

    def __init__(self, classes: Iterable[type], own: Collection[str] = ()) -> None:
        self._classes = {each.__name__: each for each in classes}
        self._own = frozenset(own)

    def encode(self, value: object, given: Mapping[str, object]) -> tuple[Json, Arrays]:
        """The value as JSON, and its arrays.

        Args:
            value: what to hold.
            given: parts of it that are not held, for they will be there again: by a name each, told by identity.

        Raises:
            InputError: it holds something else; the first such thing is named, with the way to it.
        """
        encoder = _Encoder(self._name, given)
        root = encoder.of(value, "")
        return {"objects": encoder.objects, "value": root}, encoder.arrays

    def decode(self, json: Json, arrays: Mapping[str, NDArray[Any]], given: Mapping[str, object]) -> Any:
        """The value again; `given` has the parts that were not held.

        Raises:
            ValueError: of a class that is not known, or that has other fields than it had.
        """
        return _Decoder(self._class, given, json["objects"], arrays).of(json["value"])

    def _name(self, kind: type) -> str | None:
        """How a class is written; None for one that is not known."""
        if self._classes.get(kind.__name__) is kind:
            return kind.__name__
        if _top(kind.__module__) in self._own and is_dataclass(kind) and "<" not in kind.__qualname__:
            return f"{kind.__module__}:{kind.__qualname__}"
        return None

    def _class(self, name: str) -> type:
        module, colon, path = name.partition(":")
        if not colon and name in self._classes:
            return self._classes[name]
        if colon and _top(module) in self._own:
            found: object = reduce(getattr, path.split("."), importlib.import_module(module))
            if isinstance(found, type) and is_dataclass(found):
                return found
        raise ValueError(f"{name} is no class that is known")


class _Encoder:
    """One value on its way into JSON; objects and arrays are numbered as they come."""

    def __init__(self, name: Any, given: Mapping[str, object]) -> None:
        self.objects: list[Json] = []
        self.arrays: Arrays = {}
        self._name = name
        self._given = {id(value): key for key, value in given.items()}
        self._seen: dict[int, tuple[Json, object]] = {}

    def of(self, value: Any, path: str) -> Json:
        if id(value) in self._given:
            return {"given": self._given[id(value)]}
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return value
        if type(value) is list:
            return self._each(value, path)
        if type(value) is float:
            return {"float": repr(value)}
        if type(value) is tuple:
            return {"tuple": self._each(value, path)}
        if type(value) is dict:
            pairs = [(key, each, f"{path}[{key!r}]") for key, each in value.items()]
            return {"dict": [[self.of(key, at), self.of(each, at)] for key, each, at in pairs]}
        if id(value) not in self._seen:
            # The value is held so that no other one gets its id.
            self._seen[id(value)] = self._held(value, path), value
        return self._seen[id(value)][0]

    def _each(self, values: Iterable[Any], path: str) -> list[Json]:
        return [self.of(each, f"{path}[{number}]") for number, each in enumerate(values)]

    def _held(self, value: Any, path: str) -> Json:
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in KINDS and value.dtype.itemsize <= 8:
            number = str(len(self.arrays))
            native = value.dtype.newbyteorder("=")
            self.arrays[number] = np.array(value, native, order="C", copy=None)
            return {"array" if isinstance(value, np.ndarray) else "scalar": number}
        name = self._name(type(value))
        if name is None:
            raise InputError(
                f"{path.lstrip('.') or 'the value'} = {type(value).__module__}.{type(value).__qualname__}: must be a "
                "plain value, an array of numbers, or a dataclass of your module, for a checkpoint holds it; change "
                "what your step leaves in State.own"
            )
        held = {each.name: self.of(getattr(value, each.name), f"{path}.{each.name}") for each in fields(value)}
        self.objects.append({"class": name, "fields": held})
        return {"object": len(self.objects) - 1}


class _Decoder:
    """One value on its way back."""

    def __init__(
        self, known: Any, given: Mapping[str, object], objects: list[Json], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        self._known, self._given, self._arrays = known, given, arrays
        self._made: list[Any] = []
        # An object comes after those that it holds.
        for each in objects:
            self._made.append(self._object(known(each["class"]), each["fields"]))

    def of(self, json: Json) -> Any:
        if isinstance(json, list):
            return [self.of(each) for each in json]
        if not isinstance(json, dict):
            return json
        ((kind, held),) = json.items()
        match kind:
            case "float":
                return float(held)
            case "tuple":
                return tuple(self.of(each) for each in held)
            case "dict":
                return {self.of(key): self.of(each) for key, each in held}
            case "given":
                return self._given[held]
            case "array":
                return self._arrays[held]
            case "scalar":
                return self._arrays[held][()]
            case "object":
                return self._made[held]
        raise ValueError(f"{kind!r} is nothing that is held")

    def _object(self, kind: type, held: Mapping[str, Json]) -> Any:
        if [field.name for field in fields(kind)] != list(held):
            raise ValueError(f"{kind.__name__} has other fields: it was written by another version")
        made: Any = object.__new__(kind)
        for name, json in held.items():
            object.__setattr__(made, name, self.of(json))
        return made


def _top(module: str) -> str:
    return module.partition(".")[0]
