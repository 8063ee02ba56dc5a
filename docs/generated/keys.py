"""Keys of the experiment file and of `[study]`: a section for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from docs.generated.text import Names, Place, coded, heading, joined
from raysim.config.reference import TOP, Group, Key, groups
from raysim.studies.keys import study_groups

INDEX = "reference/experiment.md"

OTHERS = {"partition.scheme": "reference/schemes.md", "model.name": "reference/models.md"}
"""Pages of the keys that named things add to a table, apart from algorithms, which have a page each."""

TABLES = {
    "data": "Data set, columns and preparation of samples",
    "partition": "Clients: partition scheme, held-out clients and folds",
    "model": "Model, normalisation, initial weights and adapters",
    "algorithm": "Algorithm, cohort, sampling and late clients",
    "local": "Local steps of a client update: loss, batches, optimiser, precision",
    "server": "Server rule and robust aggregation",
    "uplink": "Compression, clipping and noise on the way to the server",
    "downlink": "Compression on the way to the clients",
    "privacy": "Differential privacy of the clients",
    "attack": "Attacks by some clients",
    "edges": "Edge servers between clients and cloud",
    "topology": "Graphs for training without a server",
    "fleet": "Client actors: number, CPUs, GPUs and placement",
    "evaluate": "Evaluation, measures, choice of the model and early stopping",
    "checkpoint": "Checkpoints",
    "watch": "Loggers",
    "devices": "Speeds, links and availability of clients' devices",
}
"""Subject of each table of the file."""

BESIDE = {
    "partition": "The keys of each scheme stand beside these: [Partition schemes](../schemes.md#keys-of-each-scheme).",
    "model": "The keys of each model stand beside these: [Models](../models.md).",
    "algorithm": "The keys of each algorithm stand beside these, on the page of the [algorithm](../algorithms.md).",
    "server": "The keys of the rule, and those of the aggregate, stand beside these.",
    "uplink": "Each stage of the chain is a table with its name and the keys below it.",
    "downlink": "The stages of the chain are [those of the uplink](uplink.md).",
    "topology": "Beside algorithms with a server it stands in the tables of `dpsgd` and `sgp` alone: "
    '`topology = { graph = "ring" }`. [Topologies](../../explanation/topologies.md) says which graph is worth it.',
}
"""Sentence below a table's own keys."""


@cache
def all_groups() -> tuple[Group, ...]:
    """Return all groups of keys, those of `[study]` too."""
    return (*groups(), *study_groups())


def table_page(table: str) -> str:
    """Return the page of a table of the file."""
    return INDEX if table == TOP else f"reference/experiment/{table.partition('.')[0]}.md"


def page_of(group: Group) -> str:
    """Return the page that a group of keys is on."""
    if group.table.startswith("study"):
        return "reference/study.md"
    key = group.thing.partition(" = ")[0]
    if key == "algorithm.name":
        return f"reference/algorithms/{group.name}.md"
    return OTHERS.get(key) or table_page(group.table)


def anchor(group: Group, key: Key) -> str:
    """Return a key's anchor: its path, with the name of the thing that adds it, unless that has a page of its own."""
    if not group.thing or group.thing.startswith("algorithm.name"):
        return key.path
    return f"{group.path}.{key.name}"


def places() -> Iterator[tuple[str, Place]]:
    """Yield keys and tables by name, apart from keys that several things have."""
    shown = [group for group in all_groups() if not group.thing.startswith("downlink.chain")]
    found = [(key.path, Place(page_of(group), anchor(group, key))) for group in shown for key in group.keys]
    paths = [path for path, _ in found]
    yield from ((path, place) for path, place in found if paths.count(path) == 1)
    for group in all_groups():
        if not group.thing and group.table != TOP:
            yield f"[{group.table}]", Place(page_of(group), f"table.{group.table}" if "." in group.table else "")


def section(group: Group, key: Key, page: str, names: Names, level: int) -> str:
    """Return a key's section: its type and default, and its meaning."""
    default = {"required": "required", "–": ""}.get(key.shown_default, f"default `{key.shown_default}`")
    title = f"`{key.name if group.table == TOP else key.path}`"
    facts = ", ".join(each for each in (coded(key.kind), default) if each)
    return joined(heading(level, title, anchor(group, key)), f"*{facts}*", names.text(key.meaning, page))


def sections(group: Group, page: str, names: Names, level: int = 3) -> str:
    """Return the sections of a group's keys."""
    return joined(*(section(group, key, page, names, level) for key in group.keys)) or "No keys of its own.\n"


def added(group: Group, page: str, names: Names, level: int = 2) -> str:
    """Return the section of a thing that adds keys to a table."""
    key = group.thing.partition(" = ")[0]
    title = f"`{group.name}`" if key in OTHERS or key == "uplink.chain" else f"`{group.thing}`"
    keys = sections(group, page, names, level + 1) if group.keys else "It has no keys of its own."
    return joined(heading(level, title, group.path), names.text(group.summary, page), keys)


def named(key: str, page: str, names: Names) -> str:
    """Return the sections of all things that a key names."""
    return joined(*(added(group, page, names, 3) for group in all_groups() if group.thing.startswith(f"{key} = ")))


def table_text(table: str, page: str, names: Names) -> str:
    """Return the page of a table of the file."""
    parts = [f"# `[{table}]`", f"{TABLES[table]}. [All tables](../experiment.md)"]
    for group in all_groups():
        if page_of(group) != page or group.thing.startswith("downlink.chain"):
            continue
        if group.thing:
            parts.append(added(group, page, names))
        elif group.table == table:
            parts += [table_section(group, page, names), BESIDE.get(table, "")]
        else:
            parts.append(table_section(group, page, names))
    return joined(*parts)


def study(page: str, names: Names) -> str:
    """Return the keys of `[study]` and of `[study.tune]`."""
    return joined(*(table_section(group, page, names) for group in study_groups()))


def table_section(group: Group, page: str, names: Names) -> str:
    """Return the section of a table; one that lies inside another has an anchor of its own."""
    inner = heading(2, f"`[{group.table}]`", f"table.{group.table}") if "." in group.table else ""
    return joined(inner, sections(group, page, names, 3 if inner or group.table == "study" else 2))


def top(page: str, names: Names) -> str:
    """Return the keys outside the tables."""
    return joined(*(sections(group, page, names) for group in all_groups() if group.table == TOP))


def index(page: str, names: Names) -> str:
    """Return each table of the file with its subject and links to its keys."""
    parts = []
    for table, subject in TABLES.items():
        keys = [(group, key) for group in all_groups() if page_of(group) == table_page(table) for key in _own(group)]
        path = f"experiment/{table}.md"
        links = " · ".join(
            f"[`{key.path.removeprefix(f'{table}.')}`]({path}#{anchor(group, key)})" for group, key in keys
        )
        parts.append(joined(heading(3, f"[`[{table}]`]({path})", table), f"{subject}.", links))
    return joined(*parts)


def _own(group: Group) -> Iterable[Key]:
    return () if group.thing else group.keys
