"""`[privacy]`: differential privacy of users at the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field

from algorithms import AdaptiveClip, Privacy
from raysim.common.errors import InputError
from raysim.config.check import ConfigTable
from raysim.config.options import OptionTable, Tell
from raysim.measures.epsilon.accounting import Accountant, AccountantName, told_if_slow
from raysim.measures.epsilon.outside_epsilon import covers
from raysim.measures.selection import Selection

if TYPE_CHECKING:  # It imports torch.
    from algorithms import State

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


class PrivacyTable(OptionTable):
    """`[privacy]`: noise and clipping of central differential privacy; either `noise` or `epsilon` is given."""

    complete: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"clip": 1.0, "noise": 1.0, "accountant": "rdp"},
        {"clip": 1.0, "accountant": "rdp"},
        {"noise": 1.0},
    )
    around: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "adaptive": {"clip": 1.0, "noise": 0.0, "adaptive": {"count_noise": 1.0}, "accountant": "rdp"}
    }

    clip: float
    """Largest L2 norm of a client's change of the shared parameters; the first one if `adaptive` is given."""
    noise: float | None = None
    """Noise multiplier: the standard deviation of the noise on the sum of changes, in units of `clip`. With
    `accountant = "pld"` it is 0 or at least 0.1."""
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

    def check_keys(self) -> None:
        if (self.noise is None) == (self.epsilon is None):
            both = (self.noise, self.epsilon)
            remedy = "set privacy.noise = 1.0" if self.noise is None else "remove the other"
            raise InputError(f"privacy.noise, privacy.epsilon = {both}: must be one of them; {remedy}")
        if self.accountant == "pld" and self.noise is not None and 0 < self.noise < LEAST_BY_PLD:
            raise InputError(
                f"privacy.noise = {self.noise:g} with privacy.accountant = 'pld': must be 0 or at least "
                f"{LEAST_BY_PLD}, because its distributions would fill the memory; set privacy.accountant = 'rdp'"
            )

    def value(self) -> Privacy:
        """Return the privacy; until `solved` it cannot run."""
        adaptive = None if self.adaptive is None else AdaptiveClip(**self.adaptive.beyond(ConfigTable))
        return Privacy(self.noise, self.clip, adaptive)

    def option(self, algorithm: Any = None, labels: Any = None) -> Privacy:
        if algorithm is not None and algorithm.joins:
            raise InputError(
                "algorithm.joins with [privacy]: must be left out, because the accounting knows one rate and number of "
                "clients; remove one of the two"
            )
        return self.value()

    def solved(self, rate: float, rounds: int | None, tell: Tell) -> Self:
        """Return the table with `noise` in place of `epsilon`; arguments and errors as of `OptionTable`."""
        if self.epsilon is None:
            return self
        if rounds is None:
            raise InputError("epochs with privacy.epsilon: must be rounds, for which the noise is solved; set rounds")
        with told_if_slow(self.accountant, tell):
            noise = self.accounts.noise(self.epsilon, rate, rounds) if rounds else 0.0
        solved = self.model_copy(update={"noise": noise, "epsilon": None})
        solved.value()
        return solved

    def evaluated(self, state: State, tell: Tell) -> Mapping[str, float]:
        with told_if_slow(self.accountant, tell):
            return {"epsilon": self.accounts.epsilon(state.of(Privacy.name).get("events", ()))}

    def check(self, experiment: Any) -> None:
        """Check that neither the length of a private run nor its data tell of clients without noise."""
        epochs, data, partition = experiment.epochs, experiment.data, experiment.partition
        if epochs is not None:
            raise InputError(
                f"epochs = {epochs:g} with [privacy]: must be rounds, because the clients' numbers of samples would "
                "set the number of rounds without noise; set rounds"
            )
        if data.standardise != "none":
            raise InputError(
                f'data.standardise = "{data.standardise}" with [privacy]: must be "none", because the means over all '
                'clients, which test sets take too, have no noise; set data.standardise = "none"'
            )
        columns = data.columns
        if columns is not None and columns.rules.needs_statistics:
            raise InputError(
                f"data.columns.impute = {columns.impute!r} with [privacy]: must be a number, or a number or "
                "category for each column, because statistics over clients have no noise; fill missing values in "
                "beforehand"
            )
        natural = partition is not None and partition.scheme == "natural"
        if natural and not isinstance(data.test, str) and data.test:
            raise InputError(
                f'data.test = {data.test:g} with [privacy] and partition.scheme = "natural": must be a table without '
                "rows of training clients, because evaluations on their rows have no noise; set "
                "partition.test_clients = 0.2"
            )

    def check_run(self, clients: int, selection: Selection, columns: Sequence[str], own_models: bool) -> None:
        """Check that delta says something, and that no rule publishes a choice without noise."""
        delta = self.delta
        if delta * clients >= 1:
            raise InputError(
                f"privacy.delta = {delta:g} with {clients} training clients: must be below 1 / {clients} = "
                f"{1 / clients:.2g}, because publishing one client's data whole has such a delta; set privacy.delta = "
                f"{0.1 / clients:.1g}"
            )
        for rule, by in selection.decides.items():
            if (column := next((each for each in by if not covers(each, own_models)), None)) is not None:
                others = [each for each in columns if covers(each, own_models)]
                where = "evaluate.target" if "until_target" in rule else "evaluate.select_by"
                remedy = f"name {others[0]!r} in {where}" if others else "set partition.validation_clients = 0.2"
                raise InputError(
                    f"{rule} by {column!r} with [privacy]: must be by an evaluation without training clients, "
                    f"because the chosen round would tell of them without noise; {remedy}"
                )
