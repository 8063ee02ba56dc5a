"""Selection of a round's clients by a user's own rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.keys import Purpose, generator
from algorithms.core.returned import Returned, encodes, names_of, read_only
from algorithms.core.state import State
from algorithms.parts.option import Conflict, Draft, Option
from algorithms.parts.received import Received

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class SelectionContext:
    """Everything that a rule of selection knows before a round. Its arrays are read-only copies.

    Args:
        round: round, starting at 1.
        size: number of clients that `cohort` or `fraction` asks for; the rule may choose another number.
        clients: ids of the training clients, ascending, int64 [K].
        samples: number of samples of each, int64 [K].
        available: whether each may be chosen in this round, bool [K].
        reports: client updates of the round before by column: `client`, `samples`, `steps`, `used`, `labelled`, `loss`,
            and the numbers that the rule's `needs` names, [n] each; empty in the first round.
        memory: the rule's own arrays by name; those that stand here after the call are kept, also by checkpoints.
        rng: random generator of the rule and the round.
    """

    round: int
    size: int
    clients: NDArray[np.int64]
    samples: NDArray[np.int64]
    available: NDArray[np.bool_]
    reports: Arrays
    memory: dict[str, NDArray[Any]]
    rng: np.random.Generator


@dataclass(frozen=True)
class OwnSelection(Option):
    """Cohort chosen by a user's function of a `SelectionContext`, which returns ids of available clients in any order.

    Args:
        title: name in the experiment file.
        rule: the function, or a class whose instances are one and are made anew for each round. Its attribute `needs`
            names what it reads in the reports beside every report's entries.
    """

    title: str
    rule: Callable[..., Any] = field(repr=False)

    name: ClassVar[str] = "own-selection"
    draws_cohort: ClassVar[bool] = True
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            *("over > 1", "own-selection"),
            "not be used together, because the rule chooses the number of clients",
            "let the rule choose more clients",
        ),
    )

    @property
    def settings(self) -> Mapping[str, str]:
        return {self.name: f'algorithm.sampling = "{self.title}"'}

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries read in a report beside those that every report has."""
        return names_of(self.rule, "needs")

    def attend(self, draft: Draft) -> Draft:
        if draft.cohort is not None:
            return draft  # virtual time has asked the rule
        state, census = draft.state, draft.fleet.census
        present = draft.algorithm.schedule.participation.present(len(draft.clients), state.seed, draft.counter)
        free, kept = draft.clients[present], state.of(self.name)
        if not len(free):
            return replace(draft, cohort=free)
        most = len(state.travelling_models) or len(free)
        context = SelectionContext(
            draft.number,
            min(draft.size, most),
            read_only(census.clients),
            read_only(census.samples),
            read_only(np.isin(census.clients, free)),
            {name: read_only(column) for name, column in kept.get("reports", {}).items()},
            {name: value.copy() for name, value in kept.get("memory", {}).items()},
            generator(state.seed, Purpose.OWN_SELECTION, draft.number),
        )
        rule = self.rule() if isinstance(self.rule, type) else self.rule
        cohort = self._cohort(rule(context), context, most)
        return replace(draft, cohort=cohort).noting(self.name, self._memory(context.memory))

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        memory = draft.notes.get(self.name, draft.state.of(self.name).get("memory", {}))
        reports = {"client": received.rows.clients, **received.rows.report}
        return state.keeping(self.name, {"memory": memory, "reports": reports})

    def _cohort(self, found: object, context: SelectionContext, most: int) -> NDArray[np.int64]:
        """Return the chosen clients in ascending order; raise InputError if the choice is impossible."""
        returned, number = Returned(f"algorithm.sampling = {self.title!r}", self.rule), context.round
        plain: Any = found.tolist() if isinstance(found, np.ndarray) else found
        listed = isinstance(plain, list | tuple)
        if wrong := [each for each in (plain if listed else [plain]) if not (listed and _is_id(each))]:
            raise returned.fault(
                f"return a list or an array of ids, whole numbers, and returns a {type(wrong[0]).__name__} in round "
                f"{number}"
            )
        chosen, free = Counter(map(int, plain)), set(context.clients[context.available].tolist())
        if strange := sorted(chosen.keys() - free):
            known = "is not available" if strange[0] in context.clients else "is no training client"
            raise returned.fault(f"choose available clients, and {strange[0]} {known} in round {number}")
        if twice := sorted(client for client, times in chosen.items() if times > 1):
            raise returned.fault(f"choose each client once, and chooses {twice[0]} twice in round {number}")
        if not 1 <= len(chosen) <= most:
            raise returned.fault(
                f"choose 1 to {most} clients, as many as are available, or as models travel, and chooses {len(chosen)} "
                f"in round {number}"
            )
        return np.array(sorted(chosen), np.int64)

    def _memory(self, memory: Mapping[str, object]) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that the rule left; raise InputError if a checkpoint cannot hold one."""
        for name, value in memory.items():
            kind = np.asarray(value).dtype if isinstance(value, np.ndarray | np.generic | int | float) else None
            if not encodes(name) or kind is None or kind.kind not in "biuf" or kind.itemsize > 8:
                raise Returned(f"algorithm.sampling = {self.title!r}", self.rule).fault(
                    f"leave context.memory with arrays of numbers by names of UTF-8, and {name!r:.80} is a "
                    f"{type(value).__name__}"
                )
        return {name: np.array(value) for name, value in memory.items()}


def _is_id(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
