"""Ranges of the values of `Local`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args

import numpy as np

from algorithms.core.batch_norm import Statistics
from algorithms.core.errors import InputError, wrong
from algorithms.core.finite import Nonfinite
from algorithms.core.head import ModelPart
from algorithms.training.optimiser_names import OPTIMISERS, OWN

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""Largest number that single-precision entries of a model can hold."""

CHOICES = {
    "optimizer": tuple(OPTIMISERS),
    "statistics": get_args(Statistics),
    "affine": ("trained", "frozen"),
    "part": get_args(ModelPart),
    "lr_schedule": ("constant", "linear", "cosine"),
    "nonfinite": get_args(Nonfinite),
}


def check_local(values: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Check the values of `Local`.

    Args:
        values: value of each field, by name.
        usual: default of each field.

    Raises:
        InputError: a value is out of range, or two exclude each other.
    """
    lines = list(_mistakes(values, usual))
    if lines:
        raise InputError(lines[0], lines[1:])


def _mistakes(values: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[str]:
    yield from _length(values)
    yield from _numbers(values)
    if values["update"] is not None:
        yield from _of_own_update(values, usual)
    for name, allowed in CHOICES.items():
        value = values[name]
        if value not in allowed:
            near = get_close_matches(str(value).lower(), allowed, 1) or allowed
            yield from wrong(False, f"local.{name}", value, " or ".join(map(repr, allowed)), f'use "{near[0]}"')
    yield from _optimizer(values, usual)


OF_ADAM = ("beta1", "beta2", "eps")
"""Keys that only Adam reads."""

OF_OPTIMISERS = ("momentum", "nesterov", *OF_ADAM, "optimizer_options")
"""Keys that mean nothing to another optimiser."""

OF_STEPS = (
    *(*OF_ADAM, "momentum", "nesterov", "weight_decay", "method", "clip", "optimizer", "lr_schedule"),
    *("statistics", "affine", "part"),
)
"""Keys that only the local steps of `Local` read."""


def _of_own_update(values: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistake for each key that a client update of the user's own would silently leave out."""
    compute = values["compute"]
    why = f"left out with local.update = {values['update'].name!r}, which takes its own steps"
    for name in OF_STEPS:
        yield from wrong(values[name] == usual[name], f"local.{name}", values[name], why, "remove it")
    sequential = compute.execution in ("auto", "sequential")
    yield from wrong(not compute.compile, "local.compile", compute.compile, why, "remove it")
    yield from wrong(sequential, "local.execution", compute.execution, why, "remove it")
    yield from wrong(not compute.channels_last, "local.channels_last", True, why, "remove it")
    allowed = "fp32 or fp64 with local.update"
    yield from wrong(compute.precision != "bf16", "local.precision", compute.precision, allowed, "remove it")


def _optimizer(values: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes of keys that do not go with the optimiser."""
    optimizer, momentum, options = values["optimizer"], values["momentum"], values["optimizer_options"]
    remedy = 'remove it, or set local.optimizer = "adam"' if optimizer in OWN else "set local.optimizer_options instead"
    for name in OF_ADAM:
        fits = optimizer == "adam" or values[name] == usual[name]
        allowed = f"{usual[name]} with optimizer = {optimizer!r}"
        yield from wrong(fits, f"local.{name}", values[name], allowed, remedy)
    allowed = f"0 with optimizer = {optimizer!r}"
    yield from wrong(optimizer == "sgd" or not momentum, "local.momentum", momentum, allowed, "remove it")
    holds = not values["nesterov"] or momentum > 0
    yield from wrong(holds, "local.nesterov", values["nesterov"], "false without momentum", "set local.momentum = 0.9")
    decays, decay = optimizer != "rprop" or not values["weight_decay"], values["weight_decay"]
    yield from wrong(decays, "local.weight_decay", decay, "0 with optimizer = 'rprop', which has none", "remove it")
    empty = optimizer not in OWN or not options
    allowed = f"empty with optimizer = {optimizer!r}, which has keys of its own"
    name, remedy = "local.optimizer_options", "set local.momentum or local.beta1 instead"
    yield from wrong(empty, name, dict(options), allowed, remedy)
    taken = {"lr", "weight_decay", "params"} & set(options)
    remedy = f"remove {min(taken, default='')}"
    yield from wrong(not taken, name, dict(options), "without keys of [local]", remedy)


def _length(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a mistake unless exactly one of epochs, steps and batches sets the length of a client update."""
    largest = values["steps"] == "largest"
    given = (None if largest else values["epochs"], values["steps"], values["batches"])
    one = sum(value is not None for value in given) == 1
    yield from wrong(one, "local.epochs, local.steps, local.batches", given, "one of them", "remove the others")
    for name in ("epochs", "steps", "batches"):
        value = values[name]
        whole = value is None or (isinstance(value, int) and value >= 1) or (name == "steps" and largest)
        allowed = 'a whole number >= 1, or "largest"' if name == "steps" else "a whole number >= 1"
        yield from wrong(whole, f"local.{name}", value, allowed, f"set local.{name} = 1")
    size = values["batch_size"]
    fits = size == "full" or (isinstance(size, int) and size >= 1)
    yield from wrong(fits, "local.batch_size", size, 'a whole number >= 1 or "full"', "set local.batch_size = 10")


def _numbers(values: Mapping[str, Any]) -> Iterator[str]:
    for name, remedy in (("lr", "0.1"), ("eps", "1e-8"), ("clip", "1.0, or leave it out")):
        value = values[name]
        holds = (name == "clip" and value is None) or 0 < value <= FLOAT32_MAX
        yield from wrong(holds, f"local.{name}", value, "a float32 number > 0", f"set local.{name} = {remedy}")
    decay = values["weight_decay"]
    holds = 0 <= decay <= FLOAT32_MAX
    yield from wrong(holds, "local.weight_decay", decay, "a float32 number >= 0", "set local.weight_decay = 0")
    for name in ("momentum", "beta1", "beta2"):
        value = values[name]
        remedy = f"set local.{name} = 0.9, or leave it out"
        yield from wrong(0 <= value < 1, f"local.{name}", value, "in [0, 1)", remedy)
    decay, shares = values["lr_decay"], values["lr_decay_at"]
    yield from wrong(0 < decay <= 1, "local.lr_decay", decay, "in (0, 1]", "set local.lr_decay = 1")
    ascending = all(0 < share < 1 for share in shares) and sorted(set(shares)) == list(shares)
    allowed = "shares of the rounds in (0, 1), ascending"
    yield from wrong(ascending, "local.lr_decay_at", shares, allowed, "set local.lr_decay_at = [0.5, 0.75]")
    drops = not shares or decay < 1
    yield from wrong(drops, "local.lr_decay", decay, "below 1 with lr_decay_at", "set local.lr_decay = 0.1")
