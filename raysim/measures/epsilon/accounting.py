"""Accounting of differential privacy by Google's `dp-accounting`, from the mechanisms that ran."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, log
from threading import Timer
from typing import Any, Literal

from raysim.common.distribution import install
from raysim.common.errors import InputError

AccountantName = Literal["pld", "rdp"]

Events = Sequence[tuple[float, float, int]]
"""Mechanisms in order: rate, noise multiplier, and the number of rounds."""

EPSILON = "differential privacy of users spent since the start, with the delta of the experiment file"
"""Meaning of the column `epsilon`."""

TOLERANCE = 1e-4
"""Largest relative excess of a noise multiplier over the smallest that reaches an epsilon."""

LEAST = 1e-12
"""Least epsilon that is told from 0."""

STEP = 1.25
"""Factor between noise multipliers around the one of the Renyi accountant."""

NOISES = (0.1, 1e4)
"""Noise multipliers among which one is sought."""

PATIENCE = 10.0
"""Seconds of accounting until a notice names the faster accountant."""


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
            InputError: no usual noise multiplier reaches it, delta needs no noise, or is too small for "pld".
        """
        joins = 1 - (1 - rate) ** rounds
        if joins <= self.delta * (1 + 1e-9):
            raise InputError(
                f"privacy.delta = {self.delta:g}: must be below {joins:g}, the chance of a client to join any of "
                f"{rounds} rounds, because epsilon is 0 without noise otherwise; set a smaller privacy.delta"
            )
        found = self._solved(epsilon, rate, rounds)
        if not self.epsilon([(rate, found, rounds)]) <= epsilon:
            raise self._lost(epsilon)
        return found

    def _solved(self, epsilon: float, rate: float, rounds: int) -> float:
        """Return the noise multiplier at which the accountant's epsilon crosses the target."""

        def excess(logarithm: float) -> float:
            # Epsilon is 0 if delta alone covers the noise, and infinite where an accountant gives up.
            found = self.epsilon([(rate, exp(logarithm), rounds)])
            return log(min(max(found, LEAST), 1 / LEAST) / epsilon)

        (least, most), step = map(log, NOISES), log(STEP if self.by == "pld" else 4.0)
        guess = self._renyi_noise(epsilon, rate, rounds)
        low = high = log(guess or 1.0)
        # A tight accountant needs no more noise than the Renyi one, rounding apart.
        enough = most if guess is None else min(most, high + step)
        while excess(high) > 0:
            if high == enough:
                raise self._lost(epsilon) if enough < most else self._out_of_reach(epsilon, rounds, "larger")
            low, high = high, min(high + step, enough)
        while excess(low) <= 0:
            if low == least:
                raise self._out_of_reach(epsilon, rounds, "smaller")
            low, high = max(low - step, least), low
        # Brent's method evaluates the costly function only a few times.
        from scipy.optimize import brentq  # late: a wrong file is refused without it

        return exp(brentq(excess, low, high, xtol=TOLERANCE / 2) + TOLERANCE)

    def _renyi_noise(self, epsilon: float, rate: float, rounds: int) -> float | None:
        """Return the noise multiplier of the Renyi accountant, which is fast; None if it is the accountant itself."""
        if self.by == "pld":
            with suppress(InputError):
                return Accountant(self.delta, "rdp").noise(epsilon, rate, rounds)
        return None

    def _lost(self, epsilon: float) -> InputError:
        return InputError(
            f"privacy.delta = {self.delta:g} with privacy.epsilon = {epsilon:g} and privacy.accountant = {self.by!r}: "
            "must be larger, because the accountant's rounding hides it and the noise would miss epsilon; set "
            "privacy.delta = 1e-9, or privacy.accountant = 'rdp'"
        )

    def _out_of_reach(self, epsilon: float, rounds: int, other: str) -> InputError:
        return InputError(
            f"privacy.epsilon = {epsilon:g}: must be reached by a noise in {NOISES} after {rounds} rounds with delta = "
            f"{self.delta:g}; set a {other} epsilon, or privacy.noise"
        )


@contextmanager
def told_if_slow(by: AccountantName, tell: Callable[[str], object]) -> Iterator[None]:
    """Tell once if the accounting in the context takes long; it goes on."""
    text = f"[privacy]: the accounting by {by!r} takes more than {PATIENCE:g} s; privacy.accountant = 'rdp' is faster"
    timer = Timer(PATIENCE, tell, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
