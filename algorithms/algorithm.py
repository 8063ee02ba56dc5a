"""An algorithm is a value made of five parts."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.errors import InputError
from algorithms.local import Local
from algorithms.place import Place
from algorithms.schedule import Rounds
from algorithms.server import Assign, Server
from algorithms.weigh import Samples, Weigh


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm; its `repr` describes a run of it.

    Args:
        schedule: who is visited, in what order, and when the models merge.
        local: what a visit does.
        place: which entries travel and which stay with the client.
        weigh: a visit's share in the merge.
        server: how the weighted mean becomes the next model.

    Raises:
        InputError: the parts make no sense together.
    """

    schedule: Rounds
    local: Local
    place: Place = Place()
    weigh: Weigh = Samples()
    server: Server = Assign()

    def __post_init__(self) -> None:
        if self.schedule.merge_every > 1 and isinstance(self.weigh, Samples):
            raise InputError(
                f"weigh = Samples() with merge_every = {self.schedule.merge_every}: must be Equal() where models "
                "are redistributed, for a merged model has trained on several clients; use Equal() or merge_every = 1"
            )
