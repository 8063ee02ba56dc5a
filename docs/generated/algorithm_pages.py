"""A page for each named algorithm, and their list by family."""

from __future__ import annotations

import dataclasses
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from algorithms import Local, Option, Participation
from algorithms.names import ALGORITHMS, CONFLICTS
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.option import Conflict
from algorithms.parts.settings import SETTINGS
from docs.generated.aliases import with_choices
from docs.generated.docstrings import documented, markdown, parts, section
from docs.generated.keys import all_groups, sections
from docs.generated.signatures import signature
from docs.generated.text import Names, Place, escaped, joined
from raysim.cli.listing import FAMILIES
from raysim.config.read import algorithm_tables, recipes

FACTS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix("").with_name("algorithms.toml").read_text("utf-8"))

OF_THE_USER = ('sampling other than "poisson"', "server rule of the mean alone")
"""Settings that the file decides, and no algorithm."""


def page_of(name: str) -> str:
    """Return an algorithm's page."""
    return f"reference/algorithms/{name}.md"


@cache
def built(name: str) -> Algorithm:
    """Return an algorithm with its default parameters."""
    return ALGORITHMS[name](Participation(), Local())


def paper(name: str) -> tuple[str, str]:
    """Return an algorithm's paper as its module's docstring names it, and its address; empty without a paper."""
    facts = FACTS[name]
    url = f"https://arxiv.org/abs/{facts['arxiv']}" if "arxiv" in facts else facts.get("paper", "")
    text = " ".join((sys.modules[ALGORITHMS[name].__module__].__doc__ or "").split()).partition(": ")[2]
    return (re.split(r"(?<=\d)[.;]", text)[0], url) if url else ("", "")


def short_paper(name: str) -> str:
    """Return authors and year of an algorithm's paper."""
    text = paper(name)[0]
    authors, _, rest = text.partition(', "')
    return f"{authors} {rest.rpartition(' ')[2]}" if text else "the papers' baseline"


def shown(part: Any) -> str:
    """Return a part as Python makes it, with the arguments that are not its class's defaults."""
    if not dataclasses.is_dataclass(part):
        return re.sub(r"'([^']*)'", r'"\1"', repr(part))
    given = [
        f"{each.name}={shown(value)}"
        for each in dataclasses.fields(part)
        if each.init
        and each.repr
        and each.name not in ("method", "slots")
        and not isinstance(value := getattr(part, each.name), Participation)
        and value != _default(type(part), each)
    ]
    return f"{type(part).__name__}({', '.join(given)})"


def _default(kind: type, field: dataclasses.Field[Any]) -> Any:
    """Return the value of a part's argument that is not given, as it is after the part's checks."""
    missing = dataclasses.MISSING
    fields = [each for each in dataclasses.fields(kind) if each.init]
    if all(each.default is not missing or each.default_factory is not missing for each in fields):
        return getattr(kind(), field.name)
    return field.default if field.default_factory is missing else field.default_factory()


def composition(algorithm: Algorithm) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an algorithm by name, without those of a phase that are FedAvg's own defaults."""
    yield "schedule", algorithm.schedule
    if algorithm.local.method != type(algorithm.local)().method:
        yield "local steps", algorithm.local.method
    if shown(algorithm.local) != "Local()":
        yield "local", algorithm.local
    yield "sharing", algorithm.sharing
    yield "weighting", algorithm.weighting
    yield "server", algorithm.server
    by = algorithm.schedule.participation.by
    yield from (("selection", by),) if isinstance(by, Option) else ()
    yield from (("option", each) for each in algorithm.options if each != by)
    yield from (("until", algorithm.until),) if algorithm.until is not None else ()


def part_lines(algorithm: Algorithm, page: str, names: Names) -> list[str]:
    """Return a line for each part, and those of later phases that differ from the phase before."""
    found = list(composition(algorithm))
    lines = [f"- {kind}: {_part(part, page, names)}" for kind, part in found]
    then = algorithm.then
    if then is not None:
        later = [f"{kind} {_part(part, page, names)}" for kind, part in composition(then) if (kind, part) not in found]
        lines.append(f"- then: {', '.join(later)}")
    if algorithm.own_round is not None:
        lines.append("- rounds of its own, in place of the engine's")
    return lines


def _part(part: Any, page: str, names: Names) -> str:
    return names.link(type(part).__name__, page, shown(part))


def own_classes(name: str) -> list[type]:
    """Return the classes of an algorithm's parts that its own file, or another algorithm's, defines."""
    found: list[type] = []
    phase: Algorithm | None = built(name)
    while phase is not None:
        found += [type(part) for _, part in composition(phase)]
        phase = phase.then
    return list(dict.fromkeys(found))


def places() -> Iterator[tuple[str, Place]]:
    """Yield the pages of the algorithms, and the places of classes that only their parts have."""
    for name, function in ALGORITHMS.items():
        yield name, Place(page_of(name))
        yield function.__name__, Place(page_of(name))
    for kind, place in _owners().items():
        yield kind.__name__, place


@cache
def _owners() -> dict[type, Place]:
    """Return the place of each class that documents itself on an algorithm's page: that of its own file's method."""
    import algorithms

    exported = {getattr(algorithms, each) for each in algorithms.__all__ if each[0].isupper()}
    users = {kind: name for name in reversed(ALGORITHMS) for kind in own_classes(name)}
    places = {}
    for kind, user in users.items():
        at_home = [name for name, each in ALGORITHMS.items() if each.__module__ == kind.__module__]
        owner = user if user in at_home or not at_home else at_home[0]
        if kind not in exported or at_home:
            places[kind] = Place(page_of(owner), f"algorithms.{kind.__name__}")
    return {kind: place for kind, place in places.items() if kind not in exported}


def equations(name: str) -> str:
    """Return an algorithm's equations as a block of TeX."""
    lines = FACTS[name]["equations"]
    several = "\\begin{aligned}\n" + " \\\\\n".join(map(_aligned, lines)) + "\n\\end{aligned}"
    return f"```math\n{lines[0] if len(lines) == 1 else several}\n```"


def _aligned(line: str) -> str:
    """Return a line with a mark at its first relation."""
    found = re.search(r" (=|\\leftarrow|\\approx|\\sim) ", line)
    return f"{line[: found.start()]} &{line[found.start() + 1 :]}" if found else line


def page_text(name: str, page: str, names: Names) -> str:
    """Return an algorithm's page."""
    function, facts = ALGORITHMS[name], FACTS[name]
    summary, *blocks = parts(function)
    prose = [markdown(each, page, names) for each in blocks if not section(each) and not each.startswith("    ")]
    notes = [each for each in prose if each.startswith("**")]
    group = next(each for each in all_groups() if each.thing == f'algorithm.name = "{name}"')
    keys = sections(group, page, names) if group.keys else "It has no keys of its own."
    classes = [kind for kind, place in _owners().items() if place.page == page]
    own = [documented(kind, kind.__name__, f"algorithms.{kind.__name__}", page, names) for kind in classes]
    tables = [names.link(f"[{table}]", page) for table in ("algorithm", "local", "server")]
    toml = f'```toml\n[algorithm]\nname = "{name}"\n```'
    return joined(
        f"# {facts['title']}",
        names.text(" ".join(summary.split()), page),
        toml,
        "## Equation",
        equations(name),
        names.text(facts.get("symbols", ""), page),
        *(each for each in prose if each not in notes),
        "## Keys",
        keys,
        f"{', '.join(tables[:2])} and {tables[2]} have the other keys.",
        "## Parts",
        "\n".join(part_lines(built(name), page, names)),
        *own,
        "## Paper",
        _paper(name),
        *(each.removeprefix("**Paper.** ") for each in notes),
        "## Recipes",
        _recipes(name),
        "## Settings that conflict",
        _conflicts(name),
        "## In Python",
        f"```python\n{with_choices(signature(function, function.__name__))}\n```",
    )


def _paper(name: str) -> str:
    text, url = paper(name)
    return f"[{text}]({url})" if url else "It is the baseline of many papers and has none of its own."


def _recipes(name: str) -> str:
    using = [recipe for recipe, used in recipe_algorithms().items() if name in used]
    if not using:
        return "No recipe uses it; every recipe can be run with it by `--set algorithm.name=" + f"{name}`."
    return ", ".join(f"[`{each}`](../recipes.md#{each})" for each in using)


@cache
def recipe_algorithms() -> Mapping[str, frozenset[str]]:
    """Return the names of each recipe's algorithms; a study without any has those of its base."""
    files = {name: tomllib.loads(path.read_text("utf-8")) for name, path in recipes().items()}

    def of(name: str) -> frozenset[str]:
        named = frozenset(each["name"] for each in algorithm_tables(files[name]) if "name" in each)
        base = files[name].get("study", {}).get("base", "")
        return named or (of(base) if base in files else named)

    return {name: of(name) for name in files}


def _conflicts(name: str) -> str:
    """Return the pairs of settings of which this algorithm has one."""
    algorithm = built(name)
    own = {key: text for option in algorithm.folded for key, text in option.settings.items()}
    has = {key for key, each in {**own, **SETTINGS}.items() if key not in OF_THE_USER and _holds(each, algorithm)}
    lines = [f"- {_said(each, each.one in has)}" for each in CONFLICTS if (each.one in has) != (each.other in has)]
    if not lines:
        return "There are none by default."
    all_pairs = "[All pairs](../algorithms.md#settings-that-conflict)"
    return joined(f"raysim refuses these settings together with the algorithm's own. {all_pairs}", "\n".join(lines))


def _said(pair: Conflict, has_first: bool) -> str:
    """Return a conflict as a sentence on the setting that an algorithm has not, and the remedy."""
    one, other, must, remedy = pair
    if must.startswith("not be used together"):
        text = f"{one} and {other} must {must}"
    elif has_first:
        text = f"with {other}: {_subject(one, must)} must {must}"
    else:
        text = f"{_subject(one, must)} must {must}"
    return escaped(f"{text[0].upper()}{text[1:]}. Remedy: {remedy}.")


def _subject(setting: str, must: str) -> str:
    """Return a setting without its value, if the sentence goes on with another value."""
    return re.sub(r" (=|<|>|other than) \S+$", "", setting) if re.match(r'be ("|\d)', must) else setting


def _holds(setting: Any, algorithm: Algorithm) -> bool:
    return bool(setting if isinstance(setting, str) else setting(algorithm, None))


def families(page: str, names: Names) -> str:
    """Return the algorithms by family, each with its first sentence, its paper, and the parts that are not FedAvg's."""
    plain = set(part_lines(built("fedavg"), page, names))
    text = []
    for title, members in FAMILIES.items():
        lines = []
        for name in members:
            summary = names.text(" ".join(parts(ALGORITHMS[name])[0].split()), page)
            other = [each.removeprefix("- ") for each in part_lines(built(name), page, names) if each not in plain]
            lines.append(
                f"- [`{name}`](algorithms/{name}.md), {short_paper(name)}. {summary}"
                + (f" *Parts:* {'; '.join(other)}." if other else "")
            )
        text += [f"### {title}", "\n".join(lines)]
    return joined(*text)


def conflicts(page: str, names: Names) -> str:
    """Return all pairs of settings that are refused together, by their first setting."""
    text = []
    for first in dict.fromkeys(each.one for each in CONFLICTS):
        lines = [f"- {_said(each, True)}" for each in CONFLICTS if each.one == first]
        text += [f"**{escaped(first[0].upper() + first[1:])}**", "\n".join(lines)]
    return joined(*text)
