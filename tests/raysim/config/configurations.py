"""Experiment files that a person might get wrong, and a few that nobody would write: drawn, each from its number."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import tomli_w

from algorithms import Compute, Local
from algorithms.names import ALGORITHMS, SERVERS
from partitioning import SCHEMES
from partitioning.schemes.registry import parameters
from raysim.config.algorithm import AlgorithmTable, ServerTable
from raysim.config.check import ConfigTable, table_of
from raysim.config.data import DataTable
from raysim.config.model import ModelTable
from raysim.config.tables import DevicesTable, EvaluateTable, FleetTable, PartitionTable
from raysim.models.build import MODELS as MODEL_TABLE

Table = dict[str, Any]

NAMES: dict[str, list[Any]] = {
    "name": [*ALGORITHMS, "mlp", "cnn"],
    "scheme": list(SCHEMES),
    "rule": list(SERVERS),
    "dataset": ["digits", "gaussians"],
    "train": ["all", "linear2", "output"],
    "select_by": ["validation_accuracy", "local_loss", "test_loss"],
}
"""Texts that mean something; other texts name columns, files and folders."""

TYPES: dict[str, dict[str, Any]] = {
    "data": get_type_hints(DataTable, include_extras=True),
    "partition": get_type_hints(PartitionTable, include_extras=True),
    "model": get_type_hints(ModelTable, include_extras=True),
    "algorithm": {key: kind for key, kind in get_type_hints(AlgorithmTable).items() if key not in ("local", "server")},
    "local": {key: kind for part in (Local, Compute) for key, kind in get_type_hints(part).items() if key != "compute"},
    "server": get_type_hints(ServerTable, include_extras=True),
    "fleet": get_type_hints(FleetTable, include_extras=True),
    "evaluate": get_type_hints(EvaluateTable, include_extras=True),
    "devices": get_type_hints(DevicesTable, include_extras=True),
}
"""The keys of each table and their types."""

MODEL_KEYS: dict[str, dict[str, Any]] = {
    name: {key: get_type_hints(model.build)[key] for key in model.parameters} for name, model in MODEL_TABLE.items()
}
"""The keys of their own that models have."""

KEYS: dict[str, list[str]] = {
    "": ["seed", "rounds", "epochs"],
    **{name: list(kinds) for name, kinds in TYPES.items()},
}
"""What may stand in each table; a draw may also misspell it, or put it in another."""

MODELS = ["logistic", "mlp", "cnn", "lenet", "lstm", "resnet20"]

ODD: list[Any] = [
    *(True, False, 0, 1, 2, 3, -1, 7, 2**31, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -0.1, 1e-308, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", " ", "\0", "a\nb", "\x1b[31m", "é", "𝕏", "ﬀ", "\u202e", "a" * 10_000, "0.1", "auto", "all", "none", "full"),
    *(
        "..",
        "../..",
        "../../etc/passwd",
        "/",
        "/dev/null",
        "~",
        "file:",
        "file:..",
        "folder:",
        "file:/dev/null",
        "shifted:",
    ),
    *(":", "a:", ":b", "nosuch:thing", "os:path", "os.path:nosuch", "a:b:c", "a b:c", "json:dumps", "..:x"),
    *("__import__('os')", "{0.__class__}", "%s%n", "${HOME}", "$(id)", "best", "largest", "batch", "digits,digits"),
    *([], [1, "a", 2.0], [[1]], [{}], [0], [-1], [0.5], ["accuracy", "accuracy"], ["x" * 300], [float("nan")]),
    *({}, {"x": 1}, {"name": "fedavg"}, {"": 0}, {"a": {"b": {"c": {}}}}),
    *(datetime.date(2020, 2, 29), datetime.datetime(1, 1, 1), datetime.time(23, 59, 59)),
]

LONG = {"rounds", "epochs", "steps", "burn_in", "search", "concurrency", "max_staleness", "clients", "cohort"}
"""Keys of which a large number is as good as a small one, and takes its time: these are drawn small."""


@dataclass(frozen=True)
class Case:
    """An experiment file and what `--set` changes in it."""

    text: str
    changes: list[str]


def case(number: int, table: Path) -> Case:
    """The case of a number.

    Args:
        number: keys every draw.
        table: a small Parquet file to train on.
    """
    rng = np.random.default_rng([20, number])
    raw = _valid(rng, table)
    changes: list[str] = []
    kinds = [*6 * [_adjust], *3 * [_retype], _misplace, _misspell, _nest, _drop, _double]
    for _ in range(_pick(rng, [1, 1, 1, 2, 3])):
        if rng.random() < 0.2:
            changes.append(_change(rng, raw))
        else:
            _pick(rng, kinds)(rng, raw)
    text = tomli_w.dumps(raw)
    return Case(_damaged(rng, text) if rng.random() < 0.1 else text, changes)


def _pick(rng: np.random.Generator, things: list[Any]) -> Any:
    return things[int(rng.integers(len(things)))]


def _valid(rng: np.random.Generator, table: Path) -> Table:
    """A small experiment, of one of the algorithms, schemes and models; most of them run."""
    scheme = _pick(rng, [*12 * ["iid"], *SCHEMES])
    names = [_pick(rng, list(ALGORITHMS)) for _ in range(rng.integers(1, 3))]
    return {
        "rounds": int(rng.integers(0, 2)),
        "data": {"dataset": f"file:{table}" if rng.random() < 0.9 else "digits"},
        "partition": {"scheme": scheme} | ({} if scheme == "natural" else {"clients": 4}),
        "model": {"name": "mlp", "hidden": [3], "norm": "batch"}
        if rng.random() < 0.9
        else {"name": _pick(rng, MODELS)},
        "local": {"lr": 0.1, "batch_size": 8},
        "algorithm": [{"name": name} for name in names],
        "evaluate": {},
    }


def _tables(raw: Table) -> list[tuple[str, Table]]:
    """The tables by their names, the file itself being ""."""
    found = [("", raw)]
    for name, value in raw.items():
        several = value if isinstance(value, list) else [value]
        found += [(name, table) for table in several if isinstance(table, dict)]
    return found


def _value(rng: np.random.Generator, key: str) -> Any:
    """A value that the key may have, or not."""
    names = NAMES.get(key, [])
    value = deepcopy(_pick(rng, names if names and rng.random() < 0.3 else ODD))
    large = isinstance(value, int | float) and not isinstance(value, bool) and value > 3
    return 3 if key in LONG and large else value


def _key(rng: np.random.Generator, name: str, table: Table) -> str:
    keys = [*table, *KEYS.get(name, [])]
    return str(_pick(rng, keys)) if keys else "x"


def _adjust(rng: np.random.Generator, raw: Table) -> None:
    """Give a key that a table has a value of its type: most of them are allowed, some not together with others."""
    name = str(_pick(rng, [each for each in KEYS if each]))
    table = _pick(rng, [table for found, table in _tables(raw) if found == name] or [raw.setdefault(name, {})])
    if isinstance(table, dict):
        kinds = _kinds(name, table)
        key = _pick(rng, list(kinds))
        table[key] = _typed(rng, key, kinds[key])


def _kinds(name: str, table: Table) -> dict[str, Any]:
    """The keys of a table and their types, for the algorithm, scheme, model or rule that it names."""
    own: type[ConfigTable]
    if name == "algorithm" and table.get("name") in ALGORITHMS:
        own = table_of(ALGORITHMS[table["name"]], ("sample", "local", "server"), AlgorithmTable)
        return {key: kind for key, kind in get_type_hints(own).items() if key not in ("local", "server")}
    if name == "partition" and table.get("scheme") in SCHEMES:
        types = {each.name: each.file_type for each in parameters(table["scheme"]).values()}
        return get_type_hints(PartitionTable, include_extras=True) | types
    if name == "model" and table.get("name") in MODEL_KEYS:
        return get_type_hints(ModelTable, include_extras=True) | MODEL_KEYS[table["name"]]
    if name == "server" and table.get("rule") in SERVERS:
        return get_type_hints(table_of(SERVERS[table["rule"]], (), ServerTable), include_extras=True)
    return dict(TYPES[name])


def _typed(rng: np.random.Generator, key: str, kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _pick(rng, list(inner))
    if origin is Annotated:
        return _typed(rng, key, inner[0])
    if origin in (Union, UnionType):
        return _typed(rng, key, _pick(rng, [each for each in inner if each is not type(None)]))
    if origin is tuple:
        return [_typed(rng, key, inner[0]) for _ in range(rng.integers(1, 3))]
    if origin is dict:
        return {_pick(rng, ["a", "0", "held_out_accuracy"]): _typed(rng, key, inner[1])}
    plain = {bool: [True, False], int: [0, 1, 2, 3, 5], float: [0.01, 0.1, 0.5, 0.9, 1.0, 2.0, 0.0]}
    return _pick(rng, NAMES.get(key) or plain.get(kind) or ["label", "x0", "a", "DIR"])


def _retype(rng: np.random.Generator, raw: Table) -> None:
    name, table = _pick(rng, _tables(raw))
    key = _key(rng, name, table)
    table[key] = _value(rng, key)


def _misplace(rng: np.random.Generator, raw: Table) -> None:
    (name, source), (_, target) = _pick(rng, _tables(raw)), _pick(rng, _tables(raw))
    key = _key(rng, name, source)
    target[key] = source.get(key, _value(rng, key))


def _misspell(rng: np.random.Generator, raw: Table) -> None:
    name, table = _pick(rng, _tables(raw))
    key = _key(rng, name, table)
    at = int(rng.integers(0, len(key) + 1))
    table[key[:at] + _pick(rng, ["x", "", " ", ".", "é", "\0", '"']) + key[at + 1 :]] = table.pop(key, _value(rng, key))


def _nest(rng: np.random.Generator, raw: Table) -> None:
    name, table = _pick(rng, _tables(raw))
    key = _key(rng, name, table)
    table[key] = {key: table.get(key, 1), "x": {"y": [{"z": 1}]}}


def _drop(rng: np.random.Generator, raw: Table) -> None:
    _, table = _pick(rng, _tables(raw))
    if table:
        del table[_pick(rng, list(table))]


def _double(rng: np.random.Generator, raw: Table) -> None:
    key = _pick(rng, list(raw) or ["data"])
    raw[key] = [raw.get(key, {}), raw.get(key, {})]


def _change(rng: np.random.Generator, raw: Table) -> str:
    """A `--set` of a key that there is, or of none, by a value that may be no TOML."""
    name, table = _pick(rng, _tables(raw))
    key = _key(rng, name, table)
    value = _value(rng, key)
    written = _pick(rng, [str, json.dumps, repr])
    try:
        text = written(value)
    except TypeError:
        text = str(value)
    path = _pick(
        rng, [f"{name}.{key}", f"{name}.{key}", key, f"{name}.{key}.x", f"{name}..{key}", f"{name}.0.{key}", ""]
    )
    change = f"{path}{_pick(rng, [*6 * ['='], ' = ', '==', ''])}{text}"
    return change.replace("\0", "")  # no command line can have it


def _damaged(rng: np.random.Generator, text: str) -> str:
    at = int(rng.integers(0, len(text) + 1))
    damage: Callable[[], str] = _pick(
        rng,
        [
            lambda: text[:at],
            lambda: text[:at] + _pick(rng, ["\0", '"""', "[[", "]]", "=", "\x07", "\ufeff", "'", "é"]) + text[at:],
            lambda: text + "\n[data]\n",
            lambda: text + "\n[[algorithm]]\n[[algorithm]]\n",
            lambda: text + "\nmodel.name = 'mlp'\n",
            lambda: "\n".join([*text.splitlines(), *text.splitlines()]),
            lambda: "[" * 5_000,
            lambda: "a = " + "[" * 5_000,
        ],
    )
    return damage()
