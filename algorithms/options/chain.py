"""Chains of stages that a change of the model passes on its way, and their mistakes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms.core.errors import InputError
from algorithms.core.layout import Layouts
from algorithms.core.returned import Returned, is_own, name_of
from algorithms.options.stages import Changes, Clip, Message, Noise, RandomK, Stage
from algorithms.parts.option import Option, Parts

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch


FEEDBACK = "feedback"
"""Personal slot of the residual: the part of a client's changes that the server has not received yet."""


@dataclass(frozen=True)
class StageChain(Option):
    """Chain of stages on a change of the model.

    Args:
        chain: stages in their order.
        feedback: whether what was not sent is added to the next change (error feedback).

    Raises:
        InputError: two stages contradict each other, or feedback contradicts a stage.
    """

    chain: tuple[Stage, ...] = ()
    feedback: bool = False

    def __post_init__(self) -> None:
        for text in (*self._order(), *self._feedback()):
            raise InputError(text)

    @property
    def draws(self) -> bool:
        """Whether a stage draws random numbers."""
        return any(stage.draws for stage in self.chain)

    @property
    def has_own(self) -> bool:
        """Whether a stage is a user's own."""
        return any(is_own(stage) for stage in self.chain)

    @property
    def clips_alone(self) -> float | None:
        """Norm to which a change is clipped as a whole, if nothing else happens to it; else None."""
        only = self.chain[0] if len(self.chain) == 1 and not self.feedback else None
        return only.norm if type(only) is Clip and only.by == "model" else None

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

    def shortening(self, parts: Parts, layouts: Layouts) -> int:
        """Return the bytes by which a message is shorter than the model; negative if it is longer."""
        size = sum(entry.size for entry in layouts.shared.entries if parts.local.trains(entry))
        scalar = np.dtype(layouts.shared.floating).itemsize
        return size * scalar - self.nbytes(size, scalar)

    def sent(self, changes: Changes) -> torch.Tensor:
        """Return the changes as they are received, [models, n]."""
        for stage in self.chain:
            given = changes
            # A user's stage may change values in place; the sender still compares them with what arrives.
            changes = stage(replace(given, values=given.values.clone()) if is_own(stage) else given)
            if is_own(stage) and (duty := _broken_duty(given, changes)):
                raise self._returned(stage).fault(duty)
        return changes.whole()

    def _returned(self, stage: Stage) -> Returned:
        return Returned(f"{self.name}.chain has {name_of(stage)!r}", stage)

    def _order(self) -> list[str]:
        """Return the mistakes in the order of the stages."""
        found = []
        for number, stage in enumerate(self.chain):
            earlier, has = self.chain[:number], f"{self.name}.chain has {stage}"
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
        return [
            f"{self.name}.chain has {stage} with error feedback: must not stand together, because {why}; remove it"
            for stage in self.chain
            if self.feedback and (why := _unfed(stage))
        ]


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
    if places is None and values.shape[1] == given.size:
        return ""
    if getattr(places, "shape", None) != values.shape:
        return f"return a place for each value if it sends fewer than {given.size}, as `changes.at` does"
    duty = f"return ascending int64 places below {given.size}, as `changes.at` does"
    return "" if _ascend(places, given.size) else duty


def _ascend(places: Any, size: int) -> bool:
    """Return whether each row of places is int64, from 0 to below a size, and ascending."""
    import torch

    if not isinstance(places, torch.Tensor) or places.dtype != torch.int64:
        return False
    return bool((places >= 0).all() and (places < size).all() and (places.diff(dim=1) > 0).all())


def _unfed(stage: Stage) -> str:
    """Return the reason why a stage cannot have error feedback; "" if it can."""
    if isinstance(stage, Noise):
        return "the residual would take the noise out again"
    if isinstance(stage, Clip):
        return "the residual would keep what the clipping cut off, and grow"
    grows = isinstance(stage, RandomK) and stage.scale and stage.share < 1
    return "the residual would grow unless you set scale = false" if grows else ""
