"""An algorithm is a value made of five parts, and perhaps of what it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from algorithms.compute import Compute
from algorithms.errors import InputError
from algorithms.local import Local
from algorithms.place import Place
from algorithms.schedule import Rounds
from algorithms.server import Assign, Server
from algorithms.weigh import Samples, Weigh

if TYPE_CHECKING:
    from algorithms.phases import Rule


@dataclass(frozen=True)
class Switch:
    """The end of a phase.

    Args:
        when: says at a merge whether the next phase begins.
        then: the next phase.
    """

    when: Rule
    then: Algorithm


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

    Raises:
        InputError: the parts make no sense together.
    """

    schedule: Rounds
    local: Local
    place: Place = Place()
    weigh: Weigh = Samples()
    server: Server = Assign()
    switch: Switch | None = None

    def __post_init__(self) -> None:
        if self.schedule.merge_every > 1 and isinstance(self.weigh, Samples):
            raise InputError(
                f"weigh = Samples() with merge_every = {self.schedule.merge_every}: must be Equal() where models "
                "are redistributed, for a merged model has trained on several clients; use Equal() or merge_every = 1"
            )

    @property
    def phases(self) -> Iterator[Algorithm]:
        """This phase and those that may follow, in order."""
        yield self
        if self.switch is not None:
            yield from self.switch.then.phases

    def phase(self, number: int) -> Algorithm:
        """A phase, the first being 0."""
        return list(self.phases)[number]

    def computed(self, compute: Compute) -> Algorithm:
        """The algorithm, all of its phases computed in one way."""
        switch = self.switch and replace(self.switch, then=self.switch.then.computed(compute))
        return replace(self, local=replace(self.local, compute=compute), switch=switch)
