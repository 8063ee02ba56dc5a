"""An algorithm: a value made of six parts, and perhaps the next phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from algorithms.core.entries import Kind
from algorithms.core.errors import InputError, require
from algorithms.core.layout import Layout
from algorithms.core.layouts import Layouts, Scope
from algorithms.options.aggregation import Aggregate, Mean
from algorithms.options.attack import Attack
from algorithms.options.privacy import Privacy, check_private
from algorithms.options.uplink import Downlink, Uplink
from algorithms.parts.combinations import check, check_downlink, check_models
from algorithms.parts.rules import Rule
from algorithms.parts.schedule import Rounds, Schedule
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Samples, Weighting
from algorithms.training.compute import Compute
from algorithms.training.local import Local

if TYPE_CHECKING:
    import torch
    from torch import nn

RoundFunction: TypeAlias = Callable[..., Any]
"""Do one round in an algorithm's own way, with the signature of `algorithms.rounds.watched.watched_round`."""


@dataclass(frozen=True)
class Algorithm:
    """Federated algorithm; its `repr` describes a run of it.

    Args:
        schedule: cohorts, their order, and the rounds that end in an aggregation.
        local: content of a client update.
        sharing: shared and personal entries of the model.
        weighting: share of a client update in the aggregation.
        server: step from the weighted mean to the next global model.
        uplink: stages that a client's change of the model passes on its way to the server; none by default.
        downlink: stages that the global model's change passes on its way to the clients; none by default.
        privacy: differential privacy of users, in every phase; None for none.
        until: rule that ends this phase; None for the only or last phase. See `phases`.
        then: next phase.
        own_round: function that replaces the engine's round; None for the engine's.
        needs_batch_norm: whether the model must have batch-norm layers that track statistics. `local` with untracked
            or frozen statistics needs them in any case.
        refuses_dropout: error for models with dropout or random numbers of their own; "" if they are allowed.
        aggregate: rule that turns the cohort's models into one.
        attack: attack of a share of the clients; None for none.

    Raises:
        InputError: the parts contradict each other.
    """

    schedule: Schedule
    local: Local
    sharing: Sharing = Sharing()
    weighting: Weighting = Samples()
    server: Server = Assign()
    uplink: Uplink = Uplink()
    downlink: Downlink = Downlink()
    privacy: Privacy | None = None
    until: Rule | None = None
    then: Algorithm | None = None
    own_round: RoundFunction | None = field(default=None, repr=False)
    needs_batch_norm: bool = False
    refuses_dropout: str = ""
    aggregate: Aggregate = Mean()
    attack: Attack | None = None

    def __post_init__(self) -> None:
        # Each client stores its own position in the order of its batches, and what it has not sent yet.
        own = (*(("batches",) if self.local.batches else ()), *self.uplink.slots)
        if any(slot not in self.sharing.slots for slot in own):
            slots: dict[str, Scope | float] = {**self.sharing.slots, **dict.fromkeys(own, "personal")}
            object.__setattr__(self, "sharing", replace(self.sharing, slots=slots))
        check(
            *(self.schedule, self.local, self.sharing, self.weighting, self.server, self.uplink),
            own_round=self.own_round is not None,
            later=None if self.then is None else self.then.local,
            needs=self.needs,
        )
        check_models(
            *(self.aggregate, self.attack, self.schedule, self.sharing, self.weighting, self.uplink),
            own_round=self.own_round is not None,
        )
        check_downlink(self.downlink, self.schedule, self.sharing, own_round=self.own_round is not None)
        if self.privacy is not None:
            check_private(
                *(self.schedule, self.local, self.sharing, self.weighting, self.server, self.until),
                own_round=self.own_round is not None,
                honest_mean=isinstance(self.aggregate, Mean) and self.attack is None,
            )

    @property
    def rounds(self) -> Rounds:
        """The schedule of the engine's own round; TypeError for another schedule."""
        if not isinstance(self.schedule, Rounds):
            raise TypeError(f"{self.schedule} is no schedule of rounds: give the algorithm a round of its own")
        return self.schedule

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries that the parts read in a report, beside those that every report has."""
        parts = (self.weighting, self.schedule.sample.by, self.until, self.privacy)
        return tuple(name for part in parts for name in getattr(part, "needs", ()))

    @property
    def keeps_models(self) -> bool:
        """Whether an aggregation needs each client's model, and not only their sum."""
        return not isinstance(self.aggregate, Mean) or (self.attack is not None and self.attack.colludes)

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
        needed = self.needs_batch_norm or any(phase.local.statistics != "batch" for phase in self.phases)
        if needed and not any(entry.kind is Kind.STATISTIC and not entry.frozen for entry in layout.entries):
            raise InputError(
                "the algorithm is about batch-norm statistics, but the model has no batch-norm layer that trains: must "
                'have one; set model.norm = "batch" (not for logistic), or use another algorithm'
            )
        for part in {phase.local.part for phase in self.phases}:
            holds = any(entry.is_parameter and entry.is_in(part) for entry in layout.entries)
            require(holds, "local.part", part, "a part of the model with parameters", 'set local.part = "all"')
        layouts = self.sharing.divide(layout)
        if self.privacy is not None:
            self.privacy.check_entries(layouts)
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
        if self.uplink.chain or self.privacy is not None:
            return "the uplink changes each client's model"
        if self.keeps_models or self.attack is not None:
            return "the aggregation or an attack looks at each client's model"
        return "the algorithm has rounds of its own" if self.own_round else ""

    def saved_bytes(self, layouts: Layouts, by: Uplink | None = None) -> int:
        """Return the bytes by which the uplink, or `by`, makes a message shorter than the model; negative if longer."""
        by = by or self.uplink
        if not by.chain:
            return 0
        size = sum(entry.size for entry in layouts.shared.entries if self.local.trains(entry))
        scalar = np.dtype(layouts.shared.floating).itemsize
        return size * scalar - by.nbytes(size, scalar)

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        """Refuse a model with random draws if the algorithm does not allow them, or one that a phase cannot train.

        Args:
            module: model; left unchanged.
            sample: one sample, [*shape]; its values do not matter.

        Raises:
            InputError: a phase refuses the model, or its dropout or random numbers.
        """
        from algorithms.training.dropout import has_dropout

        refusal = next((phase.refuses_dropout for phase in self.phases if phase.refuses_dropout), "")
        if refusal and has_dropout(module, sample):
            raise InputError(refusal)
        for phase in self.phases:
            phase.local.check_model(module, sample)

    def phase(self, number: int) -> Algorithm:
        """Return a phase; the first is 0."""
        return list(self.phases)[number]

    def sending(self, uplink: Uplink) -> Algorithm:
        """Return the algorithm with one uplink in all phases."""
        return replace(self, uplink=uplink, then=self.then and self.then.sending(uplink))

    def receiving(self, downlink: Downlink) -> Algorithm:
        """Return the algorithm with one downlink in all phases."""
        return replace(self, downlink=downlink, then=self.then and self.then.receiving(downlink))

    def private(self, privacy: Privacy) -> Algorithm:
        """Return the algorithm with differential privacy in all phases."""
        return replace(self, privacy=privacy, then=self.then and self.then.private(privacy))

    def computed(self, compute: Compute) -> Algorithm:
        """Return the algorithm with one way of computing in all phases."""
        then = self.then and self.then.computed(compute)
        return replace(self, local=replace(self.local, compute=compute), then=then)

    def under(self, aggregate: Aggregate | None = None, attack: Attack | None = None) -> Algorithm:
        """Return the algorithm with another rule of aggregation, or under an attack, in all phases."""
        then = self.then and self.then.under(aggregate, attack)
        return replace(self, aggregate=aggregate or self.aggregate, attack=attack or self.attack, then=then)
