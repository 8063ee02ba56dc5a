"""The option `aggregate`: a rule that turns a cohort's models into one, in place of their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from algorithms.options.aggregation import AGGREGATES, Aggregate, Mean
from algorithms.parts.option import Conflict, Draft, Option, Updates
from algorithms.parts.received import Received

LOOKS = "the aggregation or an attack looks at each client's model"

SINGLE_MODELS = {"option that looks at single models": "an attack or a robust aggregation"}
"""Setting of an option that needs the model of each client as the client sent it."""

MEAN = 'set server.aggregate = "mean", or use another algorithm'


@dataclass(frozen=True)
class Robust(Option):
    """Aggregation of a cohort by a rule that looks at every model.

    Args:
        rule: rule; see `algorithms.options.aggregation`.

    Raises:
        InputError: with parts that contradict it, the pair is named.
    """

    rule: Aggregate

    name: ClassVar[str] = "aggregate"
    forms_models: ClassVar[str] = LOOKS
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(*("robust rule", "own rounds"), "be used with a cohort that trains at once", MEAN),
        Conflict(
            *("robust rule", "aggregate_every > 1"),
            "be used with aggregate_every = 1, because a model that visits many clients has met an attacker",
            MEAN,
        ),
        Conflict(*("robust rule", "weights by reports"), "be used with weights by samples, which it ignores", MEAN),
        Conflict(*("robust rule", "weights that stay with the clients"), "be used with weights that are sent", MEAN),
    )

    @property
    def settings(self) -> Mapping[str, str]:
        if isinstance(self.rule, Mean):
            return SINGLE_MODELS
        names = (f'server.aggregate = "{name}"' for name, kind in AGGREGATES.items() if type(self.rule) is kind)
        return {"robust rule": next(names, f"option {self}"), **SINGLE_MODELS}

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        from algorithms.options.gathered import gathered

        return gathered(draft, updates)

    def reduce(self, draft: Draft, received: Received) -> Received:
        from algorithms.options.gathered import aggregated

        return aggregated(draft, self.rule, received)
