"""An algorithm is a value made of five parts, and perhaps of what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from algorithms.engine.errors import InputError
from algorithms.engine.layout import Kind, Layout
from algorithms.parts.combinations import check
from algorithms.parts.compute import Compute
from algorithms.parts.local import Local
from algorithms.parts.schedule import Rounds, Schedule
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Layouts, Sharing
from algorithms.parts.weighting import Samples, Weighting
from algorithms.training.dropout import has_dropout

if TYPE_CHECKING:
    import torch
    from torch import nn

    from algorithms.engine.fleet import Fleet
    from algorithms.engine.state import State
    from algorithms.parts.phases import Rule


@dataclass(frozen=True)
class Switch:
    """The end of a phase.

    Args:
        when: says at a merge whether the next phase begins.
        then: the next phase.
    """

    when: Rule
    then: Algorithm


class Step(Protocol):
    """One round, in an algorithm's own way; see `algorithms.engine.round.step`."""

    def __call__(
        self, state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]
    ) -> State:
        """Do the round.

        Args:
            state: the run so far.
            algorithm: the phase that is on.
            fleet: what runs the blocks.
            last: whether this is the run's last round, which always merges.
            meanwhile: the driver's other work, to be done once the visits are under way.
        """
        ...


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm; its `repr` describes a run of it.

    Args:
        schedule: who is visited, in what order, and when the models merge.
        local: what a visit does.
        sharing: which entries travel and which stay with the client.
        weigh: a visit's share in the merge.
        server: how the weighted mean becomes the next model.
        switch: what it becomes, and when; see `phases`.
        own_step: its own way to do a round; None for the engine's.
        needs_batch_norm: whether it makes sense only for models with batch-norm layers that track statistics; so do,
            anyway, visits that leave statistics untracked or freeze them.
        refuses_dropout: the error for models with dropout, or that draw random numbers; "" where they make sense.

    Raises:
        InputError: the parts make no sense together.
    """

    schedule: Schedule
    local: Local
    sharing: Sharing = Sharing()
    weighting: Weighting = Samples()
    server: Server = Assign()
    switch: Switch | None = None
    own_round: Step | None = None
    needs_batch_norm: bool = False
    refuses_dropout: str = ""

    def __post_init__(self) -> None:
        if self.local.batches and "batches" not in self.sharing.slots:
            # Batches that go on from visit to visit: the client keeps how far it has come.
            object.__setattr__(
                self, "sharing", replace(self.sharing, slots={**self.sharing.slots, "batches": "personal"})
            )
        check(self)

    @property
    def rounds(self) -> Rounds:
        """The schedule of the engine's own step; TypeError where it is another."""
        if not isinstance(self.schedule, Rounds):
            raise TypeError(f"{self.schedule} is no schedule of rounds: give the algorithm a step of its own")
        return self.schedule

    @property
    def needs(self) -> tuple[str, ...]:
        """What the parts read in a visit's report, beside what all have; each part names it in `needs`."""
        parts = (self.weighting, self.schedule.sample.by, self.switch and self.switch.when)
        return tuple(name for part in parts for name in getattr(part, "needs", ()))

    @property
    def phases(self) -> Iterator[Algorithm]:
        """This phase and those that may follow, in order."""
        yield self
        if self.switch is not None:
            yield from self.switch.then.phases

    def divide(self, layout: Layout) -> Layouts:
        """Divide a model's entries, as `place` says.

        Raises:
            InputError: the algorithm makes no sense for the model.
        """
        needed = self.needs_batch_norm or any(phase.local.statistics != "batch" for phase in self.phases)
        if needed and not any(entry.kind is Kind.STATISTIC and not entry.frozen for entry in layout.entries):
            raise InputError(
                "the algorithm is about batch-norm statistics, but the model has no batch-norm layer that trains: must "
                'have one; set model.norm = "batch" (not for logistic), or use another algorithm'
            )
        return self.sharing.divide(layout)

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        """Refuse a model that draws where the algorithm makes no sense for it.

        Args:
            module: it is left as it is.
            sample: one sample, [*shape]; its values do not matter.

        Raises:
            InputError: so it is.
        """
        why = next((phase.refuses_dropout for phase in self.phases if phase.refuses_dropout), "")
        if why and has_dropout(module, sample):
            raise InputError(why)

    def phase(self, number: int) -> Algorithm:
        """A phase, the first being 0."""
        return list(self.phases)[number]

    def computed(self, compute: Compute) -> Algorithm:
        """The algorithm, all of its phases computed in one way."""
        switch = self.switch and replace(self.switch, then=self.switch.then.computed(compute))
        return replace(self, local=replace(self.local, compute=compute), switch=switch)
