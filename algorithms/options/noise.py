"""Noise on the sum of the clients' changes, and the clipping norm of the next round; see `Privacy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from algorithms.core.keys import Purpose, generator
from algorithms.core.sums import Sum
from algorithms.options.privacy import AdaptiveClip, Privacy, Spent

if TYPE_CHECKING:
    from algorithms.core.fleet import Fleet
    from algorithms.core.rows import UpdateRows
    from algorithms.core.state import State
    from algorithms.parts.algorithm import Algorithm

ROUNDING = 1e-3
"""Share of C by which a clipped change may be shorter than C because of rounding, when it counts as clipped."""


def spent_by(state: State, privacy: Privacy) -> Spent:
    """Return the differential privacy of a run so far."""
    return state.privacy or Spent(privacy.clip)


def with_noise(
    state: State, algorithm: Algorithm, privacy: Privacy, fleet: Fleet, models: Sum, rows: UpdateRows
) -> tuple[Sum, Spent]:
    """Return the noised sum of the cohort's models, with the expected cohort as its weight; and the privacy spent.

        qK w + sum_k (w_k - w) + N(0, (z C)^2)

    Args:
        state: the run before the round.
        algorithm: parts of the current phase.
        privacy: privacy of the algorithm.
        fleet: fleet that ran the blocks.
        models: sum of the models of the clients that trained, each with weight 1.
        rows: reports of the round's client updates.
    """
    spent, rate = spent_by(state, privacy), algorithm.rounds.sample.rate
    expected = rate * len(fleet.census.clients)
    rng = generator(state.seed, Purpose.PRIVACY, state.round + 1)
    start = state.model.floats.astype(np.float64)
    # An entry that nobody trains must not show the cohort's size in its last bits.
    floats = expected * start
    for entry, place in algorithm.local.trained(fleet.layouts.shared).places():
        if entry.frozen:
            continue
        floats[place] = models.floats[place] + (expected - models.total) * start[place]
        if privacy.multiplier and entry.is_parameter:
            floats[place] += privacy.sum_noise * spent.clip * rng.standard_normal(entry.size)
    clip = spent.clip
    if privacy.adaptive:
        clip = privacy.adaptive.moved(clip, _share_within(clip, privacy.adaptive, rows, expected, rng))
    return Sum(floats, models.integers, models.floating, expected), spent.after(rate, privacy.multiplier, clip)


def _share_within(
    clip: float, rule: AdaptiveClip, rows: UpdateRows, expected: float, rng: np.random.Generator
) -> float:
    """Return the noised share of changes that were not clipped; each client moves the sum by at most 1/2."""
    within = rows.column("change")[rows.trained] < (clip * (1 - ROUNDING)) ** 2
    return float(0.5 + (np.sum(within - 0.5) + rule.count_noise * rng.standard_normal()) / expected)
