"""Options: departures from the plain round, folded over it as optax chains transformations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from algorithms.core.fleet import Fleet, Reference
    from algorithms.core.layouts import Layouts
    from algorithms.core.rows import UpdateRows
    from algorithms.core.state import State
    from algorithms.core.sums import Sum
    from algorithms.parts.rules import Rule
    from algorithms.parts.schedule import Rounds, Schedule
    from algorithms.parts.server import Server
    from algorithms.parts.sharing import Sharing
    from algorithms.parts.weighting import Weighting
    from algorithms.training.local import Local

Updates: TypeAlias = Any
"""Client updates, `algorithms.parts.client_update.ClientUpdates`, or a picklable function around them."""

OptionKind = TypeVar("OptionKind", bound="Option")

ORDER = ("attack", "uplink", "privacy", "aggregate", "downlink")
"""Names of the options in the order of their hooks, which is part of every result; other options come last."""


class Parts(Protocol):
    """Parts of an algorithm that an option may read; see `algorithms.parts.algorithm.Algorithm`."""

    @property
    def schedule(self) -> Schedule: ...
    @property
    def rounds(self) -> Rounds: ...
    @property
    def local(self) -> Local: ...
    @property
    def sharing(self) -> Sharing: ...
    @property
    def weighting(self) -> Weighting: ...
    @property
    def server(self) -> Server: ...
    @property
    def until(self) -> Rule | None: ...
    @property
    def options(self) -> tuple[Option, ...]: ...
    @property
    def own_round(self) -> Any: ...
    @property
    def every(self) -> int: ...
    def option(self, kind: type[OptionKind]) -> OptionKind | None: ...
    def model_bytes(self, layouts: Layouts) -> int: ...


class Option:
    """One departure from the plain round; each hook is the identity by default.

    An option is a frozen dataclass whose fields are the keys of its table in the experiment file. Its memory lies in
    the state under its name, as plain arrays and numbers.
    """

    name: ClassVar[str] = "option"
    """Name of the option's memory, and its place in `ORDER`."""

    forms_models: ClassVar[str] = ""
    """Reason why a round must form each client's model, and not only their sum; "" if it need not."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries read in a report beside those that every report has."""
        return ()

    @property
    def slots(self) -> tuple[str, ...]:
        """Personal slots that outlast a client update."""
        return ()

    @property
    def brings(self) -> tuple[Option, ...]:
        """Options that this one works through, unless the algorithm has others of their names."""
        return ()

    def check(self, parts: Parts) -> None:
        """Raise InputError if the option contradicts a part, or another option."""

    def check_entries(self, layouts: Layouts) -> None:
        """Raise InputError if the option contradicts an entry of the model."""

    def saved_bytes(self, parts: Parts, layouts: Layouts) -> int:
        """Return the bytes by which a client's message is shorter than the model; negative if it is longer."""
        return 0

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        """Return what a worker does: client updates, or a picklable function around them."""
        return updates

    def reduce(self, draft: Draft, received: Received) -> Received:
        """Return what the server receives."""
        return received

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        """Return the run after the round, with the model as the clients receive it, and the option's memory."""
        return state


@dataclass(frozen=True)
class Draft:
    """A round before it runs.

    Args:
        state: the run before the round.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        cohort: ids of the clients that train, ascending, int64 [m].
    """

    state: State
    algorithm: Parts
    fleet: Fleet
    cohort: NDArray[np.int64]

    @property
    def number(self) -> int:
        """Number of the round, starting at 1."""
        return self.state.round + 1

    def wrapped(self, updates: Updates) -> Updates:
        """Return client updates as the options change them."""
        return reduce(lambda function, option: option.wrap(self, function), self.algorithm.options, updates)

    def reduced(self, received: Received) -> Received:
        """Return what the server receives as the options change it."""
        return reduce(lambda so_far, option: option.reduce(self, so_far), self.algorithm.options, received)

    def published(self, received: Received, state: State) -> State:
        """Return the run after the round as the options change it."""
        return reduce(lambda after, option: option.publish(self, received, after), self.algorithm.options, state)


@dataclass(frozen=True)
class Received:
    """Rows, models and memory of a round as the server receives them.

    Args:
        rows: reports of the client updates.
        models: sum of the models; None if each model is an object of its own.
        personal: sum of the personal entries.
        objects: references to the objects that the blocks left behind.
        memory: new memory of options, by their names.
    """

    rows: UpdateRows
    models: Sum | None
    personal: Sum
    objects: Sequence[Reference] = ()
    memory: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def keeping(self, name: str, memory: Mapping[str, Any]) -> Received:
        """Return the same with the new memory of an option."""
        return replace(self, memory={**self.memory, name: memory})


def ordered(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return options in the order of their hooks, with those that they bring."""
    given = {option.name: option for option in options}
    brought = {each.name: each for option in given.values() for each in option.brings}
    return tuple(sorted((brought | given).values(), key=_place))


def _place(option: Option) -> int:
    return ORDER.index(option.name) if option.name in ORDER else len(ORDER)
