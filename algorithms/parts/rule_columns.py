"""The option `server-columns`: numbers of the server's rule in the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from algorithms.core.returned import Returned, name_of, names_of
from algorithms.core.state import State
from algorithms.parts.option import Draft, Option
from algorithms.parts.received import Received
from algorithms.parts.server import Server


@dataclass(frozen=True)
class RuleColumns(Option):
    """Numbers in the memory of a server rule that the rule names in `columns`, as measures of each aggregation.

    Rounds of arrivals, of clusters and of gossip leave them out, because they have no such memory, or many.

    Args:
        rule: server rule.
    """

    rule: Server

    name: ClassVar[str] = "server-columns"
    in_own_rounds: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]  # they are the rule's
        return names_of(self.rule, "columns")

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        memory, models = state.of("server"), received.models
        elsewhere = not memory and draft.algorithm.own_round is not None
        if models is None or not models.total or elsewhere:
            return state
        own = Returned(f"server.rule = {name_of(self.rule)!r}")
        if wrong := [name for name in self.columns if getattr(memory.get(name), "size", 0) != 1]:
            raise own.fault(f"return the number {wrong[0]!r}, which its `columns` names, in its memory")
        return state.measuring({name: own.number(repr(name), memory[name].item()) for name in self.columns})
