"""Keys of partition schemes in the experiment file, with the bounds that hold for any data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import Field

from partitioning.schemes.registry import parameters

_POSITIVE: Mapping[type, Any] = {float: Field(gt=0)}
_COUNT: Mapping[type, Any] = {int: Field(ge=1)}
_SHARE: Mapping[type, Any] = {float: Field(gt=0, le=1)}

BOUNDS: Mapping[str, Mapping[type, Any]] = {
    "size_alpha": _POSITIVE,
    "label_alpha": _POSITIVE,
    "feature_alpha": _POSITIVE,
    "min_size": {int: Field(ge=0)},
    "natural.min_size": _COUNT,
    "burn_in": {int: Field(ge=0)},
    "search": _COUNT,
    "step": _SHARE,
    "burn_in_ratio": {float: Field(ge=1)},
    "shards_per_client": _COUNT,
    "shards": _COUNT,
    "least_shards": {int: Field(ge=0)},
    "most_shards": _COUNT,
    "classes_per_client": {**_COUNT, float: Field(gt=0, lt=1)},
    "table": {int: Field(ge=0)},
    "clients_per_domain": _COUNT,
    "fraction": _SHARE,
    "feature-noise.strength": _POSITIVE,
    "concept.strength": _SHARE,
}
"""Bounds of the whole numbers and of the numbers that a key holds, of every scheme or of `SCHEME.KEY`."""


def scheme_keys(scheme: str) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each key of a scheme.

    Raises:
        InputError: an unknown scheme.
    """
    return {
        name: (_within(each.file_type, BOUNDS.get(f"{scheme}.{name}", BOUNDS.get(name, {}))), each.default)
        for name, each in parameters(scheme).items()
    }


def _within(kind: Any, bounds: Mapping[type, Any]) -> Any:
    """Return a type whose numbers have bounds."""
    inner = tuple(_within(each, bounds) for each in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, inner)
    if inner and isinstance(get_origin(kind), type):
        return get_origin(kind)[inner]
    return Annotated[kind, bounds[kind]] if kind in (int, float) and kind in bounds else kind
