"""Experiment files and recipes: reading, and changes by `--set`."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any

from partitioning.common.errors import nearest, suggestion
from partitioning.common.paths import check_path, read_text
from raysim.common.errors import InputError, UnknownError
from raysim.common.surface import given, option
from raysim.config.bounds import check_values, plain

EXCLUSIVE = (
    ("cohort", "fraction"),
    ("epochs", "steps", "batches"),
    ("epochs", "rounds"),
    ("concurrency", "max_staleness"),
    ("noise", "epsilon"),
    ("folds", "test_clients"),
    ("folds", "validation_clients"),
)
"""Keys that exclude each other in a table."""


@dataclass(frozen=True)
class Change:
    """A change of one key of an experiment's tables.

    Args:
        path: path of the key, see `read`.
        value: new value; None removes the key.
        what: origin of the change, for messages.
    """

    path: str
    value: Any
    what: str


def recipes() -> dict[str, Path]:
    """Return raysim's recipes by name."""
    folder = Path(str(files("raysim") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read(source: str | Path, changes: Iterable[str] = ()) -> dict[str, Any]:
    """Read an experiment file, or a recipe by its name, and apply changes.

    Args:
        source: path of a TOML file, or name of a recipe.
        changes: changes `key.path=value`, each value in TOML or else a text; `algorithm.key` changes every algorithm,
            `algorithm.NAME.key` the algorithms of that name or label.

    Raises:
        InputError: no such file or recipe, not TOML, a change of another form, or two changes of which one undoes the
            other.
    """
    path = check_path("the experiment file", source)
    if not path.is_file():
        if path.suffix or str(source) != path.name:
            beside = [each.name for each in path.parent.glob("*.toml") if each.is_file()]
            if near := suggestion(path.name if path.suffix else f"{path.name}.toml", beside):
                raise InputError(f"experiment file {str(source)!r}: must be a file that exists{near}")
            raise InputError(f"experiment file {str(source)!r}: must be a file that exists; check the path")
        if str(source) not in recipes():
            there = (each.name for each in path.parent.glob("*.toml") if each.is_file())
            files = [name for name, _ in nearest(f"{source}.toml", there)]
            question = f"did you mean {files[0]!r}?" if files and not nearest(str(source), recipes()) else ""
            raise UnknownError(f"recipe {str(source)!r}", str(source), [*recipes(), *files, "FILE.toml"], question)
        path = recipes()[str(source)]
    return changed(read_toml(path, f"experiment file {str(source)!r}"), changes)


def module_folders(config: str | Path | Mapping[str, Any]) -> tuple[Path, ...]:
    """Return the folders of a user's own modules: that of the experiment file, and the current one."""
    here = Path.cwd()
    if isinstance(config, Mapping) or not Path(config).is_file():
        return (here,)
    return (Path(config).resolve().parent, here)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: path of the file.
        what: kind and name of the file, for the message.

    Raises:
        InputError: the file cannot be read, is not TOML, or holds a value that `check_values` refuses.
    """
    try:
        raw = tomllib.loads(read_text(path))
    except UnicodeDecodeError as error:
        byte, line = error.object[error.start], error.object.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{what}, line {line}, has byte 0x{byte:02x}: must be text in UTF-8; save it as UTF-8"
        ) from None
    except ValueError as error:  # no TOML, or a number of thousands of digits
        raise InputError(f"{what}: must be TOML ({error}); correct it") from None
    except RecursionError:
        raise InputError(f"{what}: must be TOML, and is nested too deeply; flatten it") from None
    except OSError as error:
        raise InputError(
            f"{what}: must be a readable file ({error.strerror}); check its path and permissions"
        ) from None
    check_values(raw)
    return raw


def copied(value: Any, leaf: Callable[[Any], Any] = lambda each: each) -> Any:
    """Return tables and lists as new ones, of the same values; an object of the user's own may not stand a copy.

    Args:
        value: table, list or other value.
        leaf: function of each value that is neither.
    """
    if isinstance(value, Mapping):
        return {key: copied(each, leaf) for key, each in value.items()}
    return [copied(each, leaf) for each in value] if isinstance(value, list) else leaf(value)


def changed(raw: Mapping[str, Any], changes: Iterable[str]) -> dict[str, Any]:
    """Return a copy of an experiment's tables with changes applied; see `read`."""
    check_values(raw)
    copy: dict[str, Any] = copied(raw, plain)
    made = list(map(_change, changes))
    apply(copy, made)
    _refuse_overruled(copy, made)
    check_values(copy)
    return copy


def length_notices(raw: Mapping[str, Any], changes: Iterable[str]) -> list[str]:
    """Return a notice of each change of `rounds` or `epochs` that replaces the other one in an experiment's tables."""
    of_epochs = ": the run lasts this many passes over the training data; for those of a client update use local.epochs"
    return [
        f"{change.what} replaces {other} = {raw[other]!r}{of_epochs if other == 'rounds' else ''}"
        for change in map(_change, changes)
        for other in ("rounds", "epochs")
        if {change.path, other} == {"rounds", "epochs"} and other in raw
    ]


def apply(raw: dict[str, Any], changes: Iterable[Change]) -> None:
    """Make changes of an experiment's tables in place, one after the other.

    A change replaces what the tables hold, but it never undoes another change.

    Args:
        raw: tables to change.
        changes: changes, see `Change`.

    Raises:
        InputError: a part of a path is no table, or a change undoes an earlier one.
    """
    made: list[tuple[Change, list[dict[str, Any]]]] = []
    for change in changes:
        places = _assign(raw, change)
        there = {id(table) for table in _all_tables(raw)}
        for earlier, held in made:
            key = earlier.path.rpartition(".")[2]
            if not any(id(table) in there and _holds(earlier.value, table.get(key)) for table in held):
                raise InputError(f"{earlier.what}, {change.what}: must be only one of them; remove the other")
        if change.value is not None:
            made.append((change, places))


def _change(text: str) -> Change:
    """Return the change `key.path=value` of the command line."""
    check_values({"--set": text})
    path, equals, value = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise InputError(f"{option('set')} {text!r}: must be key.path=value; write e.g. {given('set', 'local.lr=0.1')}")
    change = Change(".".join(keys), _value(value.strip()), f"{option('set')} {text!r}")
    check_values(reduce(lambda inner, key: {key: inner}, reversed(keys), change.value))
    return change


def _assign(raw: dict[str, Any], change: Change) -> list[dict[str, Any]]:
    """Make one change; return the tables that it changed."""
    keys, places = change.path.split("."), [raw]
    for key in keys[:-1]:
        named = _called(key, places, keys[0])
        places = named or [table for place in places for table in _tables(place, key, change.what)]
    for place in places:
        if change.value is None:
            place.pop(keys[-1], None)
            continue
        # A new key replaces the keys that it excludes.
        for other in excluded(keys[-1]):
            place.pop(other, None)
        place[keys[-1]] = copied(change.value)
    return places


def _refuse_overruled(raw: Mapping[str, Any], changes: Sequence[Change]) -> None:
    """Refuse a change of a common table that other changes overrule in the table of every algorithm."""
    algorithms = [table for table in algorithm_tables(raw) if isinstance(table, dict)]
    common = [(change, *leaf) for change in changes for leaf in _leaves(change) if leaf[0] != "algorithm"]
    for change, section, key in common:
        rivals = [[each for each in changes if _sets(each, algorithm, section, key)] for algorithm in algorithms]
        if algorithms and all(rivals):
            first, second = sorted((change, rivals[0][0]), key=changes.index)
            raise InputError(f"{first.what}, {second.what}: must be only one of them; remove the other")


def _leaves(change: Change) -> list[tuple[str, str]]:
    """Return the table and the key of each value that a change of a common table sets."""
    section, _, rest = change.path.partition(".")
    if rest:
        return [(section, rest.partition(".")[0])] if change.value is not None else []
    return [(section, key) for key in change.value] if isinstance(change.value, dict) else []


def _sets(change: Change, algorithm: Mapping[str, Any], section: str, key: str) -> bool:
    """Return whether a change set a key of an algorithm's own table, or one that excludes it."""
    top, *path = change.path.split(".")
    if top != "algorithm" or change.value is None:
        return False
    named = [short_name(algorithm.get("name", "fedavg")), algorithm.get("label")]
    path = path[1:] if path and path[0] in named else path
    value = reduce(lambda inner, each: {each: inner}, reversed(path), change.value)
    inner = value.get(section) if isinstance(value, dict) else None
    return isinstance(inner, dict) and not {key, *excluded(key)}.isdisjoint(inner)


def excluded(key: str) -> set[str]:
    """Return the keys that a key excludes."""
    return {other for several in EXCLUSIVE if key in several for other in several if other != key}


def _all_tables(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all tables in a value, itself included."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _all_tables(inner)


def _holds(value: Any, now: Any) -> bool:
    """Return whether a value is still as it was set; a table may have got more keys."""
    if isinstance(value, dict) and isinstance(now, dict):
        return all(_holds(inner, now.get(key)) for key, inner in value.items())
    if isinstance(value, list) and isinstance(now, list):
        return len(value) == len(now) and all(map(_holds, value, now))
    return now is value or bool(now == value)


def _called(name: str, tables: Sequence[dict[str, Any]], top: str) -> list[dict[str, Any]]:
    """Return the tables of a name or, of algorithms, a label."""
    usual, labels = ("fedavg", "label") if top == "algorithm" else (None, "name")
    return [table for table in tables if name in (short_name(table.get("name", usual)), table.get(labels))]


def algorithm_tables(raw: Mapping[str, Any]) -> list[Any]:
    """Return the file's `[algorithm]` tables; a value that is no table, which is refused later, stays."""
    tables = raw.get("algorithm", {})
    return tables if isinstance(tables, list) else [tables]


def algorithm_names(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the folder names of algorithms: the label, else the name, module:function is function.

    A second fedavg without a label is fedavg-2.
    """
    seen: Counter[str] = Counter()
    folders = []
    for table in tables:
        if (label := table.get("label")) is not None:
            folders.append(str(label))
            continue
        name = short_name(table.get("name", "fedavg"))
        seen[name] += 1
        folders.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return folders


def short_name(name: Any) -> str:
    """Return an algorithm's name; for `module:function`, the function's."""
    return getattr(name, "__name__", str(name).rpartition(":")[2])


def _tables(place: dict[str, Any], key: str, what: str) -> list[dict[str, Any]]:
    inner = place.setdefault(key, {})
    tables = inner if isinstance(inner, list) else [inner]
    if not all(isinstance(table, dict) for table in tables):
        raise InputError(f"{what}: {key} must be a table, and is {inner!r}; check the path")
    return tables


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    except ValueError:
        raise InputError(f"{option('set')} {text[:20]}...: must be a number that fits 64 bits; correct it") from None
