"""`[privacy]`: differential privacy of users at the server."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from algorithms import AdaptiveClip, Privacy
from raysim.common.errors import InputError, one_input_error
from raysim.config.check import ConfigTable, checked
from raysim.measures.accounting import Accountant, AccountantName

LEAST_BY_PLD = 0.1
"""Smallest noise above 0 of which privacy loss distributions are computed."""


class AdaptiveTable(ConfigTable):
    """`[privacy.adaptive]`: a clipping norm that follows a quantile of the changes' norms."""

    count_noise: float
    """Standard deviation of the noise on the number of unclipped changes, in clients; above half of `noise`."""
    quantile: float = AdaptiveClip.quantile
    """Share of changes that should not be clipped."""
    rate: float = AdaptiveClip.rate
    """Speed at which the logarithm of the norm follows."""


class PrivacyTable(ConfigTable):
    """`[privacy]`: noise and clipping of central differential privacy; either `noise` or `epsilon` is given."""

    clip: float
    """Largest L2 norm of a client's change of the shared parameters; the first one if `adaptive` is given."""
    noise: float | None = None
    """Noise multiplier: the standard deviation of the noise on the sum of changes, in units of `clip`."""
    epsilon: Annotated[float, Field(gt=0)] | None = None
    """Epsilon after the last round, for which the noise multiplier is solved."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Delta of the guarantee, well below 1 / number of clients."""
    accountant: AccountantName = "pld"
    """Accounting by privacy loss distributions (`pld`, tight) or Renyi differential privacy (`rdp`, fast)."""
    adaptive: AdaptiveTable | None = None
    """Adaptive clipping; by default the norm is fixed."""

    @property
    def accounts(self) -> Accountant:
        """The accountant of the run."""
        return Accountant(self.delta, self.accountant)

    def value(self) -> Privacy:
        """Return the privacy; until `solved` it cannot run."""
        adaptive = None if self.adaptive is None else AdaptiveClip(**self.adaptive.beyond(ConfigTable))
        return Privacy(self.noise, self.clip, adaptive)

    def solved(self, rate: float, rounds: int | None) -> PrivacyTable:
        """Return the table with `noise` in place of `epsilon`.

        Args:
            rate: probability that a client joins a round.
            rounds: rounds of the run; None if a budget of epochs decides.

        Raises:
            InputError: no noise reaches epsilon, or `rounds` is None.
        """
        if self.epsilon is None:
            return self
        if rounds is None:
            raise InputError("epochs with privacy.epsilon: must be rounds, for which the noise is solved; set rounds")
        noise = self.accounts.noise(self.epsilon, rate, rounds) if rounds else 0.0
        solved = self.model_copy(update={"noise": noise, "epsilon": None})
        solved.value()
        return solved


def privacy_of(common: dict[str, Any], special: dict[str, Any]) -> PrivacyTable | None:
    """Check an algorithm's `[privacy]` over the common one; None without either.

    Raises:
        InputError: a key is unknown or out of range, or not exactly one of `noise` and `epsilon` is given.
    """
    # These two exclude each other, so an algorithm's own one replaces a common one.
    ways = {"noise", "epsilon"}
    keys = {key: value for key, value in common.items() if not (key in ways and special.keys() & ways)} | special
    if not keys:
        return None
    if isinstance(keys.get("adaptive"), dict):
        checked(AdaptiveTable, keys["adaptive"], "privacy.adaptive")
    table = checked(PrivacyTable, keys, "privacy")
    if (table.noise is None) == (table.epsilon is None):
        both = (table.noise, table.epsilon)
        raise InputError(f"privacy.noise, privacy.epsilon = {both}: must be one of them; remove the other")
    if table.accountant == "pld" and table.noise is not None and 0 < table.noise < LEAST_BY_PLD:
        raise InputError(
            f"privacy.noise = {table.noise:g} with privacy.accountant = 'pld': must be 0 or at least {LEAST_BY_PLD}, "
            "because its distributions would fill the memory; set privacy.accountant = 'rdp'"
        )
    with one_input_error():
        table.value()
    return table
