"""HeteroFL: Diao, Ding and Tarokh, "HeteroFL: Computation and Communication Efficient Federated Learning for
Heterogeneous Clients", 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.entries import Kind
from algorithms.core.errors import InputError, require, require_one
from algorithms.core.fleet import Fleet
from algorithms.core.keys import Purpose, generator
from algorithms.core.layout import Layouts
from algorithms.core.state import State
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.option import Conflict, Draft, Option
from algorithms.parts.received import Received
from algorithms.parts.schedule import Participation
from algorithms.parts.seconds import update_seconds
from algorithms.parts.server import Assign, Server
from algorithms.training.local import Local
from algorithms.training.loss import CrossEntropy

if TYPE_CHECKING:
    import torch
    from torch import nn

    from algorithms.rounds.round import PendingRound
    from algorithms.rounds.sizes import SlicedFleet
    from algorithms.training.slicing import Slice

LevelsBy = Literal["client", "round", "device", "speed"]

FIVE = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""HeteroFL's levels a to e."""

BACKWARD = 3
"""FLOPs of a training step as a multiple of those of the forward pass: the backward pass takes twice as many."""


def sized_round(state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
    """Start a round of models of many sizes; arguments as in `start_round`."""
    from algorithms.rounds.sizes import measured, start_sized

    sizes = algorithm.option(Sizes) or Sizes()
    memory = dict(state.of(sizes.name))
    if not memory:
        parts = [sizes.slice(level, trains=False) for level in (*sizes.levels, 1.0)]
        memory["shapes"], memory["flops"] = measured(parts, fleet)
    if "level" not in memory or sizes.by == "round":
        memory["level"] = sizes.assigned(fleet.census, state.seed, state.round + 1)
    state = state.keeping(sizes.name, memory)
    draft = Draft.of(state, algorithm, fleet).attended()
    levels = memory["level"][np.searchsorted(fleet.census.clients, draft.drawn)]
    return start_sized(draft, sizes.views(state, algorithm, fleet, trains=True), levels)


@dataclass(frozen=True)
class Sizes(Option):
    """Models of many sizes: a client of level p trains the first ceil(p C) of the C channels of each hidden layer.

        w[i] <- sum_(k: p_k holds i) n_k w_k[i] / sum_(k: p_k holds i) n_k       for each entry i of the model

    The first layer's input and the last one's output are whole. An entry that no client of a round trains keeps its
    value. The memory holds the `level` of each training client, int64 [K], and for each level and the whole model the
    `shapes` of its entries and its `flops` for a sample, forward.

    Args:
        levels: shares of the channels, different and in (0, 1].
        shares: unnormalised share of the clients of each level, > 0; equal if empty. "device" takes none.
        by: level of a client. "client" draws it once, in exact shares; "round" draws it anew in each round; "device"
            gives each kind of devices a level, faster kinds larger ones; "speed" gives the fastest devices the largest
            level, in these shares.
        scaler: whether hidden layers divide their output by the level in training.
        ordered: whether each step of a client draws a width among the levels up to its own (ordered dropout).
        masked_loss: whether outputs of classes that a client has no training sample of are 0 in training.

    Raises:
        InputError: a value is out of range.
    """

    levels: tuple[float, ...] = FIVE
    shares: tuple[float, ...] = ()
    by: LevelsBy = "client"
    scaler: bool = True
    ordered: bool = False
    masked_loss: bool = False

    name: ClassVar[str] = "sizes"
    in_own_rounds: ClassVar[bool] = True
    any_norm: ClassVar[bool] = True
    forms_models: ClassVar[str] = "clients train models of many sizes"
    own_round: ClassVar[Any] = staticmethod(sized_round)
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            *("models of many sizes", "another round function"),
            "not be used together, because such rounds train whole models",
            "use a method of plain rounds",
        ),
        Conflict(
            *("models of many sizes", "personal state"),
            "be shared, because a client's level may change what it keeps",
            "leave out what stays with the clients",
        ),
        *(
            Conflict(
                *("models of many sizes", measure),
                "be left out, because changes of different sizes do not compare",
                f'remove "{measure}" from evaluate.measures',
            )
            for measure in ("dl", "bn")
        ),
    )

    def __post_init__(self) -> None:
        # Levels that differ in the seventh digit would share their columns.
        distinct = bool(self.levels) and len(set(self.titles)) == len(self.levels)
        holds = distinct and all(0 < level <= 1 for level in self.levels)
        require(
            holds, "algorithm.levels", self.levels, "different shares in (0, 1]", "set algorithm.levels = [1.0, 0.5]"
        )
        fits = not self.shares or (len(self.shares) == len(self.levels) and all(0 < s < np.inf for s in self.shares))
        allowed = f"{len(self.levels)} numbers > 0, one for each level"
        require(fits, "algorithm.shares", self.shares, allowed, "leave it out for equal shares")
        require_one("algorithm.by", self.by, get_args(LevelsBy), 'set algorithm.by = "client"')
        allowed = 'left out with algorithm.by = "device", whose kinds decide'
        require(self.by != "device" or not self.shares, "algorithm.shares", self.shares, allowed, "remove it")

    @property
    def settings(self) -> Mapping[str, str]:
        return {"models of many sizes": "models of many sizes"}

    @property
    def titles(self) -> tuple[str, ...]:
        """Beginning of the names of each level's columns."""
        return tuple(f"level_{level:g}" for level in self.levels)

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the levels
        """Names of the measures: updates, bytes both ways and FLOPs of each level."""
        return tuple(f"{title}_{what}" for title in self.titles for what in ("updates", "bytes", "flops"))

    @property
    def viewed(self) -> tuple[str, ...]:
        return tuple(title for title, level in zip(self.titles, self.levels, strict=True) if level < 1)

    def slice(self, level: float, trains: bool) -> Slice:
        """Return the part of the model of a level, as it trains or as it is evaluated."""
        from algorithms.training.slicing import Slice

        widths = tuple(width for width in self.levels if width <= level) if trains and self.ordered else ()
        scales, masks = trains and self.scaler and level < 1, trains and self.masked_loss
        return Slice(level, scales, widths if len(widths) > 1 else (), masks)

    def check_entries(self, layouts: Layouts) -> None:
        slot = next((entry.name.partition("/")[0] for entry in layouts.shared.entries if entry.kind is Kind.SLOT), "")
        if slot:
            raise InputError(
                f"sharing.slots = {slot!r} with models of many sizes: must not be shared, because slices have no "
                "values beside the model; leave the slot out"
            )

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        for level in self.levels:
            self.slice(level, trains=False).check(module, sample)

    def client_columns(self, census: Census, seed: int) -> Mapping[str, NDArray[Any]]:
        if self.by == "round":
            return {}
        return {"level": np.array(self.levels)[self.assigned(census, seed, 1)]}

    def assigned(self, census: Census, seed: int, round_number: int) -> NDArray[np.int64]:
        """Return the number of each training client's level in a round, int64 [K].

        Raises:
            InputError: levels follow the devices and there are none, or not as many kinds as levels.
        """
        count, falling = len(census.clients), np.argsort(-np.array(self.levels), kind="stable")
        shares = np.array(self.shares or (1.0,) * len(self.levels))[falling]
        bounds = np.array(list(accumulate(shares.tolist()))) / shares.sum()
        if self.by == "round":
            draws = generator(seed, Purpose.LEVELS, round_number).random(count)
            places = np.searchsorted(bounds, draws, side="right")
            return falling[np.minimum(places, len(bounds) - 1)]
        if self.by == "device":
            return self._of_kinds(census, falling, _seconds(census, seed, self.by))
        draws = (
            generator(seed, Purpose.LEVELS).random(count) if self.by == "client" else _seconds(census, seed, self.by)
        )
        level = np.empty(count, np.int64)
        places = np.searchsorted(np.round(bounds * count, 9), np.arange(count), side="right")
        level[np.argsort(draws, kind="stable")] = falling[places]
        return level

    def _of_kinds(self, census: Census, falling: NDArray[np.int64], seconds: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the number of each client's level by its kind of devices; kinds are sorted by their median seconds."""
        kinds = np.zeros(0, np.int64) if census.devices is None else census.devices.kind(census.clients)
        there, numbers = np.unique(kinds, return_inverse=True)
        if len(there) != len(self.levels):
            raise InputError(
                f'algorithm.levels = {self.levels} with algorithm.by = "device": must have {len(there)} levels, one '
                'for each kind of devices; set as many, or algorithm.by = "speed"'
            )
        medians = [float(np.median(seconds[numbers == number])) for number in range(len(there))]
        place = np.argsort(np.argsort(medians, kind="stable"), kind="stable")
        return falling[place][numbers]

    def views(self, state: State, algorithm: Algorithm, fleet: Fleet, trains: bool) -> list[SlicedFleet]:
        """Return the view of the fleet of each level; `trains` is whether it trains, and does not evaluate."""
        from algorithms.rounds.sizes import SlicedFleet

        local, shapes = algorithm.local, state.of(self.name)["shapes"]
        parts = [self.slice(level, trains) for level in self.levels]
        return [SlicedFleet(fleet, part, each, local) for part, each in zip(parts, shapes, strict=False)]

    def views_of(self, state: State, algorithm: Any, fleet: Fleet) -> Mapping[str, tuple[State, Fleet]]:
        if not state.of(self.name):
            return {}
        views = dict(zip(self.titles, self.views(state, algorithm, fleet, trains=False), strict=True))
        alone = state.keeping(self.name, {})
        return {name: (replace(alone, model=views[name].cut(state.model)), views[name]) for name in self.viewed}

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        """Report the updates, bytes and FLOPs of each level; smaller models take less virtual time."""
        census, rows, memory = draft.fleet.census, received.rows, draft.state.of(self.name)
        *each, whole = memory["flops"]
        flops = np.array(each)
        if self.ordered:
            flops = np.array([flops[np.array(self.levels) <= level].mean() for level in self.levels])
        level = memory["level"][np.searchsorted(census.clients, rows.clients)]
        used, measures = draft.algorithm.local.method.models * rows.column("used"), dict[str, float]()
        for number, title in enumerate(self.titles):
            own = level == number
            measures[f"{title}_updates"] = float(own.sum())
            measures[f"{title}_bytes"] = float((received.up + received.down)[own].sum())
            measures[f"{title}_flops"] = float(BACKWARD * flops[number] * used[own].sum())
        if census.devices is not None:
            seconds = update_seconds(draft, received, used * flops[level] / whole)
            measures["simulated_seconds"] = float(seconds.max(initial=0.0))
        return state.measuring(measures)


def _seconds(census: Census, seed: int, by: str) -> NDArray[np.float64]:
    """Return the seconds in which each client's device trains on a sample, [K]; InputError without devices."""
    devices = census.devices
    if devices is None:
        raise InputError(f'algorithm.by = "{by}" without [devices]: must have devices; add the table [devices]')
    return np.array([devices.compute_seconds(seed, client, 1.0) for client in census.clients.tolist()])


def heterofl(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    levels: tuple[float, ...] = FIVE,
    shares: tuple[float, ...] = (),
    by: LevelsBy = "client",
    scaler: bool = True,
    static_bn: bool = True,
    masked_loss: bool = True,
) -> Algorithm:
    """Train models whose widths fit the clients: each entry is averaged over the clients that have it.

        w_k <- ClientUpdate(k, first channels of w),   hidden outputs divided by p_k in training
        w[i] <- sum_(k has i) n_k w_k[i] / sum_(k has i) n_k

    An evaluation scores the whole model, and the model of each level below 1 in columns `level_P_TARGET_METRIC`.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        levels: shares of the hidden channels, different and in (0, 1]; by default the paper's five.
        shares: share of the clients of each level; equal by default.
        by: level of a client: drawn once for each "client", or anew in each "round", or by the kind of its "device", or
            by the device's "speed".
        scaler: whether hidden layers divide their output by the level in training.
        static_bn: whether batch norm tracks nothing in training, and clients give statistics for an evaluation; see
            `static_bn`. A model without batch norm is trained the same.
        masked_loss: whether a client trains with 0 in place of the outputs of classes that it has no training sample of
            (the masked cross-entropy loss). It changes nothing if clients have all classes, or with another loss.

    Raises:
        InputError: a value is out of range; or the model's layers cannot be cut (when the parts meet the model).

    Paper: Algorithm 1; section 3 for the scaler and static batch norm, section 4 for the masked loss. Levels drawn anew
    are its "dynamic" setting.

    Deviations: a client's share is its number of samples, where Algorithm 1 weights equally. The statistics of each
    level come from a pass at every evaluation. A client that lacks a class counts in the mean of that output's entries,
    too, with the values that it received, apart from weight decay. The authors' code averages them over the clients
    that have the class.
    """
    local = replace(local, statistics="untracked") if static_bn else local
    masked_loss = masked_loss and isinstance(local.loss, CrossEntropy)
    return fedavg(participation, local, server).having(Sizes(levels, shares, by, scaler, masked_loss=masked_loss))
