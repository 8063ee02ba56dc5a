"""Nearest right keys and names for wrong ones, across all tables of an experiment file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from inspect import signature
from itertools import product
from os import PathLike, fspath
from typing import Any

import tomli_w

import partitioning
from algorithms.names import ALGORITHMS, SERVERS, STAGES
from algorithms.training.loss import LOSSES
from algorithms.training.optimiser_names import OPTIMISERS
from partitioning.common.errors import folded, nearest
from partitioning.schemes.registry import parameters
from raysim.common.errors import InputError, UnknownError, each_error, joined
from raysim.common.surface import given, option
from raysim.config import own
from raysim.config.bounds import plain
from raysim.config.check import ConfigTable, UnknownKeyError
from raysim.config.read import algorithm_tables, short_name
from raysim.data.catalogue import DATASETS
from raysim.models.build import MODELS

SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("mu", "proximal-mu", "prox"), "proximal"),
    **dict.fromkeys(("learning-rate", "eta", "step-size", "client-lr", "local-lr"), "lr"),
    **dict.fromkeys(("local-epochs", "num-epochs", "e"), "epochs"),
    **dict.fromkeys(("local-steps", "num-steps"), "steps"),
    **dict.fromkeys(("batch", "bs", "local-batch-size", "b"), "batch_size"),
    **dict.fromkeys(("num-clients", "n-clients", "num-partitions", "partitions"), "clients"),
    **dict.fromkeys(("num-rounds", "n-rounds", "global-rounds", "communication-rounds", "t"), "rounds"),
    **dict.fromkeys(("fraction-fit", "participation", "join-ratio", "c"), "fraction"),
    **dict.fromkeys(("clients-per-round", "num-sampled-clients", "sampled-clients"), "cohort"),
    **dict.fromkeys(("partition.alpha", "partition.concentration"), "label_alpha"),
    **dict.fromkeys(("random-seed", "random-state"), "seed"),
    **dict.fromkeys(("wd", "l2"), "weight_decay"),
    **dict.fromkeys(("optim", "optimiser"), "optimizer"),
    **dict.fromkeys(("criterion", "loss-function", "loss-fn"), "loss"),
    **dict.fromkeys(("target", "target-column", "label-column", "y"), "label"),
    **dict.fromkeys(("num-workers", "workers", "num-actors"), "actors"),
    **dict.fromkeys(("architecture", "arch", "net"), "name"),
}
"""Keys that papers and other libraries use, folded, and ours; one with a table is meant there alone."""

HERE, BESIDE = 0.2, 0.1
"""Advantage of a key that the table takes, and of one that it would take with another algorithm, model or scheme."""

SELECTING: Mapping[str, str] = {"model": "name", "scheme": "scheme"}
"""Key that chooses a table's other keys, by the kind of the thing that it names."""

LEAST_ELSEWHERE = 0.8
"""Least likeness of a key of another table."""

LEAST_SHARED = 4
"""Fewest letters in a row that an algorithm shares with a key that it is named after."""

NAMES: Mapping[str, Collection[str]] = {
    "algorithm.name": ALGORITHMS,
    "server.rule": SERVERS,
    "model.name": MODELS,
    "partition.scheme": partitioning.SCHEMES,
    "data.dataset": DATASETS,
    "local.loss": LOSSES,
    "local.optimizer": OPTIMISERS,
}
"""Names that keys take; the chains of tables take stages, too."""


@dataclass(frozen=True)
class _Key:
    """Known key of a table; `kind` and `thing` name the algorithm, model, scheme or rule that alone has it."""

    table: str
    name: str
    kind: str = ""
    thing: str = ""


def hinted(error: InputError, raw: Mapping[str, Any], tables: Mapping[str, type[ConfigTable]]) -> InputError:
    """Return the errors of an experiment with the nearest right key or name, also of other tables.

    Args:
        error: error, or several.
        raw: tables of the file.
        tables: models of the tables by name; "" for the keys outside of tables.
    """
    return joined([_hinted(each, raw, tables) for each in each_error(error)])


def _hinted(error: InputError, raw: Mapping[str, Any], tables: Mapping[str, type[ConfigTable]]) -> InputError:
    if isinstance(error, UnknownKeyError):
        listed = [table for table in algorithm_tables(raw) if isinstance(table, dict)]
        algorithms = [name for table in listed if isinstance(name := table.get("name", "fedavg"), str)]
        called = [_Key("algorithm", str(table["label"])) for table in listed if "label" in table]
        called += [_Key("algorithm", short_name(name)) for name in algorithms]
        known = [*_known(tables), *_of_own(algorithms), *called]
        common = tables[error.where].model_fields if error.where in tables else ()
        question = _of_another(error, raw, known) or _nearest_key(error, [*map(short_name, algorithms)], known, common)
        return error.inside(error.above, question)
    if isinstance(error, UnknownError):
        return UnknownError(
            error.what,
            error.name,
            error.allowed,
            _nearest_name(error, {**NAMES, **dict.fromkeys(_chains(tables), STAGES)}),
        )
    return error


def _of_another(error: UnknownKeyError, raw: Mapping[str, Any], known: Collection[_Key]) -> str:
    """Return the remedy for a key of another model or scheme, one that the user's own algorithm lacks, or a name."""
    kind, _, thing = error.of.partition(" ")
    tables = [table for table in algorithm_tables(raw) if isinstance(table, dict)]
    is_named = error.where == "algorithm" and _Key("algorithm", error.name) in known
    if is_named and any(isinstance(table.get(error.name), dict) for table in tables):
        return (
            f"a path with a name is for {option('set')} alone; in a file, write these keys into the table of that name."
        )
    others = [key.thing for key in known if (key.table, key.name, key.kind) == (error.where, error.name, kind)]
    if others and kind in SELECTING:
        table = raw.get(error.where, {})
        says = f"it is a key of {kind} {others[0]}, not of {thing}; remove it"
        if error.name not in table:
            return f"{says}."  # it stands in a table of an algorithm's own
        kept = {SELECTING[kind]: thing} | {key: value for key, value in table.items() if key in error.allowed}
        with suppress(TypeError, ValueError):  # a value of Python's that TOML has no text for
            return f"{says}, or replace the table: {given('set', f'{error.where}={_toml(kept)}')}."
        return f"{says}."
    if others and ":" in thing and not nearest(error.name, error.allowed):
        return f"give your function the keyword `{error.name}`, or remove it."
    return ""


def _toml(value: Any) -> str:
    """Return a value as TOML in one line; None is left out of tables.

    Raises:
        TypeError, ValueError: TOML has no such value.
    """
    value = plain(value)
    if isinstance(value, Mapping):
        keys = {key: tomli_w.dumps({key: 0}).removesuffix(" = 0\n") for key in value}
        return f"{{{', '.join(f'{keys[key]} = {_toml(each)}' for key, each in value.items() if each is not None)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"": fspath(value) if isinstance(value, PathLike) else value}).removeprefix('"" = ').strip()


def _nearest_key(
    error: UnknownKeyError, algorithms: Collection[str], known: Collection[_Key], common: Collection[str]
) -> str:
    """Return the question that names the nearest known key, a common key of its table by its path; "" if none is near.

    An own key of one of several algorithms stands alone, because a path by `--set` would change the others, too.
    """
    word = folded(error.name)
    word = SYNONYMS.get(f"{error.where}.{word}", SYNONYMS.get(word, error.name))
    # With its table, because `--set` takes another key by the name alone: `epochs` for `local.epochs`.
    table = f"{error.above}{error.where}." if error.where else ""
    paths = {name: table + name if name in common or not error.of else name for name in error.allowed}
    found = [(likeness + HERE, 0, f"did you mean {paths[name]!r}?") for name, likeness in nearest(word, paths)]
    for key in known:
        if not key.thing and (key.table, key.name) == (error.where, error.name):
            continue  # a key of the usual loss: `_known` also names it with its loss
        for _, likeness in nearest(word, [key.name], LEAST_ELSEWHERE):
            score = likeness + BESIDE * (key.table == error.where) + BESIDE / 2 * (key.thing in algorithms)
            # Of several algorithms with the key, the one that it is named after: FedProx for `proximal`.
            shared = SequenceMatcher(None, key.name, key.thing).find_longest_match().size
            named = shared if key.kind == "algorithm" and shared >= LEAST_SHARED else 0
            found.append((score, named, _place(key, algorithms, error.above if key.table == error.where else "")))
    return max(found, key=lambda each: each[:2])[2] if found else ""


def _place(key: _Key, algorithms: Collection[str], above: str) -> str:
    if key.kind == "algorithm" and key.thing in algorithms:
        return f"did you mean 'algorithm.{key.thing}.{key.name}'?"
    path = f"{key.table}.{key.name}" if key.table else key.name
    return f"did you mean {above + path!r}" + (f" of {key.kind} {key.thing}?" if key.thing else "?")


def _nearest_name(error: UnknownError, taken: Mapping[str, Collection[str]]) -> str:
    """Return the question that names the key that takes this name; "" if none does."""
    if any(folded(error.name) == folded(name) for name in error.allowed):
        return ""
    place = error.what.partition(" = ")[0]
    for key, names in taken.items():
        for name in names if key != place else ():
            if folded(name) == folded(error.name):
                return f"did you mean {key} = {json.dumps(name)}?"
    return ""


def _known(tables: Mapping[str, type[ConfigTable]]) -> Iterator[_Key]:
    """Yield the keys of all tables, and of everything that has a name in them."""
    for table, model in tables.items():
        yield from (_Key(table, name) for name in model.model_fields)
    for scheme in partitioning.SCHEMES:
        yield from (_Key("partition", name, "scheme", scheme) for name in parameters(scheme))
    for model_name, builder in MODELS.items():
        yield from (_Key("model", name, "model", model_name) for name in builder.parameters)
    for algorithm, function in ALGORITHMS.items():
        own_keys = [name for name in signature(function).parameters if name not in own.PARTS]
        yield from (_Key("algorithm", name, "algorithm", algorithm) for name in own_keys)
    for loss, kind in LOSSES.items():
        yield from (_Key("local", name, "loss", loss) for name in signature(kind).parameters)
    for rule_name, rule in SERVERS.items():
        yield from (_Key("server", name, "rule", rule_name) for name in signature(rule).parameters)
    for stage_name, stage in STAGES.items():
        chains = product(_chains(tables), signature(stage).parameters)
        yield from (_Key(chain, name, "stage", stage_name) for chain, name in chains)


def _of_own(algorithms: Collection[str]) -> Iterator[_Key]:
    """Yield the keys of the user's own algorithms, which `--set` changes by the function's name."""
    for name in algorithms:
        if name not in ALGORITHMS:
            with suppress(InputError):
                keys = signature(own.resolve("algorithm.name", name, ALGORITHMS)).parameters
                yield from (
                    _Key("algorithm", key, "algorithm", short_name(name)) for key in keys if key not in own.PARTS
                )


def _chains(tables: Mapping[str, type[ConfigTable]]) -> list[str]:
    """Return the keys of chains of stages."""
    return [f"{name}.chain" for name, table in tables.items() if "chain" in table.model_fields]
