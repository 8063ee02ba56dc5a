"""The option `common-step`: FedTAN's first step of all clients together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from algorithms.core.errors import InputError
from algorithms.core.state import State
from algorithms.parts.option import Draft, Option, Updates
from algorithms.parts.received import Received

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch
    from torch import nn

    from algorithms.options.exchange import Common


@dataclass(frozen=True)
class CommonStep(Option):
    """First local steps that normalise by common statistics of the cohort; see `algorithms.fedtan`."""

    name: ClassVar[str] = "common-step"
    needs_batch_norm: ClassVar[bool] = True
    forms_models: ClassVar[str] = "the algorithm has a first step of its own"

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        from algorithms.options.exchange import DROPOUT
        from algorithms.training.dropout import has_dropout

        if has_dropout(module, sample):
            raise InputError(DROPOUT)

    def attend(self, draft: Draft) -> Draft:
        from algorithms.core.fleet import block_over
        from algorithms.options.exchange import Exchange
        from algorithms.parts.cohort import client_updates

        draft = draft.with_cohort()
        exchange = Exchange(client_updates(draft))
        start = draft.fleet.put((draft.state.model, draft.state.average))
        (outcome,) = draft.fleet.map(exchange, [block_over(draft.drawn, draft.fleet)], [start])
        draft.laps.lap("train")
        return draft.noting(self.name, outcome.value)

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        from algorithms.options.exchange import AfterCommonStep

        common = draft.notes.get(self.name)
        return AfterCommonStep(updates, common) if common else updates

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        common: tuple[Common, ...] = draft.notes[self.name]
        report, devices = state.report, draft.fleet.census.devices
        # Updates that are left out later, because their result is not finite, took part as well.
        took_part = int((received.rows.column("used") > 0).sum())
        each, exchanges, slowest = sum(layer.nbytes for layer in common), 3 * len(common), 0.0
        if devices is not None and took_part:
            slowest = max(devices.wire(client, each, each, exchanges) for client in draft.drawn.tolist())
        return replace(state, report=report and report.adding(took_part * each, took_part * each, exchanges, slowest))
