"""Hyper-parameters of a study: values to search, and values inherited from the winners of other algorithms."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from raysim.common.errors import InputError, check_known, unknown
from raysim.config.check import flat, part
from raysim.config.experiment import Experiment
from raysim.config.read import Change, algorithm_tables, apply

MOST_POINTS = 10_000
"""Largest number of points that a study tries for an algorithm."""

EVERY = "*"
"""Key of `[study.grid]` for all algorithms."""

Point = Mapping[str, Any]
"""Hyper-parameters: values by key paths in the algorithm's table."""

Source = tuple[str, str]
"""Algorithm and key path that a hyper-parameter is inherited from."""


@dataclass(frozen=True)
class SearchSpace:
    """Hyper-parameters of one algorithm that a study sets.

    Args:
        algorithm: name of its folder.
        place: index of its table in the experiment.
        grid: values to try, by key.
        inherit: sources of inherited values, by key.
    """

    algorithm: str
    place: int
    grid: Mapping[str, tuple[Any, ...]]
    inherit: Mapping[str, Source]

    @property
    def size(self) -> int:
        """Number of points."""
        return prod(map(len, self.grid.values()))

    def inherited(self, tables: Mapping[str, Mapping[str, Any]]) -> Point:
        """Return the inherited values, given the resolved tables of the other algorithms."""
        return {key: inherited_value(source, tables[source[0]]) for key, source in self.inherit.items()}

    def points(self, inherited: Point) -> list[Point]:
        """Return all points with the inherited values; the first key varies slowest."""
        return [{**dict(zip(self.grid, values, strict=True)), **inherited} for values in product(*self.grid.values())]

    def at(self, raw: Mapping[str, Any], point: Point, folders: Sequence[Path] = ()) -> Experiment:
        """Return the experiment of this algorithm alone at a point.

        Args:
            raw: tables of the experiment.
            point: values for the algorithm's table; None resets a key to its default.
            folders: first places to search for modules of the user's own that are not loaded yet.

        Raises:
            InputError: the algorithm does not take a key or a value.
        """
        table = deepcopy(algorithm_tables(raw)[self.place])
        apply(table, (Change(key, value, f"{self.algorithm}.{key}") for key, value in point.items()))
        return Experiment.of({**raw, "algorithm": table}, folders)


def algorithm_table(experiment: Experiment) -> dict[str, Any]:
    """Return the resolved table of an experiment's first algorithm; keys that are left out are None."""
    resolved: dict[str, Any] = experiment.algorithm[0].model_dump(mode="json", serialize_as_any=True)
    return resolved


def inherited_value(source: Source, table: Mapping[str, Any]) -> Any:
    """Return the source's value in the resolved table of its algorithm; None if the table leaves it out.

    Raises:
        InputError: the table has no such key.
    """
    algorithm, key = source
    *path, last = key.split(".")
    inner = reduce(lambda place, each: place.get(each, {}) if isinstance(place, Mapping) else {}, path, table)
    if last not in inner:
        raise unknown(f"key {key!r} of {algorithm}", key, dict(flat(dict(table))))
    return inner[last]


def point_json(point: Point) -> str:
    """Return a point as JSON with sorted keys."""
    return json.dumps(point, sort_keys=True)


def ordered_spaces(names: Sequence[str], grid: Mapping[str, Any], inherit: Mapping[str, Any]) -> dict[str, SearchSpace]:
    """Return the spaces of all algorithms, each after its sources.

    Args:
        names: folders of the algorithms.
        grid: `[study.grid]`.
        inherit: `[study.inherit]`.

    Raises:
        InputError: a name is unknown, a grid has no list of values, a key is both searched and inherited, or
            inheritance has a circle.
    """
    for name in grid:
        check_known(f"name in study.grid = {name!r}", name, [*names, EVERY])
    for name in inherit:
        check_known(f"name in study.inherit = {name!r}", name, names)
    for_all, spaces = _values(EVERY, part(grid, EVERY, "study.grid")), {}
    for place, name in enumerate(names):
        sources, special = (
            _sources(name, part(inherit, name, "study.inherit"), names),
            _values(name, part(grid, name, "study.grid")),
        )
        for key in special.keys() & sources.keys():
            raise InputError(f"study.inherit.{name}.{key}: must not stand in study.grid.{name} too; leave one out")
        searched = {key: values for key, values in {**for_all, **special}.items() if key not in sources}
        if "label" in {*searched, *sources}:
            raise InputError(f"study.grid or study.inherit of {name}: label: must not vary; leave it out")
        spaces[name] = space = SearchSpace(name, place, searched, sources)
        if space.size > MOST_POINTS:
            raise InputError(
                f"study.grid of {name}: {space.size} points: must be at most {MOST_POINTS}; leave values out"
            )
    needs = {name: [algorithm for algorithm, _ in space.inherit.values()] for name, space in spaces.items()}
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = " from ".join(error.args[1][::-1])
        raise InputError(f"study.inherit: must have no circle, and {circle} inherits; break it") from None
    return {name: spaces[name] for name in order}


def _values(name: str, table: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    found = dict(flat(table))
    for key, values in found.items():
        given = f"study.grid.{name}.{key} = {values!r}"
        if not isinstance(values, list | tuple) or not values:
            raise InputError(f"{given}: must be a list of values; for example, write {key} = [0.1, 0.01]")
        if any(map(callable, values)):
            raise InputError(f"{given}: must name your own code as text; write 'module:function'")
        # 1 and 1.0 would be one trial under two names.
        alike = {json.dumps(json.loads(json.dumps(value, default=str), parse_int=float)) for value in values}
        if len(alike) < len(values):
            raise InputError(f"{given}: must name each value only once; leave one out")
    return {key: tuple(values) for key, values in found.items()}


def _sources(name: str, table: dict[str, Any], names: Sequence[str]) -> dict[str, Source]:
    sources = {}
    for key, text in flat(table):
        if not isinstance(text, str):
            raise InputError(
                f"study.inherit.{name}.{key} = {text!r}: must be the name of an algorithm; for example, write "
                f'{key} = "radfed"'
            )
        algorithm, _, there = text.partition(":")
        check_known(f"name in study.inherit.{name}.{key} = {algorithm!r}", algorithm, names)
        sources[key] = algorithm, there or key
    return sources
