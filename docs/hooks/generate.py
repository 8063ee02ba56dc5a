"""Fill the generated parts of the pages: keys, algorithms, models, data sets, schemes and the Python API.

A page marks the place of a generated part by a comment such as `<!-- generated: experiment -->`. MkDocs calls
`on_page_markdown` for each page; `PARTS` holds the function that writes each part.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import algorithms
import partitioning
import raysim
from algorithms import Compute, Local, Participation
from algorithms.names import ALGORITHMS, CONFLICTS, SERVERS, STAGES
from algorithms.options import aggregation, attack, uplink
from algorithms.options import stages as uplink_stages
from algorithms.parts import phases, rules, schedule, server, sharing, weighting
from algorithms.training.loss import LOSSES, CrossEntropy
from algorithms.training.own_update import Context, OwnUpdate
from partitioning.schemes.registry import SCHEMES, parameters
from raysim.config.algorithm import INNER, local_table
from raysim.config.bounds import LARGEST_NUMBER, LARGEST_WHOLE
from raysim.config.check import ConfigTable, table_of
from raysim.config.experiment import Experiment
from raysim.config.options import option_tables
from raysim.config.read import recipes
from raysim.data.catalogue import DATASET_FORMS, DATASETS
from raysim.models.build import MODELS
from raysim.models.options import ModelOptions
from raysim.studies.file import StudyTable

MARK = re.compile(r"<!-- generated: ([\w-]+) -->")
GIVEN = ("participation", "local", "server")
"""Parameters of a named algorithm that other tables of the file set."""
BOUNDS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}
LIMITS = {int: LARGEST_WHOLE, float: LARGEST_NUMBER}
"""Bounds of numbers without narrower ones."""
POWERS = {2**63: "2^63", 10**9: "10^9", -(10**9): "-10^9", 1e12: "10^12", -1e12: "-10^12"}
WORDS = {int: "integer", float: "number", str: "text", bool: "`true` or `false`"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each mark of a page by its generated part."""
    return filled(markdown)


def filled(markdown: str) -> str:
    """Return a page's text with its generated parts.

    Raises:
        KeyError: a mark names no part.
    """
    return MARK.sub(lambda mark: PARTS[mark[1]](), markdown)


def kind(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Describe a type as a reader of TOML knows it, with its bounds."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, FieldInfo):
        return kind(annotation.annotation, annotation.metadata)
    if origin is Annotated:
        bounds = [each for one in inner[1:] for each in (one.metadata if isinstance(one, FieldInfo) else [one])]
        return kind(inner[0], [*bounds, *metadata])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(kind(one, metadata) for one in inner if one is not NoneType))
    if origin in (tuple, list):
        items = [one for one in inner if one is not Ellipsis]
        if origin is tuple and Ellipsis not in inner:
            return f"list of {len(items)}: {kind(items[0])}"
        return f"list of {kind(items[0])}" if len(get_args(items[0])) < 2 else f"list of ({kind(items[0])})"
    if origin is not None and issubclass(origin, Mapping):
        return f"table of {kind(inner[1])}"
    values = [(BOUNDS[type(one)], getattr(one, type(one).__name__.lower())) for one in metadata if type(one) in BOUNDS]
    if (limit := LIMITS.get(annotation)) is not None:
        values += [] if any(sign in "≥>" for sign, _ in values) else [("≥", -limit)]
        values += [] if any(sign in "≤<" for sign, _ in values) else [("≤", limit)]
    limits = ", ".join(f"{sign} {POWERS.get(value, value)}" for sign, value in values)
    return f"{WORDS.get(annotation, getattr(annotation, '__name__', str(annotation)))} {limits}".strip()


def shown(default: Any) -> str:
    """Return a default value as TOML would have it; a dash if there is none."""
    if default is None or default is PydanticUndefined or default is inspect.Parameter.empty:
        return "–"
    return "`" + json.dumps(default, default=str) + "`"


def arguments(subject: Callable[..., Any]) -> dict[str, str]:
    """Return the lines below "Args:" of a docstring, by parameter; a class has those of its bases, too."""
    bases = reversed(subject.__mro__) if inspect.isclass(subject) else (subject,)
    texts: dict[str, str] = {}
    for each in bases:
        part = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        for names, text in re.findall(r"^    (\w[\w, ]*): (.+(?:\n     +.+)*)", part, re.MULTILINE):
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def rows(table: type[ConfigTable], texts: Mapping[str, str], skip: Iterable[str] = (), above: str = "") -> str:
    """Return a table of keys: type, default and meaning."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for name, field in table.model_fields.items():
        if name not in skip:
            meaning = field.description or texts.get(name, "")
            default = shown(field.get_default(call_default_factory=True))
            cells = (f"`{above}{name}`", kind(field.annotation, field.metadata), default, sentence(meaning))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else "No keys of its own.\n"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    text = " ".join(text.split())
    return text and text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def summary(subject: Any) -> str:
    """Return the first sentence of a docstring."""
    return (inspect.getdoc(subject) or "").partition("\n")[0]


def experiment() -> str:
    """Return all keys of an experiment file."""
    tables = {name: table for name, field in Experiment.model_fields.items() if (table := table_in(field.annotation))}
    local = local_table("cross-entropy")
    texts = {
        "model": arguments(ModelOptions),
        "algorithm": arguments(Participation) | {"sampling": arguments(Participation)["by"]},
        "devices": arguments(algorithms.DrawnDevices),
    }
    beside = {
        "partition": "The scheme's own keys stand beside these: see [Partition schemes](schemes.md).\n",
        "model": "The model's own keys stand beside these: see [Models](models.md).\n",
        "algorithm": "The algorithm's own keys stand beside these:\n\n" + own_keys(),
    }
    sections = {"Top of the file": rows(Experiment, {}, tables)}
    for name, table in tables.items():
        skip = INNER if name == "algorithm" else ()
        sections[f"`[{name}]`"] = rows(table, texts.get(name, {}), skip, f"{name}.") + "\n" + beside.get(name, "")
        if name == "algorithm":
            texts_of_local = arguments(Local) | arguments(Compute) | arguments(CrossEntropy)
            sections["`[local]`"] = rows(local, texts_of_local, above="local.") + "\n" + losses()
            sections["`[server]`"] = server_rules()
            for option, own in option_tables(table).items():
                sections[f"`[{option}]`"] = rows(own, {}, above=f"{option}.") + ("\n" + stages()) * (option == "uplink")
                for key, field in own.model_fields.items():
                    if (inner := table_in(field.annotation)) and key != "chain":  # `stages` describes these
                        sections[f"`[{option}.{key}]`"] = rows(inner, {}, above=f"{option}.{key}.")
    return "\n".join(f"## {heading}\n\n{text}" for heading, text in sections.items())


def table_in(annotation: Any) -> type[ConfigTable] | None:
    """Return the table of keys in a type such as `tuple[Table, ...]` or `Table | None`; None if there is none."""
    if inspect.isclass(annotation) and issubclass(annotation, ConfigTable):
        return annotation
    return next((table for inner in get_args(annotation) if (table := table_in(inner))), None)


def own_keys() -> str:
    """Return the keys that each named algorithm adds to `[algorithm]`."""
    text = []
    for name, function in ALGORITHMS.items():
        table = table_of(function, GIVEN, ConfigTable)
        keys = rows(table, arguments(function), above="algorithm.") if table.model_fields else "No keys of its own.\n"
        text.append(f"### `{name}`\n\n{summary(function)}\n\n{keys}")
    return "\n".join(text)


def losses() -> str:
    """Return the losses and their keys."""
    text = ["The loss's own keys stand beside it; those of the cross-entropy are in the table above.\n"]
    for name, loss in LOSSES.items():
        table = table_of(loss, (), ConfigTable)
        keys = rows(table, arguments(loss), above="local.") if table.model_fields else "No keys of its own.\n"
        text.append(f'### `local.loss = "{name}"`\n\n{summary(loss)}\n\n{keys}')
    return "\n".join(text)


def server_rules() -> str:
    """Return the server rules and their keys."""
    text = ["`server.rule` names the rule; without it, the algorithm's own rule holds. Its keys stand beside it.\n"]
    for name, rule in SERVERS.items():
        table = table_of(rule, (), ConfigTable)
        keys = rows(table, arguments(rule), above="server.") if table.model_fields else "No keys of its own.\n"
        text.append(f'### `server.rule = "{name}"`\n\n{summary(rule)}\n\n{keys}')
    text.append(
        "`server.aggregate` names the rule that turns the cohort's models into one. Its keys stand beside it.\n"
    )
    for name, aggregate in aggregation.AGGREGATES.items():
        table = table_of(aggregate, (), ConfigTable)
        keys = rows(table, arguments(aggregate), above="server.") if table.model_fields else "No keys of its own.\n"
        text.append(f'### `server.aggregate = "{name}"`\n\n{summary(aggregate)}\n\n{keys}')
    return "\n".join(text)


def stages() -> str:
    """Return the stages of the uplink and their keys."""
    text = ["Each stage of `uplink.chain` is a table with its name and its own keys.\n"]
    for name, stage in STAGES.items():
        table = table_of(stage, (), ConfigTable)
        keys = rows(table, arguments(stage)) if table.model_fields else "No keys of its own.\n"
        text.append(f'### `uplink.chain`: `"{name}"`\n\n{summary(stage)}\n\n{keys}')
    return "\n".join(text)


def study() -> str:
    """Return the keys of `[study]` and of `[study.tune]`."""
    tune = table_in(StudyTable.model_fields["tune"].annotation)
    assert tune is not None
    return rows(StudyTable, {}, ("tune",), "study.") + rows(tune, {}, above="study.tune.").partition("|---|\n")[2]


def listed(entries: Iterable[tuple[str, str]], head: str) -> str:
    """Return a table of names and one line each."""
    return "\n".join([f"| {head} | |", "|---|---|", *(f"| `{name}` | {sentence(text)} |" for name, text in entries)])


def models() -> str:
    """Return each model with the keys that only it has."""
    text = []
    for name, model in MODELS.items():
        given = tuple(key for key in inspect.signature(model.build).parameters if key not in model.parameters)
        table = table_of(model.build, given, ConfigTable)
        keys = rows(table, arguments(model.build), above="model.") if table.model_fields else "No keys of its own.\n"
        text.append(f"### `{name}`\n\n{model.description}\n\n{keys}")
    return "\n".join(text)


def schemes() -> str:
    """Return each partition scheme with its keys."""
    text = []
    for name, function in SCHEMES.items():
        keys = parameters(name).values()
        lines = [
            f"| `partition.{key.name}` | {kind(key.file_type)} | {shown(key.default)} | {sentence(key.text)} |"
            for key in keys
        ]
        table = "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *lines]) if lines else "No keys."
        text.append(f"### `{name}`\n\n{summary(function)}\n\n{table}\n")
    return "\n".join(text)


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
    "models": models,
    "datasets": lambda: listed(
        [*((name, data.description) for name, data in DATASETS.items()), *DATASET_FORMS.items()], "name"
    ),
    "schemes": schemes,
    "recipes": recipe_list,
}
"""The generated parts by the name that marks them."""
