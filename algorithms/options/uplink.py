"""The option `uplink`: stages on the way of a client's change of the model to the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from algorithms.core.errors import InputError
from algorithms.core.keys import Purpose
from algorithms.core.layout import Layouts
from algorithms.options.chain import FEEDBACK, StageChain
from algorithms.options.stages import Clip
from algorithms.parts.option import Conflict, Draft, Parts, Updates

if TYPE_CHECKING:
    from algorithms.parts.client_update import ClientUpdates, Trained
    from algorithms.training.work import Work


@dataclass(frozen=True)
class Uplink(StageChain):
    """Chain of stages on the change D = w_k - w of the shared parameters that a client trained.

        v = D + e_k,   w_k <- w + chain(v),   e_k <- v - chain(v)

    w is the model that the client received, and e_k its residual, which is 0 without error feedback. Other shared
    entries are sent whole and unchanged: batch-norm statistics, counters, and values beside the parameters such as
    SCAFFOLD's control variate.

    Args:
        chain: stages in their order.
        feedback: whether a client adds what was not sent to its next change; the residual is personal.

    Raises:
        InputError: two stages contradict each other, or feedback contradicts a stage.
    """

    name: ClassVar[str] = "uplink"
    on_the_way: ClassVar[bool] = True
    in_own_rounds: ClassVar[bool] = True
    forms_models: ClassVar[str] = "the uplink changes each client's model"
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        *(
            Conflict("uplink", other, "be empty, because no client sends its weights", "remove [uplink]")
            for other in ("centralized", "weights that stay with the clients")
        ),
        Conflict(
            *('newcomer = "average"', "uplink.feedback"),
            'be "initial", because a newcomer owes the server nothing',
            'set algorithm.newcomer = "initial"',
        ),
    )

    def __post_init__(self) -> None:
        if self.feedback and not self.chain:
            raise InputError("uplink.feedback = true with an empty chain: must have a stage; set uplink.chain")
        super().__post_init__()

    @property
    def settings(self) -> Mapping[str, str]:
        return {"uplink": f"uplink = {self}"} | ({"uplink.feedback": "uplink.feedback = true"} if self.feedback else {})

    @property
    def slots(self) -> tuple[str, ...]:
        return (FEEDBACK,) if self.feedback else ()

    def clipped(self, norm: float) -> Uplink:
        """Return the chain with a last stage that clips a model's change to a norm."""
        return replace(self, chain=(*self.chain, Clip(norm)))

    def saved_bytes(self, parts: Parts, layouts: Layouts) -> int:
        return self.shortening(parts, layouts)

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        return replace(updates, on_the_way=(*updates.on_the_way, Sent(self)))


@dataclass(frozen=True)
class Sent:
    """The uplink, as the last stage on the way of the trained models that are finite."""

    uplink: Uplink

    def prepared(self, works: list[Work]) -> list[Work]:
        return works

    def __call__(self, trained: Trained) -> None:
        from algorithms.options.sending import send  # late, because the experiment file is checked without torch

        worker, places = trained.worker, trained.finite()
        if worker.own is None or not self.uplink.has_own:
            send(trained, self.uplink, places)
            return
        # The stages of a user may draw from the default generators: each client's change goes alone.
        for i in places:
            with worker.keyed(Purpose.OWN_UPLINK, trained.counter(i), trained.clients[i], trained.updates.seed):
                send(trained, self.uplink, [i])


def clipped(updates: ClientUpdates, norm: float) -> ClientUpdates:
    """Return client updates whose changes are clipped to a norm in the end, in one chain with their uplink."""
    earlier = tuple(stage for stage in updates.on_the_way if not isinstance(stage, Sent))
    uplink = next((stage.uplink for stage in updates.on_the_way if isinstance(stage, Sent)), Uplink())
    return replace(updates, on_the_way=(*earlier, Sent(uplink.clipped(norm))))
