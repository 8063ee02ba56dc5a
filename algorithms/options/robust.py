"""The option `aggregate`: a rule that turns a cohort's models into one, in place of their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from algorithms.options.aggregation import Aggregate
from algorithms.parts.option import Draft, Option, Received, Updates


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
    forms_models: ClassVar[str] = "the aggregation or an attack looks at each client's model"

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        from algorithms.options.gathered import gathered

        return gathered(draft, updates)

    def reduce(self, draft: Draft, received: Received) -> Received:
        from algorithms.options.gathered import aggregated

        return aggregated(draft, self.rule, received)
