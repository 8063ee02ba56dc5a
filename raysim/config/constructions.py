"""Constructions that check the keys of the experiment file, each with one part alone; torch is not imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

from algorithms.names import SERVERS
from algorithms.options.aggregation import AGGREGATES
from raysim.config.algorithm import algorithms_of
from raysim.config.bounds import LARGEST_WHOLE
from raysim.config.check import ConfigTable, checked
from raysim.config.model import model_of
from raysim.config.options import OptionTable
from raysim.config.ranges import Construction
from raysim.config.tables import devices_of
from raysim.config.uplink import UplinkTable

NEEDED: Mapping[str, Any] = {"alpha": 0.5, "byzantine": 0, "norm": 1.0, "std": 1.0, "share": 0.5, "levels": 1}
"""Values of keys without a default."""


def typed(table: type[ConfigTable]) -> Construction:
    """Return the construction of a typed table, which knows all bounds; the keys that must be given are names."""
    needed = {name: "x" for name, field in table.model_fields.items() if field.is_required()}
    return Construction(lambda keys: checked(table, {**needed, **keys}, ""))


def of_algorithm(name: str, beside: Iterable[Mapping[str, Any]]) -> Construction:
    """Return the construction of an algorithm's own keys.

    Args:
        name: name of the algorithm.
        beside: other keys of its own to try a value with.
    """

    def build(keys: Mapping[str, Any]) -> object:
        return algorithms_of({"algorithm": {"name": name, **keys}})

    return Construction(build, ({}, *beside))


def common() -> Construction:
    """Return the construction of the keys that all algorithms share."""
    beside: Sequence[Mapping[str, Any]] = ({}, {"deadline": 1.0}, {"sampling": "poisson"})
    return Construction(lambda keys: algorithms_of({"algorithm": dict(keys)}), beside)


def oort() -> Construction:
    """Return the construction of `algorithm.oort`."""
    return Construction(lambda keys: algorithms_of({"algorithm": {"sampling": "oort", "oort": dict(keys)}}))


def local(loss: str) -> Construction:
    """Return the construction of `[local]` with a loss."""
    beside: Sequence[Mapping[str, Any]] = ({}, {"optimizer": "adam"}, {"lr_decay": 0.5})
    return Construction(lambda keys: algorithms_of({"local": {"loss": loss, **keys}}), beside)


def server(rule: str) -> Construction:
    """Return the construction of a server rule."""
    name = "fedasync" if rule == "weighted-mix" else "fedavg"  # It is for single arrivals.

    def build(keys: Mapping[str, Any]) -> object:
        return algorithms_of({"algorithm": {"name": name}, "server": {"rule": rule, **_needed(SERVERS[rule], keys)}})

    return Construction(build)


def aggregate(name: str) -> Construction:
    """Return the construction of a rule of aggregation."""
    return Construction(lambda keys: algorithms_of({"server": {"aggregate": name, **_needed(AGGREGATES[name], keys)}}))


def stage(name: str, kind: Callable[..., Any]) -> Construction:
    """Return the construction of a stage of a chain."""
    return Construction(lambda keys: UplinkTable.over("uplink", {"chain": [{"name": name, **_needed(kind, keys)}]}, {}))


def _needed(function: Callable[..., Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    lacking = [key for key, each in signature(function).parameters.items() if each.default is Parameter.empty]
    return {**{key: NEEDED[key] for key in lacking}, **keys}


def option(table: type[OptionTable]) -> Construction:
    """Return the construction of an option's table."""
    return Construction(lambda keys: table.over("option", keys, {}), table.complete)


def inside(table: type[OptionTable], key: str) -> Construction:
    """Return the construction of a table inside an option's."""
    around = table.around[key]
    return Construction(lambda keys: table.over("option", {**around, key: {**around.get(key, {}), **keys}}, {}))


def devices() -> Construction:
    """Return the construction of `[devices]`."""
    return Construction(lambda keys: devices_of(dict(keys)), ({}, {"availability": "day-night"}))


def model() -> Construction:
    """Return the construction of the keys that all models share."""
    beside: Sequence[Mapping[str, Any]] = (
        {},
        {"norm": "group"},
        # The ends bound the start, and the start bounds the ends: as wide as they go.
        {"norm": "batch-renorm", "renorm_start": 0, "renorm_r_end": LARGEST_WHOLE, "renorm_d_end": LARGEST_WHOLE},
        {"init": "normal"},
        {"train": "lora"},
    )
    normed = tuple({"name": "mlp", **each} for each in beside)
    return Construction(lambda keys: model_of(dict(keys)), normed)


def of_model(name: str) -> Construction:
    """Return the construction of a model's own keys."""
    return Construction(lambda keys: model_of({"name": name, **keys}))
