"""Sections on the functions and classes that the packages export."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import algorithms
import partitioning
import raysim
from algorithms.names import ALGORITHMS
from algorithms.options import aggregation, attack, uplink
from algorithms.options import stages as uplink_stages
from algorithms.parts import rules, schedule, server, sharing, weighting
from algorithms.training.loss import LOSSES
from algorithms.training.own_update import Context, OwnUpdate
from docs.generated import types
from docs.generated.docstrings import documented
from docs.generated.text import Names, Place, joined

RUNS, PARTITIONER, ENGINE, PARTS = (
    f"reference/{name}.md" for name in ("python", "python-partitioning", "python-engine", "parts")
)

FIRST = ("run", "resume", "load", "study", "make", "partition")
"""Functions that a reader looks for first."""


def public(subject: Any) -> Iterator[Any]:
    """Yield the public classes and functions that a module defines and `algorithms` exports; others as they are."""
    if not inspect.ismodule(subject):
        yield subject
        return
    for name in algorithms.__all__:
        each = getattr(algorithms, name)
        if getattr(each, "__module__", "") == subject.__name__ and callable(each):
            yield each


def part_sections() -> dict[str, list[Any]]:
    """Return the parts that algorithms are made of, by the heading of their section."""
    selections = (algorithms.Importance, algorithms.PowerOfChoice, algorithms.OwnSelection, algorithms.SelectionContext)
    arrivals = (algorithms.Arrivals, algorithms.Concurrent, algorithms.Drawn)
    methods = (algorithms.Method, algorithms.AffineTerm, algorithms.pull)
    sections: dict[str, tuple[Any, ...]] = {
        "The algorithm": (
            algorithms.Algorithm,
            algorithms.Option,
            algorithms.Draft,
            algorithms.Received,
            algorithms.Conflict,
        ),
        "schedule": (schedule, *arrivals, *selections),
        "local": (algorithms.Local, algorithms.Compute, *methods, *LOSSES.values(), OwnUpdate, Context),
        "sharing": (sharing,),
        "uplink and downlink": (uplink, algorithms.Downlink, uplink_stages),
        "weighting": (weighting,),
        "server": (server, algorithms.Adaptive, algorithms.Adam, algorithms.Yogi, algorithms.Adagrad),
        "aggregate": (aggregation, algorithms.Robust),
        "attack": (attack,),
        "privacy": (algorithms.Privacy, algorithms.AdaptiveClip),
        "edges and levels": (algorithms.Edges, algorithms.Sizes),
        "Several global models": (algorithms.OwnChoice, algorithms.ChoiceContext),
        "topology": (algorithms.Topology,),
        "Phases": (algorithms.phases, rules),
    }
    found = {title: [each for subject in subjects for each in public(subject)] for title, subjects in sections.items()}
    return {title: list(dict.fromkeys(subjects)) for title, subjects in found.items()}


def exports(package: ModuleType) -> list[tuple[str, Any]]:
    """Return the functions and classes that a package exports by name: the first, functions, classes, then errors."""
    known = [(name, getattr(package, name)) for name in package.__all__]
    shown = [(name, each) for name, each in known if inspect.isclass(each) or inspect.isfunction(each)]

    def order(entry: tuple[str, Any]) -> tuple[int, int, int]:
        name, each = entry
        first = FIRST.index(name) if name in FIRST else len(FIRST)
        return first, inspect.isclass(each) and issubclass(each, BaseException), inspect.isclass(each)

    return sorted(shown, key=order)


def engine_exports() -> list[tuple[str, Any]]:
    """Return the exports of `algorithms` apart from the named algorithms and their parts."""
    elsewhere = [*ALGORITHMS.values(), *(each for subjects in part_sections().values() for each in subjects)]
    return [(name, each) for name, each in exports(algorithms) if not any(each is one for one in elsewhere)]


def exported_places() -> Iterator[tuple[str, Place]]:
    """Yield the place of every exported function and class, by its name, with and without the package."""
    for page, (package, subjects) in packages().items():
        for name, _ in subjects:
            yield f"{package.__name__}.{name}", Place(page, f"{package.__name__}.{name}")
            if package is algorithms or name[0].isupper() or name == "run":
                yield name, Place(page, f"{package.__name__}.{name}")
    for subjects in part_sections().values():
        for each in subjects:
            yield each.__name__, Place(PARTS, f"algorithms.{each.__name__}")


@cache
def packages() -> dict[str, tuple[ModuleType, list[tuple[str, Any]]]]:
    """Return the exports that each page documents."""
    return {
        RUNS: (raysim, exports(raysim)),
        PARTITIONER: (partitioning, exports(partitioning)),
        ENGINE: (algorithms, engine_exports()),
    }


@cache
def further_types() -> dict[str, list[str]]:
    """Return the types that the exports of each page name, and that are exported nowhere."""
    from docs.generated.algorithm_pages import places as algorithm_places

    known = {name for name, _ in (*exported_places(), *algorithm_places())}
    found: dict[str, list[str]] = {}
    subjects = {page: [each for _, each in entries] for page, (_, entries) in packages().items()}
    subjects[PARTS] = [each for section in part_sections().values() for each in section]
    subjects[PARTS] += [*ALGORITHMS.values()]
    for page, each in subjects.items():
        found[page] = list(types.missing(each, known))
        known |= set(found[page])
    return found


def places() -> Iterator[tuple[str, Place]]:
    """Yield the place of every function, class and type of the Python pages."""
    for page, further in further_types().items():
        yield from ((name, Place(page, f"type.{name}")) for name in further)
    yield from exported_places()


def package_text(page: str, names: Names) -> str:
    """Return the sections of a package's exports, and of the types that they name."""
    package, subjects = packages()[page]
    called = "" if package is algorithms else f"{package.__name__}."
    text = [documented(each, called + name, f"{package.__name__}.{name}", page, names) for name, each in subjects]
    return joined(*text, _types(page, names))


def _types(page: str, names: Names) -> str:
    further = further_types()[page]
    return joined("## Other types", *(types.section(name, page, names) for name in further)) if further else ""


def parts(page: str, names: Names) -> str:
    """Return the parts that algorithms are made of, one section for each."""
    text = []
    for title, subjects in part_sections().items():
        text.append(f"## {title if title[0].isupper() else _coded(title)}")
        text += [documented(each, each.__name__, f"algorithms.{each.__name__}", page, names) for each in subjects]
    return joined(*text, _types(page, names))


def _coded(title: str) -> str:
    return " and ".join(f"`{each}`" for each in title.split(" and "))
