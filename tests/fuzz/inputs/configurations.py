"""Experiment files that a person might get wrong, and a few that nobody would write: drawn, each from its number."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import tomli_w

from algorithms.names import ALGORITHMS, SERVERS
from partitioning import SCHEMES
from partitioning.schemes.registry import parameters
from raysim.config.algorithm import INNER, AlgorithmTable
from raysim.config.check import ConfigTable, table_of
from raysim.config.data import DataTable
from raysim.config.experiment import Experiment, TopLevelKeys
from raysim.config.local import local_table
from raysim.config.model import ModelTable
from raysim.config.options import option_tables
from raysim.config.server import ServerTable
from raysim.config.tables import (
    CheckpointTable,
    DevicesTable,
    EvaluateTable,
    FleetTable,
    PartitionTable,
    WatchTable,
)
from raysim.models.build import MODELS as MODEL_TABLE
from raysim.studies.keys import StudyTable, TuneTable

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


def kinds_of(table: type[ConfigTable]) -> dict[str, Any]:
    """The keys of a table and their types, with their bounds."""
    fields = table.model_fields.items()
    return {
        key: Annotated[(each.annotation, *each.metadata)] if each.metadata else each.annotation for key, each in fields
    }


TYPES: dict[str, dict[str, Any]] = {
    "data": kinds_of(DataTable),
    "partition": kinds_of(PartitionTable),
    "model": kinds_of(ModelTable),
    "algorithm": {key: kind for key, kind in kinds_of(AlgorithmTable).items() if key not in INNER},
    "local": kinds_of(local_table("cross-entropy")),
    "server": kinds_of(ServerTable),
    **{
        name: {key: kind for key, kind in kinds_of(table).items() if key != "adaptive"}
        for name, table in (option_tables(AlgorithmTable) | option_tables(Experiment)).items()
    },
    "fleet": kinds_of(FleetTable),
    "evaluate": kinds_of(EvaluateTable),
    "devices": kinds_of(DevicesTable),
    "checkpoint": kinds_of(CheckpointTable),
    "watch": kinds_of(WatchTable),
    "study": kinds_of(StudyTable) | kinds_of(TuneTable),
}
"""The keys of each table and their types."""

MODEL_KEYS: dict[str, dict[str, Any]] = {
    name: kinds_of(
        table_of(model.build, tuple(key for key in model.signature if key not in model.parameters), ConfigTable)
    )
    for name, model in MODEL_TABLE.items()
}
"""The keys of their own that models have."""

KEYS: dict[str, list[str]] = {
    "": list(TopLevelKeys.model_fields),
    **{name: list(kinds) for name, kinds in TYPES.items()},
}
"""Keys of each table; a draw may also misspell one, or put it in another."""

MODELS = ["logistic", "mlp", "cnn", "lenet", "lstm", "resnet20"]

NUMBERS: list[Any] = [
    *(0, 1, 2, 3, -1, 7, 10**6, 10**9, 10**9 + 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**400),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -0.1, 1e-9, 1e6, 1e12, 1e13, 1e38, 1e39, 5e-324, 1e-308, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
]

OWN = [
    *("own:Fine", "own:Plain", "own:Raises", "own:Exits", "own:Fails", "own:Leaves", "own:Wrong", "own:Empty"),
    *("own:Huge", "own:Deep", "own:NaN", "own:algorithm", "own:broken", "own:leaving", "own:nothing", "own:number"),
    *("own:Rule", "own:Logger", "own:Talks", "raising:x", "exiting:x", "misspelt:x", "bytes:x", "endless:x", "empty:x"),
    *("types:SimpleNamespace", "builtins:type", "builtins:print", "builtins:exit", "sys:exit"),
    *("torch.nn:Linear", "torch.nn:Module", "torch:zeros", "pathlib:Path", "collections:Counter", "pipe:x"),
]
"""Names of one's own code and of other code; `modules.py` holds the former."""

PATHS = [
    *("PIPE", "PIPE.safetensors", "FOLDER", "LOOP", "DEVICE", "TEXT", "file:PIPE", "file:FOLDER", "file:LOOP"),
    *(
        "folder:PIPE",
        "folder:FOLDER",
        "folder:TEXT",
        "file:TEXT",
        "file:DEVICE",
        "a" * 300,
        "b/" * 3000,
        "file:" + "c" * 300,
    ),
    *("PIPE.csv", "PIPE.parquet", "file:PIPE.parquet", "TEXT.safetensors", "/proc/self/mem", "/dev/stdin"),
]
"""Paths of what is no file of the kind that is asked for; `places` makes them."""

ODD: list[Any] = [
    *(True, False),
    *NUMBERS,
    *NUMBERS,
    *OWN,
    *PATHS,
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
    *([1e308, 1e308], [10**9], [10**6, 10**6], [2**63], [1] * 5000, ["x"] * 5000, list(range(3000))),
    *([], [1, "a", 2.0], [[1]], [{}], [0], [-1], [0.5], ["accuracy", "accuracy"], ["x" * 300], [float("nan")]),
    *({}, {"x": 1}, {"name": "fedavg"}, {"": 0}, {"a": {"b": {"c": {}}}}),
    *(datetime.date(2020, 2, 29), datetime.datetime(1, 1, 1), datetime.time(23, 59, 59)),
]

LONG = {"rounds", "epochs", "steps", "batches", "burn_in", "search", "folds", "seeds", "buckets", "clients", "cohort"}
"""Keys whose numbers from 4 to 10**6 are allowed and only take their time: these are drawn as 3."""


@dataclass(frozen=True)
class Case:
    """An experiment file and what `--set` changes in it."""

    text: bytes
    changes: list[str]


def case(number: int, table: Path) -> Case:
    """The case of a number.

    Args:
        number: keys every draw.
        table: a small Parquet file to train on.
    """
    rng = np.random.default_rng([20, number])
    raw = valid(rng, table)
    changes: list[str] = []
    for _ in range(pick(rng, [1, 1, 1, 2, 3])):
        mutated(rng, raw, changes)
    return Case(_written(rng, raw), changes)


def mutated(rng: np.random.Generator, raw: Table, changes: list[str]) -> None:
    """Change a file in a place, or add a change by `--set`."""
    kinds = [*6 * [_adjust], *3 * [_retype], *2 * [_replace_code], _misplace, _misspell, _nest, _drop, _double]
    if rng.random() < 0.2:
        changes.append(_change(rng, raw))
    else:
        pick(rng, kinds)(rng, raw)


def _written(rng: np.random.Generator, raw: Table) -> bytes:
    """The file's bytes, some of them no TOML or no UTF-8."""
    text = tomli_w.dumps(raw)
    if rng.random() < 0.03:
        text = text.replace("0.1", "9" * 5000, 1)
    text = _damaged(rng, text) if rng.random() < 0.1 else text
    content = text.encode("utf-8", "surrogatepass")
    at = int(rng.integers(0, len(content) + 1))
    return content[:at] + b"\xff\xfe" + content[at:] if rng.random() < 0.02 else content


def pick(rng: np.random.Generator, things: list[Any]) -> Any:
    """One of several, all with the same chance."""
    return things[int(rng.integers(len(things)))]


def valid(rng: np.random.Generator, table: Path) -> Table:
    """A small experiment, of one of the algorithms, schemes and models; most of them run."""
    scheme = pick(rng, [*30 * ["iid"], *SCHEMES])
    names = [pick(rng, list(ALGORITHMS)) for _ in range(rng.integers(1, 3))]
    return {
        "rounds": int(rng.integers(0, 2)),
        "data": {"dataset": f"file:{table}" if rng.random() < 0.8 else "digits"},
        "partition": {"scheme": scheme} | ({} if scheme == "natural" else {"clients": 4}),
        "model": {"name": "mlp", "hidden": [3], "norm": "batch"} if rng.random() < 0.9 else {"name": pick(rng, MODELS)},
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
    value = deepcopy(pick(rng, names if names and rng.random() < 0.3 else ODD))
    slow = isinstance(value, int | float) and not isinstance(value, bool) and 3 < value <= 10**9
    return 3 if key in LONG and slow else value


def _key(rng: np.random.Generator, name: str, table: Table) -> str:
    keys = [*table, *KEYS.get(name, [])]
    return str(pick(rng, keys)) if keys else "x"


def _adjust(rng: np.random.Generator, raw: Table) -> None:
    """Give a key that a table has a value of its type: most of them are allowed, some not together with others."""
    name = str(pick(rng, [each for each in KEYS if each]))
    table = pick(rng, [table for found, table in _tables(raw) if found == name] or [raw.setdefault(name, {})])
    if isinstance(table, dict):
        kinds = _kinds(name, table)
        key = pick(rng, list(kinds))
        table[key] = _typed(rng, key, kinds[key])


def _kinds(name: str, table: Table) -> dict[str, Any]:
    """The keys of a table and their types, for the algorithm, scheme, model or rule that it names."""
    own: type[ConfigTable]
    if name == "algorithm" and table.get("name") in ALGORITHMS:
        own = table_of(ALGORITHMS[table["name"]], ("participation", "local", "server"), AlgorithmTable)
        return {key: kind for key, kind in kinds_of(own).items() if key not in INNER}
    if name == "partition" and table.get("scheme") in SCHEMES:
        types = {each.name: each.file_type for each in parameters(table["scheme"]).values()}
        return kinds_of(PartitionTable) | types
    if name == "model" and table.get("name") in MODEL_KEYS:
        return kinds_of(ModelTable) | MODEL_KEYS[table["name"]]
    if name == "server" and table.get("rule") in SERVERS:
        return kinds_of(table_of(SERVERS[table["rule"]], (), ServerTable))
    return dict(TYPES[name])


def _typed(rng: np.random.Generator, key: str, kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return pick(rng, list(inner))
    if origin is Annotated:
        return _typed(rng, key, inner[0])
    if origin in (Union, UnionType):
        return _typed(rng, key, pick(rng, [each for each in inner if each is not type(None)]))
    if origin is tuple:
        return [_typed(rng, key, inner[0]) for _ in range(rng.integers(1, 3))]
    if origin is dict:
        return {pick(rng, ["a", "0", "held_out_accuracy"]): _typed(rng, key, inner[1])}
    plain = {bool: [True, False], int: [0, 1, 2, 3, 5], float: [0.01, 0.1, 0.5, 0.9, 1.0, 2.0, 0.0]}
    return pick(rng, NAMES.get(key) or plain.get(kind) or ["label", "x0", "a", "DIR"])


def _retype(rng: np.random.Generator, raw: Table) -> None:
    name, table = pick(rng, _tables(raw))
    key = _key(rng, name, table)
    table[key] = _value(rng, key)


def _replace_code(rng: np.random.Generator, raw: Table) -> None:
    """Name own code, or other code, as the model, an algorithm, a rule, a stage or a logger."""
    name = pick(rng, OWN)
    places: list[Callable[[], object]] = [
        lambda: raw.update(model={"name": name}, algorithm=[{"name": "fedavg"}], rounds=1),
        lambda: raw.update(algorithm=[{"name": name}]),
        lambda: raw.update(server={"rule": name}),
        lambda: raw.update(uplink={"chain": [{"name": name}]}),
        lambda: raw.update(watch={"loggers": [name]}),
    ]
    pick(rng, [places[0], *places])()


def _misplace(rng: np.random.Generator, raw: Table) -> None:
    (name, source), (_, target) = pick(rng, _tables(raw)), pick(rng, _tables(raw))
    key = _key(rng, name, source)
    target[key] = deepcopy(source.get(key, _value(rng, key)))  # a table may be placed in itself


def _misspell(rng: np.random.Generator, raw: Table) -> None:
    name, table = pick(rng, _tables(raw))
    key = _key(rng, name, table)
    at = int(rng.integers(0, len(key) + 1))
    table[key[:at] + pick(rng, ["x", "", " ", ".", "é", "\0", '"']) + key[at + 1 :]] = table.pop(key, _value(rng, key))


def _nest(rng: np.random.Generator, raw: Table) -> None:
    name, table = pick(rng, _tables(raw))
    key = _key(rng, name, table)
    table[key] = {key: table.get(key, 1), "x": {"y": [{"z": 1}]}}


def _drop(rng: np.random.Generator, raw: Table) -> None:
    _, table = pick(rng, _tables(raw))
    if table:
        del table[pick(rng, list(table))]


def _double(rng: np.random.Generator, raw: Table) -> None:
    key = pick(rng, list(raw) or ["data"])
    raw[key] = [raw.get(key, {}), raw.get(key, {})]


def _change(rng: np.random.Generator, raw: Table) -> str:
    """A `--set` of a key that there is, or of none, by a value that may be no TOML."""
    name, table = pick(rng, _tables(raw))
    key = _key(rng, name, table)
    value = _value(rng, key)
    written = pick(rng, [str, json.dumps, repr])
    try:
        text = written(value)
    except TypeError:
        text = str(value)
    path = pick(
        rng, [f"{name}.{key}", f"{name}.{key}", key, f"{name}.{key}.x", f"{name}..{key}", f"{name}.0.{key}", ""]
    )
    change = f"{path}{pick(rng, [*6 * ['='], ' = ', '==', ''])}{text}"
    return change.replace("\0", "")  # no command line can have it


def _damaged(rng: np.random.Generator, text: str) -> str:
    at = int(rng.integers(0, len(text) + 1))
    damage: Callable[[], str] = pick(
        rng,
        [
            lambda: text[:at],
            lambda: text[:at] + pick(rng, ["\0", '"""', "[[", "]]", "=", "\x07", "\ufeff", "'", "é"]) + text[at:],
            lambda: text + "\n[data]\n",
            lambda: text + "\n[[algorithm]]\n[[algorithm]]\n",
            lambda: text + "\nmodel.name = 'mlp'\n",
            lambda: "\n".join([*text.splitlines(), *text.splitlines()]),
            lambda: "[" * 5_000,
            lambda: "a = " + "[" * 5_000,
        ],
    )
    return damage()
