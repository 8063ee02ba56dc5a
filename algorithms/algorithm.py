"""An algorithm is a value made of five parts, and perhaps of what it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from algorithms.arrivals import Arrivals
from algorithms.compute import Compute
from algorithms.errors import InputError
from algorithms.layout import Kind, Layout
from algorithms.local import Local
from algorithms.place import Place, Placement
from algorithms.schedule import Rounds, Schedule
from algorithms.server import Assign, Server, WeightedMix
from algorithms.weigh import Loss, Samples, Weigh

if TYPE_CHECKING:
    from algorithms.fleet import Fleet
    from algorithms.phases import Rule
    from algorithms.step import State


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
    """One round, in an algorithm's own way; see `algorithms.step.step`."""

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
        place: which entries travel and which stay with the client.
        weigh: a visit's share in the merge.
        server: how the weighted mean becomes the next model.
        switch: what it becomes, and when; see `phases`.
        own_step: its own way to do a round; None for the engine's.
        needs_batch_norm: whether it makes sense only for models with batch-norm layers that track statistics; so do,
            anyway, visits that leave statistics untracked or freeze them.

    Raises:
        InputError: the parts make no sense together.
    """

    schedule: Schedule
    local: Local
    place: Place = Place()
    weigh: Weigh = Samples()
    server: Server = Assign()
    switch: Switch | None = None
    own_step: Step | None = None
    needs_batch_norm: bool = False

    def __post_init__(self) -> None:
        if self.local.batches and "batches" not in self.place.slots:
            # Batches that go on from visit to visit: the client keeps how far it has come.
            object.__setattr__(self, "place", replace(self.place, slots={**self.place.slots, "batches": "kept"}))
        for slot in self.place.slots:
            if slot not in self.local.slots:
                raise InputError(
                    f"place.slots = {slot!r} with {self.local}: must be one of {self.local.slots}, for no visit has "
                    "another; set local.momentum = 0.9 to keep momentum, or leave the slot out"
                )
        if isinstance(self.schedule, Rounds) and self.schedule.merge_every > 1 and isinstance(self.weigh, Samples):
            raise InputError(
                f"weigh = Samples() with merge_every = {self.schedule.merge_every}: must be Equal() where models "
                "are redistributed, for a merged model has trained on several clients; use Equal() or merge_every = 1"
            )
        asynchronous = isinstance(self.schedule, Arrivals)
        if asynchronous and self.place.keeps:
            raise InputError(
                f"place = {self.place} with schedule = {self.schedule}: must keep nothing, for visits that overlap "
                "leave no order in a client's own entries; use Place(), or Rounds"
            )
        if isinstance(self.server, WeightedMix) and (not asynchronous or isinstance(self.weigh, Samples | Loss)):
            what = f"weigh = {self.weigh}" if asynchronous else f"schedule = {self.schedule}"
            raise InputError(
                f"server.rule = 'weighted-mix' with {what}: must be where models of a weight of at most 1 merge one by "
                'one, as in fedasync; set server.rule = "mix"'
            )
        if self.local.statistics == "untracked" and self.place.statistics == "kept":
            raise InputError(
                'local.statistics = "untracked" with place.statistics = "kept": must be "batch" where clients keep '
                'their statistics, for nothing would ever change them; set local.statistics = "batch"'
            )
        if self.local.statistics == "untracked" and self.switch and self.switch.then.local.statistics == "frozen":
            raise InputError(
                'local.statistics = "untracked" before a phase that freezes them: must be "batch", for there would be '
                'nothing to freeze; set local.statistics = "batch"'
            )

    @property
    def rounds(self) -> Rounds:
        """The schedule of the engine's own step; TypeError where it is another."""
        if not isinstance(self.schedule, Rounds):
            raise TypeError(f"{self.schedule} is no schedule of rounds: give the algorithm a step of its own")
        return self.schedule

    @property
    def needs(self) -> tuple[str, ...]:
        """What the parts read in a visit's report, beside what all have; each part names it in `needs`."""
        parts = (self.weigh, self.schedule.sample.by, self.switch and self.switch.when)
        return tuple(name for part in parts for name in getattr(part, "needs", ()))

    @property
    def phases(self) -> Iterator[Algorithm]:
        """This phase and those that may follow, in order."""
        yield self
        if self.switch is not None:
            yield from self.switch.then.phases

    def divide(self, layout: Layout) -> Placement:
        """Divide a model's entries, as `place` says.

        Raises:
            InputError: the algorithm makes no sense for the model.
        """
        needed = self.needs_batch_norm or any(phase.local.statistics != "batch" for phase in self.phases)
        if needed and not any(entry.kind is Kind.STATISTIC for entry in layout.entries):
            raise InputError(
                "the algorithm is about batch-norm statistics, but the model has no batch-norm layer: must have one; "
                'set model.norm = "batch" (not for logistic), or use another algorithm'
            )
        return self.place.divide(layout)

    def phase(self, number: int) -> Algorithm:
        """A phase, the first being 0."""
        return list(self.phases)[number]

    def computed(self, compute: Compute) -> Algorithm:
        """The algorithm, all of its phases computed in one way."""
        switch = self.switch and replace(self.switch, then=self.switch.then.computed(compute))
        return replace(self, local=replace(self.local, compute=compute), switch=switch)
