"""What of an algorithm's hyper-parameters is searched, and what it takes from the winners that it is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import product
from typing import Any

from raysim.common.errors import InputError, unknown
from raysim.config.check import known, part
from raysim.config.experiment import Experiment
from raysim.config.read import assign

EVERY = "*"
"""In `[study.grid]`, all algorithms."""

Point = Mapping[str, Any]
"""Hyper-parameters: values by key paths in the algorithm's table."""


@dataclass(frozen=True)
class Source:
    """Where an inherited hyper-parameter comes from.

    Args:
        algorithm: whose winner has it.
        key: its path there.
    """

    algorithm: str
    key: str

    def value(self, table: Mapping[str, Any]) -> Any:
        """What the algorithm's resolved table says; None where it leaves the key out.

        Raises:
            InputError: the table has no such key.
        """
        *path, last = self.key.split(".")
        inner = reduce(lambda place, key: place.get(key, {}) if isinstance(place, Mapping) else {}, path, table)
        if last not in inner:
            raise unknown(f"key {self.key!r} of {self.algorithm}", self.key, list(flat(table)))
        return inner[last]


@dataclass(frozen=True)
class Space:
    """The hyper-parameters of one algorithm that a study sets.

    Args:
        algorithm: its folder's name.
        place: of its table among the experiment's.
        grid: the values to try, by key.
        inherit: the keys that it takes from others' winners.
    """

    algorithm: str
    place: int
    grid: Mapping[str, tuple[Any, ...]]
    inherit: Mapping[str, Source]

    @property
    def size(self) -> int:
        """How many points there are."""
        return reduce(lambda count, values: count * len(values), self.grid.values(), 1)

    def inherited(self, tables: Mapping[str, Mapping[str, Any]]) -> Point:
        """What it takes from others, by the resolved tables of those."""
        return {key: source.value(tables[source.algorithm]) for key, source in self.inherit.items()}

    def points(self, inherited: Point) -> list[Point]:
        """All points, the first key varying slowest, with what is inherited."""
        return [{**dict(zip(self.grid, values, strict=True)), **inherited} for values in product(*self.grid.values())]

    def at(self, raw: Mapping[str, Any], point: Point) -> Experiment:
        """The experiment of this algorithm alone at a point.

        Args:
            raw: the experiment's tables.
            point: what is set in the algorithm's; None leaves a key to its default.

        Raises:
            InputError: the algorithm does not take it.
        """
        tables = raw.get("algorithm", {})
        table = deepcopy((tables if isinstance(tables, list) else [tables])[self.place])
        for key, value in point.items():
            assign(table, key.split("."), value, f"{self.algorithm}.{key}")
            if value is None:
                *path, last = key.split(".")
                reduce(lambda place, each: place[each], path, table).pop(last)
        return Experiment.of({**raw, "algorithm": table})

    def table(self, experiment: Experiment) -> dict[str, Any]:
        """The algorithm's table, resolved, of the experiment at a point; what is left out is None."""
        resolved: dict[str, Any] = experiment.algorithm[0].model_dump(mode="json", serialize_as_any=True)
        return resolved


def written(point: Point) -> str:
    """A point as text: JSON, its keys sorted."""
    return json.dumps(point, sort_keys=True)


def in_order(names: Sequence[str], grid: Mapping[str, Any], inherit: Mapping[str, Any]) -> dict[str, Space]:
    """The spaces of all algorithms, each after those that it inherits from.

    Args:
        names: of the algorithms' folders.
        grid: `[study.grid]`.
        inherit: `[study.inherit]`.

    Raises:
        InputError: an unknown name, no list of values, a key that is both searched and inherited, or a circle.
    """
    for name in grid:
        known("name in study.grid", name, dict.fromkeys([*names, EVERY]))
    for name in inherit:
        known("name in study.inherit", name, dict.fromkeys(names))
    for_all, spaces = _values(EVERY, part(grid, EVERY)), {}
    for place, name in enumerate(names):
        sources, special = _sources(name, part(inherit, name), names), _values(name, part(grid, name))
        for key in special.keys() & sources.keys():
            raise InputError(f"study.inherit.{name}.{key}: must not stand in study.grid.{name} too; leave one out")
        searched = {key: values for key, values in {**for_all, **special}.items() if key not in sources}
        spaces[name] = Space(name, place, searched, sources)
    needs = {name: [source.algorithm for source in space.inherit.values()] for name, space in spaces.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = " from ".join(error.args[1][::-1])
        raise InputError(f"study.inherit: must have no circle, and {circle} inherits; break it") from None
    return {name: spaces[name] for name in order}


def flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A table's values by their key paths: those of tables in it, and of keys that are paths."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def _values(name: str, table: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    for key, values in flat(table).items():
        what = f"study.grid.{name}.{key} = {values!r}"
        if not isinstance(values, list | tuple) or not values:
            raise InputError(f"{what}: must be a list of values; write e.g. {key} = [0.1, 0.01]")
        # 1 and 1.0 would be one trial under two names.
        alike = {json.dumps(json.loads(json.dumps(value, default=str), parse_int=float)) for value in values}
        if len(alike) < len(values):
            raise InputError(f"{what}: must name each value only once; leave one out")
    return {key: tuple(values) for key, values in flat(table).items()}


def _sources(name: str, table: Mapping[str, Any], names: Sequence[str]) -> dict[str, Source]:
    sources = {}
    for key, text in flat(table).items():
        if not isinstance(text, str):
            raise InputError(
                f'study.inherit.{name}.{key} = {text!r}: must be the name of an algorithm; write e.g. {key} = "radfed"'
            )
        algorithm, _, there = text.partition(":")
        known(f"name in study.inherit.{name}.{key}", algorithm, dict.fromkeys(names))
        sources[key] = Source(algorithm, there or key)
    return sources
