"""The option `aggregate`: a rule that turns a cohort's models into one, in place of their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from algorithms.core.errors import InputError
from algorithms.options.aggregation import Aggregate, Mean
from algorithms.parts.option import Option, Parts, Updates
from algorithms.parts.weighting import Equal, Samples, SamplesUsed

if TYPE_CHECKING:
    from algorithms.parts.draft import Draft, Received


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

    def check(self, parts: Parts) -> None:
        if isinstance(self.rule, Mean):
            return
        plain = isinstance(parts.weighting, Samples | SamplesUsed | Equal)
        for found, other, why in (
            (parts.has_own_round, "rounds of its own", "with a cohort that trains at once"),
            (
                parts.every > 1,
                f"aggregate_every = {parts.every}",
                "with aggregate_every = 1, because a model that visits many clients has met an attacker",
            ),
            (not plain, f"weighting = {parts.weighting}", "with weights by samples, which it ignores"),
            (parts.sharing.weights == "personal", 'sharing.weights = "personal"', "with weights that are sent"),
        ):
            if found:
                raise InputError(
                    f"server.aggregate = {self.rule} with {other}: must be used {why}; set server.aggregate = "
                    '"mean", or use another algorithm'
                )

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        from algorithms.options.gathered import gathered

        return gathered(draft, updates)

    def reduce(self, draft: Draft, received: Received) -> Received:
        from algorithms.options.gathered import aggregated

        return aggregated(draft, self.rule, received)
