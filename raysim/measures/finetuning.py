"""Fine-tuning of clients' models before they are evaluated; torch, which takes seconds to import, is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from algorithms import Algorithm, Layouts, Method, Purpose, torch_seed
from algorithms.core.head import ModelPart
from raysim.common.errors import InputError

if TYPE_CHECKING:
    from algorithms import ClientUpdates, State


@dataclass(frozen=True)
class Finetuning:
    """Training of a client's model before it is evaluated.

    Args:
        epochs: passes over the client's training part, >= 1.
        part: part of the model that trains.
    """

    epochs: int = 1
    part: ModelPart = "all"

    def updates(self, state: State, algorithm: Algorithm) -> ClientUpdates:
        """Return the client updates that fine-tune after a round: plain local steps, with draws of their own."""
        from algorithms.parts.client_update import ClientUpdates

        phase, number = algorithm.phase(state.phase), max(1, state.round)
        length: dict[str, Any] = {"epochs": self.epochs, "steps": None, "batches": None}
        local = replace(phase.local, **length, part=self.part, method=Method())
        seed = torch_seed(state.seed, Purpose.FINETUNE, number) % 2**32
        return ClientUpdates(local, phase.weighting, seed, number, state.rounds)

    def check(self, algorithm: Algorithm, layouts: Layouts) -> None:
        """Raise InputError if the algorithm's client updates are the user's own, or the part has no parameters."""
        own = next((phase.local.update.name for phase in algorithm.phases if phase.local.update is not None), None)
        if own is not None:
            raise InputError(
                f"evaluate.finetune with local.update = {own!r}: must be left out, because it takes plain local steps; "
                "remove one of the two"
            )
        if not any(entry.is_parameter and entry.is_in(self.part) for entry in layouts.whole.entries):
            raise InputError(
                f"evaluate.finetune.part = {self.part!r}: must be a part of the model with parameters; use 'all'"
            )
