"""Central differential privacy of users: clipped changes of equal weight, and noise on their sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, isfinite, sqrt
from typing import ClassVar

import numpy as np

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError, require
from algorithms.core.keys import Purpose, generator
from algorithms.core.layout import Layouts
from algorithms.core.report import UpdateRows
from algorithms.core.returned import is_own, name_of
from algorithms.core.state import State
from algorithms.core.sums import Sum
from algorithms.options.uplink import clipped
from algorithms.parts.option import HOOKS, Conflict, Draft, Option, Parts, Setting, Updates
from algorithms.parts.received import Received

ROUNDING = 1e-3
"""Share of C by which a clipped change may be shorter than C because of rounding, when it counts as clipped."""


@dataclass(frozen=True)
class AdaptiveClip:
    """Clipping norm that follows a quantile of the norms of the clients' changes.

        b <- 1/2 + (sum_k (b_k - 1/2) + N(0, sigma_b^2)) / (q K),   b_k = 1 if |D_k| <= C, otherwise 0
        C <- C exp(-eta_C (b - gamma))

    Args:
        count_noise: sigma_b, standard deviation of the noise on the number of changes within C, in clients.
        quantile: gamma, in [0, 1].
        rate: eta_C, > 0.

    Raises:
        InputError: a number is out of range.

    Paper: Andrew et al., 2021, Algorithm 1; sigma_b is a twentieth of the expected cohort, gamma 0.5 and eta_C 0.2.

    Deviations: a change counts as within C if its norm is below 0.999 C, because rounding may leave a clipped one just
    below C.
    """

    count_noise: float
    quantile: float = 0.5
    rate: float = 0.2

    def __post_init__(self) -> None:
        name, value = "privacy.adaptive.count_noise", self.count_noise
        require(isfinite(value) and value >= 0, name, value, "a finite number >= 0", f"set {name} = 1.0")
        name, value = "privacy.adaptive.quantile", self.quantile
        require(0 <= value <= 1, name, value, "in [0, 1]", f"set {name} = 0.5")
        name, value = "privacy.adaptive.rate", self.rate
        require(isfinite(value) and value > 0, name, value, "a finite number > 0", f"set {name} = 0.2")

    def moved(self, clip: float, rows: UpdateRows, expected: float, rng: np.random.Generator) -> float:
        """Return the C after a round's client updates; `expected` is qK."""
        within = rows.column("change")[rows.trained] < (clip * (1 - ROUNDING)) ** 2
        # Each client moves the sum by at most 1/2.
        share = float(0.5 + (np.sum(within - 0.5) + self.count_noise * rng.standard_normal()) / expected)
        return clip * exp(-self.rate * (share - self.quantile))


@dataclass(frozen=True)
class Privacy(Option):
    """Differential privacy of users at the server: DP-FedAvg.

        D_k <- D_k min(1, C / |D_k|),   mean <- w + (sum_k D_k + N(0, (z C)^2)) / (q K)

    Clients join by Poisson sampling with rate q; K is the number of training clients. A round with an empty cohort has
    noise, too. The neighbouring relation is to add or remove a client with all its samples.

    Args:
        noise: z, the noise multiplier, >= 0. With an adaptive C it covers the sum and the count together. None until
            it is solved for an epsilon; such a value describes a run and cannot run.
        clip: C, the largest L2 norm of a client's change of the shared parameters, > 0; the first C if it is adaptive.
        adaptive: rule that moves C; None for a fixed C.

    Raises:
        InputError: a number is out of range, or the count takes all the noise.

    Paper: McMahan et al., 2018, Algorithm 1, with the fixed-denominator estimator; adaptive: Andrew et al., 2021.

    Deviations: client updates weigh the same. The clipped model is rounded to its precision, in fp32 by up to 6e-8 of
    each weight, so its change may exceed C by as much.
    """

    noise: float | None
    clip: float
    adaptive: AdaptiveClip | None = None

    name: ClassVar[str] = "privacy"
    setting: ClassVar[str] = "[privacy]"
    on_the_way: ClassVar[bool] = True
    columns: ClassVar[tuple[str, ...]] = ("epsilon",)
    forms_models: ClassVar[str] = "the uplink changes each client's model"
    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            *("own rounds", "privacy"),
            "be left out, because the accounting covers synchronous aggregations alone",
            "use fedavg, or remove [privacy]",
        ),
        Conflict(
            *("aggregate_every > 1", "privacy"),
            "be 1, because several clients change a travelling model, and each the order of the others",
            "use fedavg",
        ),
        Conflict(
            *('sampling other than "poisson"', "privacy"),
            'be "poisson", because the accounting assumes independent clients',
            'set algorithm.sampling = "poisson", and algorithm.fraction in place of algorithm.cohort',
        ),
        Conflict(
            *("active < 1", "privacy"),
            "be 1.0, because the accounting knows one rate",
            "set algorithm.fraction to the product of both, and algorithm.active = 1.0",
        ),
        Conflict(
            *("weights that are not equal", "privacy"),
            "be equal, because a weight scales a clipped change",
            'set algorithm.weighting = "equal", or use fedavg',
        ),
        Conflict(
            *("server rule that reads reports", "privacy"),
            "be a rule without the reports of client updates, because they have no noise",
            "use fedavg",
        ),
        Conflict(
            *("phase by reports", "privacy"),
            "be a round, because the reports of client updates have no noise",
            "use an algorithm without such a phase",
        ),
        Conflict(
            *('local.steps = "largest"', "privacy"),
            "be a number, because the largest client would set the steps of all",
            "set local.steps = 10",
        ),
        Conflict(
            *('newcomer = "average"', "privacy"),
            'be "initial", because the average of personal entries has no noise',
            'set algorithm.newcomer = "initial"',
        ),
        Conflict(
            *("weights that stay with the clients", "privacy"),
            'be "shared", because no client sends its weights',
            "remove [privacy]",
        ),
        Conflict(
            *("uplink.feedback", "privacy"),
            "be false, because the residual would keep what the clipping cuts off, and grow",
            "set uplink.feedback = false",
        ),
        Conflict(
            *("option that looks at single models", "privacy"),
            "be left out, because the noise is for a sum of clipped changes",
            "remove one of the two",
        ),
        Conflict(
            *("own part that epsilon does not cover", "privacy"),
            "be left out, because epsilon is that of raysim's own sampling, clipping and noise",
            "remove one of the two",
        ),
        Conflict(
            *("virtual time of the devices", "privacy"),
            "not be used together, because the accounting assumes q",
            "remove one of the two",
        ),
    )

    def __post_init__(self) -> None:
        noise = self.noise
        known = noise is None or (isfinite(noise) and noise >= 0)
        require(known, "privacy.noise", noise, "a finite number >= 0", "set privacy.noise = 1.0")
        holds = self.clip > 0 and (isfinite(self.clip) or noise == 0)
        require(holds, "privacy.clip", self.clip, "a finite number > 0", "set privacy.clip = 1.0")
        if self.adaptive is None:
            return
        name, value = "privacy.adaptive.count_noise", self.adaptive.count_noise
        if noise:
            allowed = f"above noise / 2 = {noise / 2:g}, because the rest of the noise is the sum's"
            require(2 * value > noise, name, value, allowed, f"set {name} = {noise:g}")
        allowed = "finite with privacy.adaptive"
        require(isfinite(self.clip), "privacy.clip", self.clip, allowed, "set privacy.clip = 0.1")

    @property
    def settings(self) -> Mapping[str, str | Setting]:
        return {**super().settings, "own part that epsilon does not cover": _own_part}

    @property
    def multiplier(self) -> float:
        """Noise multiplier z; raise ValueError if it is not solved yet."""
        if self.noise is None:
            raise ValueError("the noise is not solved for its epsilon yet")
        return self.noise

    @property
    def sum_noise(self) -> float:
        """Noise multiplier of the sum: z, or z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2) beside a noised count."""
        if self.adaptive is None or not self.multiplier:
            return self.multiplier
        return 1 / sqrt(self.multiplier**-2 - (2 * self.adaptive.count_noise) ** -2)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("change",) if self.adaptive else ()

    def check_entries(self, layouts: Layouts) -> None:
        for entry in layouts.shared.entries:
            if not (entry.is_parameter or entry.frozen):
                raise InputError(
                    f"the shared entry {entry.name!r} with [privacy]: must be a parameter, because other entries leave "
                    'the clients without noise; use model.norm = "none" or "group", fedbn, or no shared slots'
                )

    def wrap(self, draft: Draft, updates: Updates) -> Updates:
        return clipped(updates, self.spent(draft.state).clip)

    def reduce(self, draft: Draft, received: Received) -> Received:
        # qK w + sum_k (w_k - w) + N(0, (z C)^2), with the expected cohort qK as its weight; each model weighs 1.
        state, algorithm, fleet, models = draft.state, draft.algorithm, draft.fleet, received.models
        if models is None:
            raise RuntimeError("a private round sums its models")
        spent, rate = self.spent(state), algorithm.rounds.participation.rate
        expected, clip = rate * len(fleet.census.clients), spent.clip
        rng = generator(state.seed, Purpose.PRIVACY, draft.number)
        start = state.model.floats.astype(np.float64)
        # An entry that nobody trains must not show the cohort's size in its last bits.
        floats = expected * start
        for entry, place in algorithm.local.trained(fleet.layouts.shared).places():
            if entry.frozen:
                continue
            floats[place] = models.floats[place] + (expected - models.total) * start[place]
            if self.multiplier and entry.is_parameter:
                floats[place] += self.sum_noise * clip * rng.standard_normal(entry.size)
        if self.adaptive:
            clip = self.adaptive.moved(clip, received.rows, expected, rng)
        noised = Sum(floats, models.integers, models.floating, expected)
        after = spent.after(rate, self.multiplier, clip)
        return replace(received, models=noised).keeping(self.name, vars(after))

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        # A mean of personal entries has no noise, and the average is written and evaluated.
        return replace(state, average=draft.state.average)

    def spent(self, state: State) -> Spent:
        """Return the differential privacy of a run so far."""
        memory = state.of(self.name)
        return Spent(**memory) if memory else Spent(self.clip)


def _own_part(parts: Parts, _: Devices | None) -> str:
    """Return a part outside raysim that draws clients, takes part in the sum, or reads facts of all clients."""
    schedule, server, method = parts.schedule, parts.server, parts.local.method
    found = (
        *((is_own(each) and each.overrides(*HOOKS), f"option {each}") for each in parts.folded),
        (is_own(schedule) or is_own(schedule.participation), f"schedule = {schedule}"),
        (is_own(server) and hasattr(server, "fitted"), f"the method `fitted` of server = {server}"),
        (is_own(method) and method.overrides("fitted"), f"the method `fitted` of local.method = {method}"),
        (is_own(parts), f"algorithm = {name_of(parts)!r}"),
    )
    return next((text for holds, text in found if holds), "")


@dataclass(frozen=True)
class Spent:
    """Differential privacy of a run so far: the memory of `Privacy`.

    Args:
        clip: C of the next round.
        events: mechanisms that ran, in order: rate, noise multiplier, and the number of rounds in a row.
    """

    clip: float
    events: tuple[tuple[float, float, int], ...] = ()

    def after(self, rate: float, noise: float, clip: float) -> Spent:
        """Return the state after one more round with a noised sum."""
        *before, last = self.events or ((rate, noise, 0),)
        if last[:2] != (rate, noise):
            before, last = [*before, last], (rate, noise, 0)
        return Spent(clip, (*before, (rate, noise, last[2] + 1)))
