"""The part `server`: turn the weighted mean of the client models into the next global model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from math import isfinite
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.errors import require
from algorithms.core.finite import require_finite
from algorithms.core.layout import Layout, Memory, Packed
from algorithms.core.report import UpdateRows
from algorithms.core.returned import Returned, encodes, is_own, name_of, names_of


class Server(Protocol):
    """Server rule for the shared floating entries. A shared counter always becomes the largest of the cohort's.

    A rule with a further parameter `updates` also gets the `UpdateRows` of the round: each client's report; it names
    what it reads beside every report's entries in a property `needs`. `columns` names numbers of its memory that
    `metrics.parquet` gets. A rule with a method `fitted` is replaced by what
    this returns for the `Census`, like `Local`. `layout.unpack(model)` has the entries by name, as views.
    """

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        """Return the next global model, and the rule's new memory.

        Args:
            model: present global model; a user's rule gets a copy.
            mean: weighted mean of the client models.
            total: sum of their unnormalised weights, > 0.
            memory: memory of the rule; a user's rule gets a copy.
            layout: entries of the model.
        """
        ...


Given: TypeAlias = tuple[Packed, Packed, float, Memory, Layout]
"""Arguments of a server rule in their order; see `Server`."""


def next_model(rule: Server, given: Given, round_number: int, updates: UpdateRows) -> tuple[Packed, Memory]:
    """Apply a server rule.

    Raises:
        DivergedError: the next model or the rule's memory is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        model, memory = applied(rule, given, updates)
    require_finite(model, given[-1], round_number, memory)
    return model, memory


def fitted_rule(rule: Server, census: Census) -> Server:
    """Return a rule for these training clients: the result of its method `fitted`, or the rule itself without one.

    Raises:
        InputError: the result of a user's rule is no rule.
    """
    found = rule.fitted(census) if hasattr(rule, "fitted") else rule
    if not callable(found):
        fault = f"return a rule from its method `fitted`, and returns a {type(found).__name__}"
        raise Returned(f"server.rule = {name_of(rule)!r}", getattr(rule, "fitted", None)).fault(fault)
    fitted: Server = found
    return fitted


def applied(rule: Server, given: Given, updates: UpdateRows) -> tuple[Packed, Memory]:
    """Return the result of a server rule, which gets the reports of the client updates if it takes them."""
    reports: dict[str, Any] = {"updates": updates} if takes_updates(type(rule)) else {}
    model, kept = _of_own(rule, given, reports) if is_own(rule) else rule(*given, **reports)
    return model, {name: np.asarray(value) for name, value in kept.items()}


def _of_own(rule: Server, given: Given, reports: Mapping[str, Any]) -> tuple[Packed, Memory]:
    """Return the result of a user's rule; raise InputError if it does not fulfil its duties."""
    returned, (model, mean, total, memory, layout) = Returned(f"server.rule = {name_of(rule)!r}", rule), given
    # It may step in place, and this model may be the best so far, or one that is being trained.
    model, memory = model.copy(), {name: value.copy() for name, value in memory.items()}
    with returned.keeping_nothing("return it in its memory, or make it in `__init__` if it never changes"):
        found = rule(model, mean, total, memory, layout, **reports)
    if duty := _broken_duty(found, mean):
        raise returned.fault(duty)
    return found


def _broken_duty(found: object, mean: Packed) -> str:
    """Return the duty that a user's rule does not fulfil; "" if it returns a model and a memory."""
    if not isinstance(found, tuple) or len(found) != 2:
        return f"return a model and a memory, and returns a {type(found).__name__}"
    model, memory = found
    if not isinstance(model, Packed):
        return f"return a model that is Packed, and returns a {type(model).__name__}"
    for kept, given in ((mean.floats, model.floats), (mean.integers, model.integers)):
        if not isinstance(given, np.ndarray) or (given.shape, given.dtype) != (kept.shape, kept.dtype):
            shape, dtype = getattr(given, "shape", ()), getattr(given, "dtype", type(given).__name__)
            return f"return a model with {kept.shape} entries of {kept.dtype}, and returns {shape} of {dtype}"
    if not isinstance(memory, Mapping) or not all(map(encodes, memory)):
        return "return a memory of arrays by names of UTF-8"
    for name, value in memory.items():
        if not isinstance(value, np.ndarray | np.number) or value.dtype.kind not in "fiu":
            return f"return a memory of arrays of numbers, and {name!r} is a {type(value).__name__}"
    return ""


@cache
def takes_updates(rule: type[Server]) -> bool:
    """Return whether a server rule takes the reports of the client updates."""
    return "updates" in signature(rule.__call__).parameters


@dataclass(frozen=True)
class Assign:
    """The mean itself: w <- mean."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        return mean, memory


@dataclass(frozen=True)
class Mix:
    """Step towards the mean: w <- (1 - alpha) w + alpha mean.

    Args:
        alpha: in (0, 1].
    """

    alpha: float

    def __post_init__(self) -> None:
        holds = isfinite(self.alpha) and 0 < self.alpha <= 1
        require(holds, "server.alpha", self.alpha, "in (0, 1]", "set server.alpha = 1.0")

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        mixed = (1 - self.alpha) * model.floats.astype(np.float64) + self.alpha * mean.floats
        return Packed(mixed.astype(mean.floats.dtype), mean.integers), memory


@dataclass(frozen=True)
class WeightedMix(Mix):
    """Step towards the mean by alpha times the total weight.

        w <- (1 - alpha_t) w + alpha_t mean,   alpha_t = alpha sum_k p_k

    It is FedAsync's rule for models that arrive one by one. Their weights must be at most 1.

    Args:
        alpha: in (0, 1].

    Raises:
        InputError: alpha_t is above 1 (when the rule is applied).
    """

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        length = self.alpha * total
        allowed, remedy = "at most 1", "use a weighting of at most 1, or the rule mix"
        require(length <= 1, "server.alpha x weight", length, allowed, remedy)
        return Mix(length)(model, mean, total, memory, layout)


def on_parameters(floats: NDArray[np.float64], mean: Packed, layout: Layout) -> Packed:
    """Return a model with stepped parameters; all other entries take the mean, so that variances stay positive.

    Args:
        floats: floating entries after the step.
        mean: weighted mean of the client models.
        layout: entries of the model.
    """
    stepped = mean.floats.copy()
    for entry, place in layout.places():
        if entry.is_parameter:
            stepped[place] = floats[place]
    return Packed(stepped, mean.integers)


@dataclass(frozen=True)
class Momentum:
    """Step of the parameters with momentum; all other entries take the mean: v <- beta v + mean - w,  w <- w + lr v.

    Args:
        lr: eta, > 0.
        beta: decay of the velocity, in [0, 1).

    Paper: Hsu, Qi and Brown, 2019, section 4.3.
    """

    lr: float = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        require(isfinite(self.lr) and self.lr > 0, "server.lr", self.lr, "a number > 0", "set server.lr = 1.0")
        require(0 <= self.beta < 1, "server.beta", self.beta, "in [0, 1)", "set server.beta = 0.9")

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        w = model.floats.astype(np.float64)
        v = self.beta * memory.get("v", np.zeros_like(w)) + (mean.floats - w)
        return on_parameters(w + self.lr * v, mean, layout), {"v": v}


class Stretch(Protocol):
    """Part of a method that knows the length of the server's step."""

    def stretch(self, updates: UpdateRows) -> float:
        """Return the factor s on the step from the model to the mean, from the round's reports."""
        ...


@dataclass(frozen=True)
class Stretched:
    """Server rule after a longer or shorter step: server(w, w + s (mean - w)); only parameters take that step.

    Args:
        by: part that gives s.
        server: rule.
    """

    by: Stretch
    server: Server = Assign()

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries that the rule reads in a report beside those that every report has."""
        return names_of(self.server, "needs")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers in the rule's memory that become columns of the metrics."""
        return names_of(self.server, "columns")

    def fitted(self, census: Census) -> Self:
        """Return the rule for these training clients."""
        return replace(self, server=fitted_rule(self.server, census))

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout, updates: Any = None
    ) -> tuple[Packed, Memory]:
        w = model.floats.astype(np.float64)
        aim = on_parameters(w + self.by.stretch(updates) * (mean.floats - w), mean, layout)
        return applied(self.server, (model, aim, total, memory, layout), updates)
