"""Reporting of client updates in virtual time: over-selection, deadlines, and what becomes of late updates."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite
from typing import Literal

from algorithms.core.errors import InputError, require

LateUpdates = Literal["drop", "stale"]


@dataclass(frozen=True)
class Reporting:
    """End of a synchronous round in virtual time.

    The server selects ceil(over x m) clients. The round ends when m client updates have arrived, when the deadline
    passes, or when no further update can arrive, whichever is first.

    Args:
        over: factor of over-selection, >= 1.
        deadline: seconds after which a round ends, > 0; None for no deadline.
        late: client updates that arrive after the end of their round. "drop" ignores them. "stale" counts them in the
            round in which they arrive, s rounds later, with 1 / sqrt(1 + s) of their weight, and applies their change
            to the present model: w_k - w_(t-s) + w_t.

    Raises:
        InputError: a number is out of range, or "stale" stands without a factor or a deadline.

    Paper: Bonawitz et al., "Towards Federated Learning at Scale: System Design", 2019, sections 2.2 and 9, which
    selects 130 % of the clients. The weight of a stale update is FedBuff's.
    """

    over: float = 1.0
    deadline: float | None = None
    late: LateUpdates = "drop"

    def __post_init__(self) -> None:
        holds = isfinite(self.over) and self.over >= 1
        require(holds, "algorithm.over", self.over, "a number >= 1", "set algorithm.over = 1.3")
        holds = self.deadline is None or (isfinite(self.deadline) and self.deadline > 0)
        require(holds, "algorithm.deadline", self.deadline, "a number of seconds > 0", "leave it out for no deadline")
        known = self.late in ("drop", "stale")
        require(known, "algorithm.late", self.late, '"drop" or "stale"', 'set algorithm.late = "drop"')
        if self.late == "stale" and self.over == 1 and self.deadline is None:
            raise InputError(
                'algorithm.late = "stale" without algorithm.over and algorithm.deadline: must stand with one of them, '
                "because no update is late otherwise; set algorithm.deadline"
            )

    @property
    def needs_virtual_time(self) -> str:
        """Key of a setting that only makes sense in virtual time; "" if there is none."""
        if self.over > 1:
            return f"algorithm.over = {self.over}"
        return "" if self.deadline is None else f"algorithm.deadline = {self.deadline}"

    def selected(self, size: int) -> int:
        """Return the number of clients to select for a cohort of m."""
        return size if self.over == 1 else ceil(round(self.over * size, 9))
