"""The option `joins`: clients that join after the first round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from algorithms.parts.option import Draft, Option


@dataclass(frozen=True)
class Joins(Option):
    """Cohorts of the clients that have joined; `fraction` is a share of these. See `Census.joins`."""

    name: ClassVar[str] = "joins"

    def attend(self, draft: Draft) -> Draft:
        census, participation = draft.fleet.census, draft.algorithm.schedule.participation
        if census.joins is None:
            return draft
        joined = census.joins <= draft.number
        size = draft.size if participation.fraction is None else min(draft.size, participation.size(int(joined.sum())))
        return replace(draft, clients=draft.clients[joined], weights=draft.weights[joined], size=size)
