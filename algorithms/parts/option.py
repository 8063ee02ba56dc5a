"""Options: departures from the plain round, folded over it as optax chains transformations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch
    from torch import nn

    from algorithms.core.layouts import Layouts
    from algorithms.core.state import State
    from algorithms.parts.draft import Draft, Received
    from algorithms.parts.rules import Rule
    from algorithms.parts.schedule import Rounds, Schedule
    from algorithms.parts.server import Server
    from algorithms.parts.sharing import Sharing
    from algorithms.parts.weighting import Weighting
    from algorithms.training.local import Local

Updates: TypeAlias = Any
"""Client updates, `algorithms.parts.client_update.ClientUpdates`, or a picklable function around them."""

OptionKind = TypeVar("OptionKind", bound="Option")

ORDER = (
    *("devices", "joins", "newcomer", "importance", "virtual-time", "oort", "candidates"),
    *("attack", "uplink", "privacy", "aggregate", "downlink", "dl", "common-step", "bn"),
)
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
    def then(self) -> Parts | None: ...
    @property
    def options(self) -> tuple[Option, ...]: ...
    @property
    def folded(self) -> tuple[Option, ...]: ...
    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def has_own_round(self) -> bool: ...
    @property
    def every(self) -> int: ...
    def option(self, kind: type[OptionKind]) -> OptionKind | None: ...
    def model_bytes(self, layouts: Layouts) -> int: ...
    def saved_bytes(self, layouts: Layouts) -> int: ...


class Option:
    """One departure from the plain round; each hook is the identity by default.

    An option is a frozen dataclass whose fields are the keys of its table in the experiment file. Its memory lies in
    the state under its name, as plain arrays and numbers.
    """

    name: ClassVar[str] = "option"
    """Name of the option's memory, and its place in `ORDER`."""

    forms_models: ClassVar[str] = ""
    """Reason why a round must form each client's model, and not only their sum; "" if it need not."""

    needs_batch_norm: ClassVar[bool] = False
    """Whether the model must have batch-norm layers that track statistics."""

    on_the_way: ClassVar[bool] = False
    """Whether it changes models on their way to the server, late and asynchronous ones too."""

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

    def check_entries(self, layouts: Layouts) -> None:
        """Raise InputError if the option contradicts an entry of the model."""

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        """Raise InputError if the option contradicts a model; `sample` is one sample, [*shape]."""

    def saved_bytes(self, parts: Parts, layouts: Layouts) -> int:
        """Return the bytes by which a client's message is shorter than the model; negative if it is longer."""
        return 0

    def check_cohort(self, size: int, clients: int) -> None:
        """Raise InputError if the option contradicts the size of the cohort, or the number of training clients."""

    def attend(self, draft: Draft) -> Draft:
        """Return the round with other clients to draw from, with its cohort, or with a note for the later hooks."""
        return draft

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        """Return what a worker does: client updates, or a picklable function around them."""
        return updates

    def reduce(self, draft: Draft, received: Received) -> Received:
        """Return what the server receives."""
        return received

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        """Return the run after the round: the model as clients receive it, the option's memory, and its report."""
        return state


def ordered(options: Iterable[Option]) -> tuple[Option, ...]:
    """Return options in the order of their hooks, with those that they bring."""
    given = {option.name: option for option in options}
    brought = {each.name: each for option in given.values() for each in option.brings}
    return tuple(sorted((brought | given).values(), key=_place))


def _place(option: Option) -> int:
    return ORDER.index(option.name) if option.name in ORDER else len(ORDER)
