"""The option `newcomer`: clients without personal state start from an average."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from algorithms.parts.option import Draft, Option
from algorithms.parts.received import Received


@dataclass(frozen=True)
class AverageForNewcomers(Option):
    """Clients without personal state start from the average of the last aggregated cohort's; all send theirs."""

    name: ClassVar[str] = "newcomer"
    in_own_rounds: ClassVar[bool] = True

    def attend(self, draft: Draft) -> Draft:
        return replace(draft, newcomer=draft.fleet.layouts.begun(draft.state.average))

    def reduce(self, draft: Draft, received: Received) -> Received:
        state, size = draft.state, draft.fleet.layouts.personal.nbytes
        new = [state.personal.latest(client, state.round) is None for client in received.rows.clients.tolist()]
        return replace(received, up=received.up + size, down=received.down + size * np.array(new, np.int64))
