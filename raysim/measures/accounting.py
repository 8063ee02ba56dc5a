"""Accounting of differential privacy by Google's `dp-accounting`, from the mechanisms that ran."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log
from typing import Any, Literal

from algorithms import Spent
from raysim.common.distribution import install
from raysim.common.errors import InputError

AccountantName = Literal["pld", "rdp"]

Events = Sequence[tuple[float, float, int]]
"""Mechanisms in order: rate, noise multiplier, and the number of rounds."""

TOLERANCE = 1e-4
"""Largest relative excess of a noise multiplier over the smallest that reaches an epsilon."""

NOISES = (1e-2, 1e4)
"""Noise multipliers among which one is sought."""


@dataclass(frozen=True)
class Accountant:
    """Accountant of Poisson-subsampled Gaussian mechanisms; clients are added or removed.

    Args:
        delta: delta of the guarantee, in (0, 1).
        by: "pld", privacy loss distributions, which are tight; or "rdp", Renyi differential privacy.
    """

    delta: float
    by: AccountantName = "pld"

    def epsilon(self, events: Events) -> float:
        """Return epsilon of a composition; infinity if a mechanism has no noise.

        Args:
            events: mechanisms that ran.
        """
        if not events:
            return 0.0
        if not all(noise for _, noise, _ in events):
            return inf
        return float(_rdp(events, self.delta) if self.by == "rdp" else _pld(tuple(events), self.delta))

    def noise(self, epsilon: float, rate: float, rounds: int) -> float:
        """Return the noise multiplier with which a run of equal rounds reaches an epsilon.

        Args:
            epsilon: largest epsilon, > 0.
            rate: probability that a client joins a round.
            rounds: number of rounds, each with an aggregation.

        Raises:
            InputError: no usual noise multiplier reaches it.
        """
        first, step = 1.0, 4.0
        if self.by == "pld":
            # Renyi accounting is fast, and bounds the same epsilon from above.
            first, step = Accountant(self.delta, "rdp").noise(epsilon, rate, rounds), 1.25

        def excess(logarithm: float) -> float:
            return log(self.epsilon([(rate, exp(logarithm), rounds)]) / epsilon)

        ends = [log(first)]
        while excess(ends[-1]) * excess(ends[0]) > 0:
            ends.append(ends[-1] + (log(step) if excess(ends[0]) > 0 else -log(step)))
            if not NOISES[0] <= exp(ends[-1]) <= NOISES[1]:
                raise InputError(
                    f"privacy.epsilon = {epsilon:g}: must be reached by a noise in {NOISES} after "
                    f"{rounds} rounds with delta = {self.delta:g}; set another epsilon"
                )
        # Brent's method evaluates the costly function only a few times.
        from scipy.optimize import brentq  # late: a wrong file is refused without it

        return exp(brentq(excess, ends[-2], ends[-1], xtol=TOLERANCE / 2) + TOLERANCE)


def epsilon_of(spent: Spent | None, accountant: Accountant) -> float:
    """Return epsilon of a run so far."""
    return accountant.epsilon(() if spent is None else spent.events)


def dp_accounting() -> Any:
    """Import `dp_accounting`; raise InputError if it is not installed."""
    try:
        import dp_accounting
        from dp_accounting import pld, rdp  # noqa: F401 they are its attributes afterwards
    except ImportError:
        raise InputError(
            f"[privacy]: must have the package dp-accounting, which is missing; {install('privacy')}"
        ) from None
    # It warns of each Renyi order whose series does not converge, and leaves that order out.
    logging.getLogger("absl").setLevel(logging.ERROR)
    return dp_accounting


def _rdp(events: Events, delta: float) -> float:
    found = [_curve(rate, noise) for rate, noise, _ in events]
    total = sum(times * curve for (_, curve), (_, _, times) in zip(found, events, strict=True))
    with _no_handlers():
        epsilon: float = dp_accounting().rdp.compute_epsilon(found[0][0], total, delta)[0]
    return epsilon


@lru_cache
def _curve(rate: float, noise: float) -> tuple[Any, Any]:
    """Return Renyi orders, and the divergence of one round at each."""
    dp, event = dp_accounting(), dp_accounting().GaussianDpEvent(noise)
    with _no_handlers():
        accountant = dp.rdp.RdpAccountant().compose(dp.PoissonSampledDpEvent(rate, event) if rate < 1 else event)
    return accountant.orders, accountant.rdp


@lru_cache
def _pld(events: tuple[tuple[float, float, int], ...], delta: float) -> float:
    losses = dp_accounting().pld.privacy_loss_distribution.identity()
    for rate, noise, times in events:
        losses = losses.compose(_losses(rate, noise).self_compose(times))
    epsilon: float = losses.get_epsilon_for_delta(delta)
    return epsilon


@lru_cache
def _losses(rate: float, noise: float) -> Any:
    """Return the privacy loss distribution of one round."""
    with _no_handlers():
        return dp_accounting().pld.privacy_loss_distribution.from_gaussian_mechanism(noise, sampling_prob=rate)


@contextmanager
def _no_handlers() -> Iterator[None]:
    """Take away the handlers of the root logger that warnings of the package may have added."""
    root = logging.getLogger()
    before = root.handlers[:]
    try:
        yield
    finally:
        root.handlers[:] = before
