"""Options: departures from the plain round, folded over it as optax chains transformations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census, among
from algorithms.core.devices import Devices
from algorithms.core.errors import InputError
from algorithms.core.fleet import Fleet, Function, Reference
from algorithms.core.layout import Layouts, Packed
from algorithms.core.report import Laps
from algorithms.core.returned import called, is_own
from algorithms.core.state import State
from algorithms.parts.received import Received
from algorithms.parts.rules import Rule
from algorithms.parts.schedule import Rounds, Schedule
from algorithms.parts.server import Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Weighting
from algorithms.training.local import Local

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch
    from torch import nn

Updates: TypeAlias = Any
"""Client updates, `algorithms.parts.client_update.ClientUpdates`, or a picklable function around them."""

OptionKind = TypeVar("OptionKind", bound="Option")

HOOKS = ("attend", "wrap", "reduce", "publish")
"""Methods by which an option takes part in a round."""


class Conflict(NamedTuple):
    """Two settings that make no sense together.

    Args:
        one: setting that the error names first: a key of `algorithms.parts.settings.SETTINGS` or `Option.settings`.
        other: setting that the error names second.
        must: duty of the first one, with the reason.
        remedy: change that makes sense. One that begins with "set" names keys, and is told beside other conflicts.
    """

    one: str
    other: str
    must: str
    remedy: str


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
    def own_round(self) -> Any: ...
    @property
    def has_own_round(self) -> bool: ...
    @property
    def every(self) -> int: ...
    def option(self, kind: type[OptionKind]) -> OptionKind | None: ...
    def model_bytes(self, layouts: Layouts) -> int: ...
    def saved_bytes(self, layouts: Layouts) -> int: ...


Setting: TypeAlias = "Callable[[Parts, Devices | None], str]"
"""Return a setting as the user knows it; "" if the parts and the devices do not have it."""


class Option:
    """One departure from the plain round; each hook is the identity by default.

    An option is a frozen dataclass. The experiment file has tables and keys for raysim's options; one of your own comes
    from an algorithm of your own, by `Algorithm.having`. Its memory lies in the state under its name, as plain arrays
    and numbers.
    """

    name: ClassVar[str] = "option"
    """Name of the option's memory, and its place in `algorithms.parts.ordering.ORDER`."""

    forms_models: ClassVar[str] = ""
    """Reason why a round must form each client's model, and not only their sum; "" if it need not."""

    needs_batch_norm: ClassVar[bool] = False
    """Whether the model must have batch-norm layers that track statistics."""

    draws_cohort: ClassVar[bool] = False
    """Whether it draws the cohort, and so stands in `Participation.by`, not among an algorithm's options."""

    on_the_way: ClassVar[bool] = False
    """Whether it changes models on their way to the server, late and asynchronous ones too."""

    in_own_rounds: ClassVar[bool] = False
    """Whether rounds of an algorithm's own carry it out too, such as arrivals; otherwise it is refused there."""

    any_norm: ClassVar[bool] = False
    """Whether the algorithm also trains models without batch norm if it leaves their statistics untracked."""

    own_round: ClassVar[Any] = None
    """Round function that carries it out, a `RoundFunction`; None if the engine's rounds do."""

    columns: ClassVar[tuple[str, ...]] = ()
    """Names of the measures that it adds to a round's report, and so to `metrics.parquet`; none of raysim's columns."""

    conflicts: ClassVar[tuple[Conflict, ...]] = ()
    """Pairs of settings that are refused; one of each pair is usually among its own `settings`."""

    setting: ClassVar[str] = ""
    """The option as its users write it, in errors; by default its `repr`."""

    @property
    def settings(self) -> Mapping[str, str | Setting]:
        """Settings that it has, as errors write them, by the names that `conflicts` give them.

        A setting that depends on other parts is a function of them; see `Setting`.
        """
        return {self.name: self.setting or f"option {self}"}

    def client_columns(self, census: Census, seed: int) -> Mapping[str, NDArray[Any]]:
        """Return facts of the training clients by the column of `updates.parquet` that has them, [K] each."""
        return {}

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the clients to look for in `Census.facts`: "domain", or "label", the most frequent class."""
        return ()

    def excluded(self, clients: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Return the training clients whose own test parts are not evaluated, if the option is of the experiment."""
        return clients[:0]

    @property
    def viewed(self) -> tuple[str, ...]:
        """Names of further models that an evaluation scores, in columns that begin with the name; see `views_of`."""
        return ()

    def views_of(self, state: State, algorithm: Any, fleet: Fleet) -> Mapping[str, tuple[State, Fleet]]:
        """Return these models after a round by name: a state that has one, and the fleet that runs it."""
        return {}

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

    def describe(self, clients: NDArray[np.int64], seed: int) -> str:
        """Return a sentence on the option with these training clients, for the log and the report; "" for none.

        Raises:
            InputError: the option contradicts the clients.
        """
        return ""

    def overrides(self, *hooks: str) -> bool:
        """Return whether the option has a hook of its own among these."""
        return any(getattr(getattr(self, hook), "__func__", None) is not getattr(Option, hook) for hook in hooks)

    def tables(self, state: State, fleet: Fleet) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        """Return tables of a finished run, columns by name, by the names of their files without `.parquet`."""
        return {}

    def attend(self, draft: Draft) -> Draft:
        """Return the round with fewer clients to draw from, with its cohort, or with a note for the later hooks.

        Whoever narrows `clients` narrows `weights`, too. After an earlier option has drawn the cohort, only notes may
        change.
        """
        return draft

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        """Return what a worker does: client updates, or a picklable function around them.

        An option that changes models on their way replaces `updates.on_the_way`, and stands before "aggregate" in
        `ORDER`, because the options from there on put functions around the client updates.
        """
        return updates

    def reduce(self, draft: Draft, received: Received) -> Received:
        """Return what the server receives."""
        return received

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        """Return the run after the round: the model as clients receive it, the option's memory, and its report."""
        return state


@dataclass(frozen=True)
class Draft:
    """A round before it runs: its options change the clients to draw from, draw the cohort, and leave notes.

    Args:
        state: the run before the round.
        algorithm: parts of the current phase.
        fleet: fleet that runs the blocks.
        clients: ids of the clients to draw from, ascending, int64 [n].
        weights: unnormalised chances of these clients, [n]; uniform sampling ignores them.
        size: number of clients to draw; of those drawn, once all options have attended.
        newcomer: personal entries of a client that has none yet.
        models_travel: whether each client receives a model of its own.
        cohort: ids of the clients that train, ascending, int64 [m]; None until it is drawn.
        notes: what an option knows of this round, by its name.
        laps: seconds of the round's stages.
    """

    state: State
    algorithm: Parts
    fleet: Fleet
    clients: NDArray[np.int64]
    weights: NDArray[Any]
    size: int
    newcomer: Packed
    models_travel: bool = False
    cohort: NDArray[np.int64] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    laps: Laps = field(default_factory=Laps)

    @classmethod
    def of(cls, state: State, algorithm: Parts, fleet: Fleet) -> Draft:
        """Return the draft of the next round, before its options."""
        census = fleet.census
        size = algorithm.schedule.participation.size(len(census.clients))
        return cls(state, algorithm, fleet, census.clients, census.samples, size, state.initial)

    @property
    def number(self) -> int:
        """Number of the round, starting at 1."""
        return self.state.round + 1

    @property
    def counter(self) -> int:
        """Counter of the draws of its cohort and client updates; it counts on from the dispatches of arrivals."""
        return self.state.dispatches + self.number

    @property
    def drawn(self) -> NDArray[np.int64]:
        """Ids of the clients that train, ascending, int64 [m]; RuntimeError before they are drawn."""
        if self.cohort is None:
            raise RuntimeError("the cohort is not drawn yet")
        return self.cohort

    def noting(self, name: str, note: Any) -> Draft:
        """Return the draft with an option's note."""
        return replace(self, notes={**self.notes, name: note})

    def with_cohort(self) -> Draft:
        """Return the draft with its cohort, drawn by the schedule's rule unless an option has drawn it."""
        if self.cohort is not None:
            return self
        given = self.clients, self.state.seed, self.counter, self.weights, self.size
        return replace(self, cohort=self.algorithm.schedule.participation.draw(*given))

    def attended(self) -> Draft:
        """Return the draft as the options change it, with its cohort.

        Raises:
            InputError: an option of a user's own returns another thing, changes a cohort that is drawn, or leaves
                clients to draw from, weights and a cohort that do not fit each other.
        """
        draft = self
        for option in self.algorithm.folded:
            before, draft = draft, called(option, "attend", Draft, draft)
            if is_own(option):
                before._check_change(option, draft)
        draft = draft.with_cohort()
        return replace(draft, size=len(draft.drawn))

    def _check_change(self, option: Option, after: Draft) -> None:
        """Raise InputError if the clients to draw from, their weights and the cohort do not fit each other."""
        kept = ("clients", "weights", "cohort")
        pairs: list[tuple[Any, Any]] = [(getattr(self, name), getattr(after, name)) for name in kept]
        if self.cohort is not None and not all(old is new or np.array_equal(old, new) for old, new in pairs):
            raise InputError(
                f"option {option} changes the clients to draw from, their weights or the cohort in round "
                f"{self.number}: must keep them, because an earlier option has drawn the cohort; leave one of the two "
                "out"
            )
        if after.clients is not self.clients:
            _check_ids(option, "leaves the clients", after.clients, self.clients)
        if np.shape(after.weights) != after.clients.shape:
            raise InputError(
                f"option {option} leaves {len(after.clients)} clients to draw from, with `weights` of the shape "
                f"{np.shape(after.weights)}: must be one weight for each client; narrow both"
            )
        if after.cohort is None:
            return
        _check_ids(option, "draws the cohort", after.cohort, after.clients)
        most = len(after.state.travelling_models) if after.models_travel else len(after.cohort)
        if len(after.cohort) > most:
            raise InputError(
                f"option {option} draws {len(after.cohort)} clients in round {self.number}: must draw at most {most}, "
                "as many as models travel; draw `draft.size` clients"
            )

    def wrapped(self, updates: Updates, sent_alone: bool = False) -> Updates:
        """Return client updates as the options change them; `sent_alone` leaves out those not `Option.on_the_way`."""
        for option in self.algorithm.folded:
            if option.on_the_way or not sent_alone:
                updates = called(option, "wrap", Function, self, updates)  # type: ignore[type-abstract]
        return updates

    def reduced(self, received: Received) -> Received:
        """Return what the server receives as the options change it."""
        for option in self.algorithm.folded:
            received = called(option, "reduce", Received, self, received)
        return received

    def published(self, received: Received, state: State) -> State:
        """Return the run after the round as the options change it, with its report.

        Raises:
            InputError: an option of a user's own returns another thing, or measures a number that is not among its
                `columns`.
        """
        report = received.report(self.state.phase, self.laps.seconds)
        after = replace(state, memory={**state.memory, **received.memory}, report=report)
        for option in self.algorithm.folded:
            before, after = after, called(option, "publish", State, self, received, after)
            if is_own(option):
                _check_measures(option, before, after)
        self.laps.lap("aggregate")
        return after

    @property
    def start(self) -> Reference:
        """Handle of the global model, None if models travel, and of the personal entries of a newcomer."""
        return self.fleet.put((None if self.models_travel else self.state.model, self.newcomer))


def _check_ids(option: Option, what: str, ids: Any, known: NDArray[np.int64]) -> None:
    """Raise InputError if ids are no array of different clients among the known ones, in order."""
    fits = isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype == np.int64
    if not fits or (np.diff(ids) <= 0).any() or not among(ids, known).all():
        raise InputError(
            f"option {option} {what} {ids}: must be ids of different clients of the {len(known)} to draw from, "
            "ascending, as an int64 array; use np.sort"
        )


def _check_measures(option: Option, before: State, after: State) -> None:
    """Raise InputError if an option measures a number that is not among its `columns`."""
    earlier, later = ({} if each.report is None else each.report.measures for each in (before, after))
    allowed = (*option.columns, "simulated_seconds")
    if other := [name for name, value in later.items() if value is not earlier.get(name) and name not in allowed]:
        raise InputError(
            f"option {option}: `publish` measures {other[0]!r}, which is not among its `columns`: must be one of "
            f"{', '.join(allowed)}; add it to `columns`, and rename it if raysim has a column of that name"
        )
