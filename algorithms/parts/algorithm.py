"""An algorithm: a value made of parts and options, and perhaps the next phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from algorithms.core.entries import Kind
from algorithms.core.errors import InputError, require
from algorithms.core.layout import Layout, Layouts, Scope
from algorithms.core.returned import names_of
from algorithms.parts.clustered import Clustered
from algorithms.parts.combinations import check_declared, check_parts
from algorithms.parts.conflicts import check_conflicts
from algorithms.parts.newcomers import AverageForNewcomers
from algorithms.parts.option import Option, OptionKind
from algorithms.parts.ordering import ordered
from algorithms.parts.rule_columns import RuleColumns
from algorithms.parts.rules import AfterRound, Rule
from algorithms.parts.schedule import Rounds, Schedule
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Samples, Weighting
from algorithms.training.local import Compute, Local

if TYPE_CHECKING:
    import torch
    from torch import nn


RoundFunction: TypeAlias = Callable[..., Any]
"""Do one round in an algorithm's own way, with the signature of `algorithms.rounds.next_round.start_round`."""


@dataclass(frozen=True)
class Algorithm:
    """Federated algorithm; its `repr` describes a run of it.

    Args:
        schedule: cohorts, their order, and the rounds that end in an aggregation.
        local: content of a client update.
        sharing: shared and personal entries of the model.
        weighting: share of a client update in the aggregation.
        server: step from the weighted mean to the next global model.
        options: departures from the plain round, in every phase; see `algorithms.parts.option`.
        until: rule that ends this phase; None for the only or last phase. See `phases`.
        then: next phase.
        own_round: function that replaces the engine's round; None for that of an option, or the engine's.

    Raises:
        InputError: the parts contradict each other.
    """

    schedule: Schedule
    local: Local
    sharing: Sharing = Sharing()
    weighting: Weighting = Samples()
    server: Server = Assign()
    options: tuple[Option, ...] = ()
    until: Rule | None = None
    then: Algorithm | None = None
    own_round: RoundFunction | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", ordered(self.options))
        carrying = next((option.own_round for option in self.options if option.own_round is not None), None)
        if carrying is not None and self.own_round is None:
            object.__setattr__(self, "own_round", carrying)
        # Each client stores its method's values, its position in the order of its batches, and what it has not sent.
        beside = [slot for option in self.options for slot in names_of(option, "slots")]
        batches = ("batches",) if self.local.batches else ()
        own: dict[str, Scope | float] = {**self.local.method.slots, **dict.fromkeys((*batches, *beside), "personal")}
        if own.keys() - self.sharing.slots.keys():
            object.__setattr__(self, "sharing", replace(self.sharing, slots={**self.sharing.slots, **own}))
        check_parts(self)
        check_declared(self)
        check_conflicts(self)

    @property
    def rounds(self) -> Rounds:
        """The schedule of the engine's own round; TypeError for another schedule."""
        if not isinstance(self.schedule, Rounds):
            raise TypeError(f"{self.schedule} is no schedule of rounds: give the algorithm a round of its own")
        return self.schedule

    @property
    def every(self) -> int:
        """Rounds from one aggregation to the next; 1 if models are not redistributed."""
        return self.schedule.aggregate_every if isinstance(self.schedule, Rounds) else 1

    def option(self, kind: type[OptionKind]) -> OptionKind | None:
        """Return the algorithm's option of a class; None if it has none."""
        return next((option for option in self.folded if isinstance(option, kind)), None)

    @cached_property
    def folded(self) -> tuple[Option, ...]:
        """Options of a round in the order of their hooks: those given, and those that the parts stand for."""
        by, average = self.schedule.participation.by, self.sharing.newcomer == "average"
        drawing = (by,) if isinstance(by, Option) else ()
        measuring = (RuleColumns(self.server),) if names_of(self.server, "columns") else ()
        return ordered((*drawing, *((AverageForNewcomers(),) if average else ()), *self.options, *measuring))

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Entries that the parts read in a report, beside those that every report has."""
        parts = (self.weighting, self.schedule.participation.by, self.server, self.until, *self.folded)
        return tuple(dict.fromkeys(name for part in parts for name in names_of(part, "needs")))

    @property
    def has_own_round(self) -> bool:
        """Whether its rounds are not plain ones: it has a function of its own, or clients take a step together."""
        return self.own_round is not None or any(option.name == "common-step" for option in self.folded)

    @property
    def needs_batch_norm(self) -> bool:
        """Whether the model must have batch-norm layers that track statistics."""
        untracked = self.local.statistics != "batch" and not any(option.any_norm for option in self.folded)
        fixed = untracked or self.local.affine == "frozen"
        return fixed or any(option.needs_batch_norm for option in self.folded)

    @property
    def phases(self) -> Iterator[Algorithm]:
        """This phase and the later ones, in order."""
        yield self
        if self.then is not None:
            yield from self.then.phases

    def divide(self, layout: Layout) -> Layouts:
        """Divide a model's entries into shared, personal and frozen ones.

        Raises:
            InputError: the algorithm makes no sense for the model.
        """
        needed = any(phase.needs_batch_norm for phase in self.phases)
        if needed and not any(entry.kind is Kind.STATISTIC and not entry.frozen for entry in layout.entries):
            raise InputError(
                "the algorithm is about batch-norm statistics, but the model has no batch-norm layer that trains: must "
                'have one; set model.norm = "batch" (not for logistic), or use another algorithm'
            )
        for part in {phase.local.part for phase in self.phases}:
            holds = any(entry.is_parameter and entry.is_in(part) for entry in layout.entries)
            require(holds, "local.part", part, "a part of the model with parameters", 'set local.part = "all"')
        for phase in self.phases:
            phase.local.method.check_terms()
        layouts = self.sharing.divide(layout)
        for option in self.folded:
            option.check_entries(layouts)
        return layouts

    def forms_models(self, layout: Layout) -> str:
        """Return the reason why a round must form each client's model, and not only their sum; else "".

        Args:
            layout: all entries of the model.
        """
        layouts = self.divide(layout)
        slots = any(entry.kind is Kind.SLOT for entry in layouts.shared.entries)
        if slots or not layouts.has_one_model:
            return "clients keep entries of their own"
        if self.needs:
            return f"the reports measure each client's model ({', '.join(self.needs)})"
        if reason := next((option.forms_models for option in self.folded if option.forms_models), ""):
            return reason
        return "the algorithm has rounds of its own" if self.own_round else ""

    def model_bytes(self, layouts: Layouts) -> int:
        """Return the bytes of a whole model on its way; statistics that nobody tracks are not sent."""
        if self.local.statistics != "untracked":
            return layouts.shared.nbytes
        return layouts.shared.only(lambda entry: entry.kind is not Kind.STATISTIC).nbytes

    def saved_bytes(self, layouts: Layouts) -> int:
        """Return the bytes by which the options make a message shorter than the model; negative if longer."""
        return sum(option.saved_bytes(self, layouts) for option in self.folded)

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        """Refuse a model that a phase cannot train.

        Args:
            module: model; left unchanged.
            sample: one sample, [*shape]; its values do not matter.

        Raises:
            InputError: a part of a phase refuses the model.
        """
        for phase in self.phases:
            phase.local.method.check_model(module, sample)
            for option in phase.folded:
                option.check_model(module, sample)

    def phase(self, number: int) -> Algorithm:
        """Return a phase; the first is 0."""
        return list(self.phases)[number]

    def having(self, *options: Option) -> Algorithm:
        """Return the algorithm with further options in all phases; they replace those of their names."""
        replaced = {option.name for option in options}
        kept = tuple(option for option in self.options if option.name not in replaced)
        return replace(self, options=(*kept, *options), then=self.then and self.then.having(*options))

    def folding(self, *options: Option) -> Algorithm:
        """Return this phase with further options that its clients bring, without checking its parts again."""
        phase = copy(self)
        phase.__dict__["folded"] = ordered((*self.folded, *options))
        return phase

    def computed(self, compute: Compute) -> Algorithm:
        """Return the algorithm with one way of computing in all phases."""
        then = self.then and self.then.computed(compute)
        return replace(self, local=replace(self.local, compute=compute), then=then)


def phases(first: Algorithm, *following: tuple[int | float | Rule, Algorithm]) -> Algorithm:
    """Compose an algorithm of phases: each begins at the first aggregation after its rule has fired.

    Args:
        first: first phase.
        following: for each later phase its parts, preceded by a rule or the last round before it (see `AfterRound`).

    Raises:
        InputError: two phases share the model's entries differently, or are computed differently, or a phase has other
            clusters than the one before it.
    """
    if not following:
        return first
    (rule, then), *rest = following
    for name, one, other in (
        ("sharing", first.sharing, then.sharing),
        ("local.compute", first.local.compute, then.local.compute),
    ):
        if one != other:
            raise InputError(
                f"{name} = {other} in a later phase: must be {one} as in the first, because models and personal state "
                "go on; give both phases the same"
            )
    own = first.own_round
    if isinstance(own, Clustered) and then.own_round != own:
        raise InputError(
            f"a phase after one of {own.clusters} clusters: must have as many, because the models of all clusters go "
            f"on; use ifca with clusters = {own.clusters} in the later phase"
        )
    return replace(first, until=AfterRound(rule) if isinstance(rule, int | float) else rule, then=phases(then, *rest))
