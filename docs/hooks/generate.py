"""Fill the generated parts of the pages: keys, algorithms, models, data sets, schemes and the Python API.

A page marks the place of a generated part by a comment such as `<!-- generated: experiment -->`. MkDocs calls
`on_page_markdown` for each page; `PARTS` holds the function that writes each part.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import algorithms
import partitioning
import raysim
from algorithms.names import ALGORITHMS, CONFLICTS
from algorithms.options import aggregation, attack, uplink
from algorithms.options import stages as uplink_stages
from algorithms.parts import phases, rules, schedule, server, sharing, weighting
from algorithms.training.loss import LOSSES
from algorithms.training.own_update import Context, OwnUpdate
from raysim.config.read import recipes
from raysim.config.reference import TOP, Group, Key, groups, sentence
from raysim.data.catalogue import DATASET_FORMS, DATASETS
from raysim.studies.keys import study_groups

MARK = re.compile(r"<!-- generated: ([\w-]+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each mark of a page by its generated part."""
    return filled(markdown)


def filled(markdown: str) -> str:
    """Return a page's text with its generated parts.

    Raises:
        KeyError: a mark names no part.
    """
    return MARK.sub(lambda mark: PARTS[mark[1]](), markdown)


def table(keys: Iterable[Key]) -> str:
    """Return a table of keys: type, default and meaning."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        default = f"`{key.shown_default}`" if key.has_default else key.shown_default
        cells = (f"`{key.path}`", coded(key.kind), default, key.meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else "No keys of its own.\n"


def coded(kind: str) -> str:
    """Return a type with the values of TOML in it, names and truth values, as code."""
    return re.sub(r'"[^"]*"|\b(true|false)\b', lambda value: f"`{value[0]}`", kind)


BESIDE = {
    "partition": "The scheme's own keys stand beside these: see [Partition schemes](schemes.md).\n",
    "model": "The model's own keys stand beside these: see [Models](models.md).\n",
    "algorithm": "The algorithm's own keys stand beside these:\n",
    "local": "The loss's own keys stand beside it; those of the cross-entropy are in the table above.\n",
    "server": "`server.rule` names the rule; without it, the algorithm's own rule holds. `server.aggregate` names the "
    "rule that turns the cohort's models into one. Their keys stand beside them.\n",
    "uplink": "Each stage of `uplink.chain` is a table with its name and its own keys.\n",
    "downlink": "The stages of `downlink.chain` are those of `uplink.chain`.\n",
}
"""Sentences below the keys of a table."""

ELSEWHERE = ("partition.scheme", "model.name", "downlink.chain")
"""Keys whose named things another page, or another section, describes."""


def experiment() -> str:
    """Return all keys of an experiment file."""
    text = []
    for group in groups():
        if not group.thing:
            heading = "Top of the file" if group.table == TOP else f"`[{group.table}]`"
            text.append(f"## {heading}\n\n{table(group.keys)}\n{BESIDE.get(group.table, '')}")
        elif not group.thing.startswith(ELSEWHERE):
            text.append(section(group))
    return "\n".join(text)


def section(group: Group) -> str:
    """Return the keys that a named thing adds to a table, with its first sentence."""
    key, name = group.thing.split(" = ")
    title = f"`{name[1:-1]}`" if key in ("algorithm.name", *ELSEWHERE) else f"`{group.thing}`"
    return f"### {title}\n\n{group.summary}\n\n{table(group.keys)}"


def named(key: str) -> str:
    """Return the keys of each thing that a key names."""
    return "\n".join(section(group) for group in groups() if group.thing.startswith(f"{key} = "))


def study() -> str:
    """Return the keys of `[study]` and of `[study.tune]`."""
    return table(key for group in study_groups() for key in group.keys)


def listed(entries: Iterable[tuple[str, str]], head: str) -> str:
    """Return a table of names and one line each."""
    return "\n".join([f"| {head} | |", "|---|---|", *(f"| `{name}` | {sentence(text)} |" for name, text in entries)])


def recipe_list() -> str:
    """Return the recipes that come with raysim and the first line of each."""
    lines = {name: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, path in recipes().items()}
    return listed(sorted(lines.items()), "recipe")


def directives(subjects: Iterable[Any], level: int = 3, titles: Mapping[Any, str] | None = None) -> str:
    """Return mkdocstrings' directives that document functions and classes."""
    text = []
    for each in subjects:
        title = f"\n      heading: '`{titles[each]}`'\n      toc_label: '{titles[each]}'" if titles else ""
        text.append(f"::: {each.__module__}.{each.__qualname__}\n    options:\n      heading_level: {level}{title}\n")
    return "\n".join(text)


def named_algorithms() -> str:
    """Return every named algorithm with its equation, from its docstring."""
    return directives(ALGORITHMS.values(), 2, {function: name for name, function in ALGORITHMS.items()})


SELECTIONS = (algorithms.Importance, algorithms.PowerOfChoice, algorithms.OwnSelection, algorithms.SelectionContext)
"""Ways to draw a cohort that are classes."""


def parts() -> str:
    """Return the parts that algorithms are made of, one section for each."""
    sections = {
        "`schedule`": (schedule, algorithms.Arrivals, *SELECTIONS),
        "`local`": (algorithms.Local, algorithms.Compute, *LOSSES.values(), OwnUpdate, Context),
        "`sharing`": (sharing,),
        "`uplink`, `downlink`": (uplink, uplink_stages),
        "`weighting`": (weighting,),
        "`server`": (server,),
        "`aggregate`": (aggregation,),
        "`attack`": (attack,),
        "`edges`, levels": (algorithms.Edges, algorithms.Sizes),
        "Several global models": (algorithms.OwnChoice, algorithms.ChoiceContext),
        "`topology`": (algorithms.Topology,),
        "Phases": (phases, rules),
    }
    text = [directives([algorithms.Algorithm])]
    for heading, subjects in sections.items():
        own = [each for subject in subjects for each in (public(subject) if inspect.ismodule(subject) else [subject])]
        text.append(f"## {heading}\n\n{directives(own)}")
    return "\n".join(text)


def conflicts() -> str:
    """Return the settings that are refused together, with the reason and the remedy."""
    rows = [f"| {one} | {other} | {must} | {remedy} |" for one, other, must, remedy in CONFLICTS]
    return "\n".join(["| setting | with | the first must ... | remedy |", "|---|---|---|---|", *rows])


def public(module: Any) -> Iterator[Any]:
    """Yield the public classes and functions that a module defines and `algorithms` exports."""
    for name in algorithms.__all__:
        each = getattr(algorithms, name)
        if getattr(each, "__module__", "") == module.__name__:
            yield each


def engine() -> str:
    """Return the exports of `algorithms` apart from the named algorithms and their parts."""
    written = {line.removeprefix("::: ") for line in (parts() + named_algorithms()).splitlines()}
    exported = [getattr(algorithms, name) for name in algorithms.__all__]
    rest = [each for each in exported if inspect.isclass(each) or inspect.isfunction(each)]
    return directives(each for each in rest if f"{each.__module__}.{each.__qualname__}" not in written)


def exports(package: ModuleType) -> str:
    """Return the functions and classes that a package exports."""
    exported = [getattr(package, name) for name in package.__all__]
    return directives(each for each in exported if inspect.isclass(each) or inspect.isfunction(each))


PARTS: Mapping[str, Callable[[], str]] = {
    "experiment": experiment,
    "study": study,
    "algorithms": named_algorithms,
    "parts": parts,
    "conflicts": conflicts,
    "engine": engine,
    "partitioner": lambda: exports(partitioning),
    "runs": lambda: exports(raysim),
    "models": lambda: named("model.name"),
    "datasets": lambda: listed(
        [*((name, data.description) for name, data in DATASETS.items()), *DATASET_FORMS.items()], "name"
    ),
    "schemes": lambda: named("partition.scheme"),
    "recipes": recipe_list,
}
"""The generated parts by the name that marks them."""
