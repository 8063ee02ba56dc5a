"""Oort: clients are selected by the utility of their samples and the speed of their devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, isfinite, log
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import InputError, require
from algorithms.core.report import UpdateRows
from algorithms.core.state import State
from algorithms.parts.option import Draft, Option
from algorithms.parts.received import Received
from algorithms.parts.schedule import draw_weighted

Utilities = Mapping[str, NDArray[np.float64]]
"""Memory of Oort by name: `utility` (NaN if unexplored), `last` round, `seconds`, [K]; `rounds`, [r]; `pace`, [1]."""

CANDIDATES = 10
"""Unexplored clients whose speed is looked at, for each that is drawn."""


@dataclass(frozen=True)
class Oort(Option):
    """Cohort of clients with large losses on fast devices, and of some that are new.

        U_k <- n_k sqrt(1/n_k sum_i l_i(w_t)^2)                                  after each client update of client k
        u_k  = min(U_k, U_95) / U_95 + sqrt(0.1 log t / t_k),  times (T / s_k)^alpha if its seconds s_k exceed T

    Of m clients, epsilon_t m are new, drawn in proportion to their speed. The others are drawn in proportion to u among
    the explored clients whose u is at least c times the (1 - epsilon_t) m-th largest. The pacer lets T grow while the
    sum of the utilities falls. t_k is the round of the last update, U_95 the 95th percentile.

    Args:
        exploration: first share of new clients, epsilon_1, in [0, 1].
        decay: factor of epsilon a round, in (0, 1].
        least: least epsilon, in [0, 1].
        alpha: exponent of the penalty for slow clients, >= 0.
        cutoff: c, in (0, 1].
        pace: T at first, as a percentile of the seconds of explored clients, in (0, 100].
        step: percentiles by which the pacer lets T grow, >= 0.
        window: rounds that the pacer compares with those before, >= 1.

    Raises:
        InputError: a number is out of range.

    Paper: Lai et al., "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021, Algorithm 1 and
    section 4.

    Deviations: T is a percentile of durations, as in the authors' code, not a number of seconds. Utilities are divided
    by U_95, so that they compare with the uncertainty. The losses are those of the received model, measured by a pass
    of their own. New clients are drawn by speed among ten times as many uniform candidates. No client is excluded for
    having taken part often. After T has grown, the pacer compares again W = `window` rounds later; in Algorithm 1 it
    compares in every round.
    """

    exploration: float = 0.9
    decay: float = 0.98
    least: float = 0.2
    alpha: float = 2.0
    cutoff: float = 0.95
    pace: float = 30.0
    step: float = 10.0
    window: int = 20

    name: ClassVar[str] = "oort"
    draws_cohort: ClassVar[bool] = True
    setting: ClassVar[str] = 'algorithm.sampling = "oort"'

    needs: ClassVar[tuple[str, ...]] = ("loss_rms",)

    def __post_init__(self) -> None:
        for name, high in (("exploration", 1), ("decay", 1), ("least", 1), ("cutoff", 1), ("pace", 100)):
            value, zero = getattr(self, name), name in ("exploration", "least")
            within, allowed = 0 <= value <= high and (zero or value > 0), f"in {'[' if zero else '('}0, {high}]"
            require(within, f"algorithm.oort.{name}", value, allowed, "leave it out")
        for name in ("alpha", "step"):
            value = getattr(self, name)
            require(isfinite(value) and value >= 0, f"algorithm.oort.{name}", value, "a number >= 0", "leave it out")
        whole = isinstance(self.window, int) and self.window >= 1
        require(whole, "algorithm.oort.window", self.window, "a whole number >= 1", "leave it out")

    def attend(self, draft: Draft) -> Draft:
        if draft.cohort is None:
            raise InputError(
                'algorithm.sampling = "oort" without [devices]: must have devices, which set the virtual time; add the '
                "table [devices]"
            )
        return draft

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        clients, seconds = draft.fleet.census.clients, draft.notes["virtual-time"].seconds
        memory = self.moved(draft.state.of(self.name), clients, received.rows, seconds, draft.number)
        return state.keeping(self.name, memory)

    def draw(
        self,
        memory: Utilities,
        clients: NDArray[np.int64],
        available: NDArray[np.int64],
        size: int,
        seconds: Callable[[int], float],
        rng: np.random.Generator,
        round_number: int,
    ) -> NDArray[np.int64]:
        """Draw the clients of a round.

        Args:
            memory: memory of the earlier rounds.
            clients: ids of the training clients, ascending, [K].
            available: ids of the clients to draw from, ascending, [n].
            size: number of clients, m.
            seconds: seconds of a client's update by its id.
            rng: random stream of the round.
            round_number: round, starting at 1.

        Returns:
            Ids in ascending order, [m], or fewer if fewer are available.
        """
        places = np.searchsorted(clients, available)
        explored = ~np.isnan(memory["utility"][places]) if memory else np.zeros(len(places), bool)
        old, new = places[explored], places[~explored]
        share = max(self.least, self.exploration * self.decay ** (round_number - 1))
        wanted = min(len(new), max(ceil(round(share * size, 9)), size - len(old)))
        chosen = self._exploited(memory, old, min(size - wanted, len(old)), rng, round_number)
        tried = rng.choice(new, min(len(new), CANDIDATES * wanted), replace=False, shuffle=False)
        speeds = np.array([1 / max(seconds(int(clients[place])), 1e-9) for place in tried])
        found = tried[draw_weighted(speeds, wanted, rng)] if wanted else tried[:0]
        return np.sort(clients[np.concatenate([chosen, found])])

    def _exploited(
        self, memory: Utilities, places: NDArray[np.int64], size: int, rng: np.random.Generator, round_number: int
    ) -> NDArray[np.int64]:
        """Draw explored clients by utility; return their places in the census."""
        if not size:
            return places[:0]
        utility, spent = memory["utility"][places], memory["seconds"]
        most = max(float(np.percentile(utility, 95)), np.finfo(float).tiny)
        uncertain = np.sqrt(0.1 * log(round_number) / memory["last"][places])
        preferred = float(np.percentile(spent[~np.isnan(spent)], float(memory["pace"][0])))
        slow = np.minimum(1.0, preferred / np.maximum(spent[places], np.finfo(float).tiny)) ** self.alpha
        total = (np.minimum(utility, most) / most + uncertain) * slow
        cutoff = self.cutoff * np.sort(total)[-size]
        admitted = np.flatnonzero(total >= cutoff)
        return places[admitted[draw_weighted(total[admitted], size, rng, fixed=False)]]

    def moved(
        self,
        memory: Utilities,
        clients: NDArray[np.int64],
        rows: UpdateRows,
        seconds: NDArray[np.float64],
        round_number: int,
    ) -> Utilities:
        """Return the memory after a round.

        Args:
            memory: memory before the round.
            clients: ids of the training clients, [K].
            rows: client updates of the round.
            seconds: virtual seconds of each, [n].
            round_number: round, starting at 1.
        """
        nothing = np.full(len(clients), np.nan)
        utility, last, spent = (memory.get(name, nothing).copy() for name in ("utility", "last", "seconds"))
        rounds, pace = memory.get("rounds", np.empty(0)), memory.get("pace", np.array([self.pace]))
        found = rows.column("samples") * rows.column("loss_rms")
        known = np.isfinite(found) & rows.trained
        places = np.searchsorted(clients, rows.clients)
        utility[places] = np.where(known, found, 0.0)
        last[places], spent[places] = round_number, seconds
        rounds = np.append(rounds, found[known].sum())[-2 * self.window :]
        if len(rounds) == 2 * self.window and rounds[: self.window].sum() > rounds[self.window :].sum():
            pace, rounds = np.minimum(100.0, pace + self.step), rounds[self.window :]
        return {"utility": utility, "last": last, "seconds": spent, "rounds": rounds, "pace": pace}
