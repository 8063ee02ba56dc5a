"""The parts `uplink` and `downlink`: stages on the way of a model's change to the server, and to the clients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import InputError
from algorithms.core.layout import Floats
from algorithms.core.returned import Returned, is_own, name_of
from algorithms.options.stages import Changes, Clip, Message, Noise, RandomK, Stage

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch

FEEDBACK = "feedback"
"""Personal slot of the residual: the part of a client's changes that the server has not received yet."""


@dataclass(frozen=True)
class Uplink:
    """Chain of stages on the change D = w_k - w of the shared parameters that a client trained; empty by default.

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

    chain: tuple[Stage, ...] = ()
    feedback: bool = False
    table: ClassVar[str] = "uplink"

    def __post_init__(self) -> None:
        for text in (*self._order(), *self._feedback()):
            raise InputError(text)

    @property
    def slots(self) -> tuple[str, ...]:
        """Slots that outlast a client update."""
        return (FEEDBACK,) if self.feedback else ()

    @property
    def draws(self) -> bool:
        """Whether a stage draws random numbers."""
        return any(stage.draws for stage in self.chain)

    @property
    def has_own(self) -> bool:
        """Whether a stage is a user's own."""
        return any(is_own(stage) for stage in self.chain)

    def clipped(self, norm: float) -> Uplink:
        """Return the chain with a last stage that clips a model's change to a norm."""
        return replace(self, chain=(*self.chain, Clip(norm)))

    @property
    def clips_alone(self) -> float | None:
        """Norm to which a change is clipped as a whole, if nothing else happens to it; else None."""
        only = self.chain[0] if len(self.chain) == 1 and not self.feedback else None
        return only.norm if isinstance(only, Clip) and only.by == "model" else None

    def nbytes(self, size: int, scalar: int) -> int:
        """Return the bytes of a message.

        Args:
            size: n, number of values of a change.
            scalar: bytes of a number of the model, 4 or 8.
        """
        message = Message(size, size, 8 * scalar, scalar)
        for stage in self.chain if size else ():
            message = stage.message(message)
            if is_own(stage) and not isinstance(message, Message):
                raise self._returned(stage).fault(f"return a Message from `message`, and returns a {_kind(message)}")
        return message.nbytes

    def sent(self, changes: Changes) -> torch.Tensor:
        """Return the changes as they are received, [models, n]."""
        for stage in self.chain:
            given, changes = changes, stage(changes)
            if is_own(stage) and (duty := _broken_duty(given, changes)):
                raise self._returned(stage).fault(duty)
        return changes.whole()

    def _returned(self, stage: Stage) -> Returned:
        return Returned(f"{self.table}.chain has {name_of(stage)!r}")

    def _order(self) -> list[str]:
        """Return the mistakes in the order of the stages."""
        found = []
        for number, stage in enumerate(self.chain):
            earlier, has = self.chain[:number], f"{self.table}.chain has {stage}"
            for what in ("picks", "rounds"):
                if getattr(stage, what) and (before := [each for each in earlier if getattr(each, what)]):
                    duty = "pick values" if what == "picks" else "round values"
                    found.append(f"{has} after {before[0]}: must {duty} only once; remove one")
            per_layer = isinstance(stage, Clip) and stage.by == "layer"
            if per_layer and (before := [each for each in earlier if each.picks]):
                found.append(f"{has} after {before[0]}: must clip whole layers; clip first")
            if per_layer and (before := [each for each in earlier if each.rounds]):
                found.append(f"{has} after {before[0]}: must have one scale; clip first")
            if isinstance(stage, Noise) and (before := [each for each in earlier if each.rounds]):
                found.append(f"{has} after {before[0]}: must add noise first; change their order")
        return found

    def _feedback(self) -> list[str]:
        """Return the mistakes of error feedback."""
        if self.feedback and not self.chain and self.table == "uplink":
            return ["uplink.feedback = true with an empty chain: must have a stage; set uplink.chain"]
        return [
            f"{self.table}.chain has {stage} with error feedback: must not stand together, because {why}; remove it"
            for stage in self.chain
            if self.feedback and (why := _unfed(stage))
        ]


@dataclass(frozen=True)
class Downlink(Uplink):
    """Chain of stages on the change of the global model that the server sends to all clients; empty by default.

        v = server(w, ...) - w + e,   w <- w + chain(v),   e <- v - chain(v)

    w is the global model that all clients have, and the one that is evaluated and written. e is the server's residual:
    error feedback is always on. Other entries are sent whole, as by `Uplink`.

    Args:
        chain: stages in their order.

    Paper: Tang et al., 2019, "DoubleSqueeze", Algorithm 1, the server's part.
    """

    feedback: bool = field(default=True, init=False)
    table: ClassVar[str] = "downlink"


@dataclass(frozen=True)
class Broadcasts:
    """Changes of the global model that the server has sent so far.

    Args:
        owed: e, what the clients have not received yet, [floating values of the model].
        total: bytes of all broadcasts.
        heard: bytes of the broadcasts that each training client has received, [K]; -1 if it has no model yet.
    """

    owed: Floats
    total: int
    heard: NDArray[np.int64]


def _kind(value: object) -> str:
    return type(value).__name__


def _broken_duty(given: Changes, sent: object) -> str:
    """Return the duty that a user's stage does not fulfil; "" if it returns changes that can be sent."""
    if not isinstance(sent, Changes):
        return f"return Changes, and returns a {_kind(sent)}"
    values, places = sent.values, sent.places
    rows = getattr(values, "shape", ())[:1]
    if len(getattr(values, "shape", ())) != 2 or rows != given.values.shape[:1] or values.dtype != given.values.dtype:
        shape, dtype = tuple(getattr(values, "shape", ())), getattr(values, "dtype", _kind(values))
        return (
            f"return values [{len(given.values)}, k] of {given.values.dtype}, a row for each model, and returns "
            f"{list(shape)} of {dtype}"
        )
    if (sent.size, sent.layers) != (given.size, given.layers):
        return f"leave the size {given.size} and the layers of the changes"
    if values.shape[1] != given.size and (places is None or places.shape != values.shape):
        return f"return a place for each value if it sends fewer than {given.size}; use `changes.at`"
    return ""


def _unfed(stage: Stage) -> str:
    """Return the reason why a stage cannot have error feedback; "" if it can."""
    if isinstance(stage, Noise):
        return "the residual would take the noise out again"
    if isinstance(stage, Clip):
        return "the residual would keep what the clipping cut off, and grow"
    grows = isinstance(stage, RandomK) and stage.scale and stage.share < 1
    return "the residual would grow unless you set scale = false" if grows else ""
