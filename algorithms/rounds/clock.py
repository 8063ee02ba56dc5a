"""Algorithms in virtual time: which rounds need the clock of the devices, and which parts it contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError
from algorithms.options.choice import PowerOfChoice
from algorithms.options.importance import Importance
from algorithms.options.oort import Oort
from algorithms.parts.arrivals import Arrivals, Drawn
from algorithms.parts.server import takes_updates

if TYPE_CHECKING:
    from algorithms.parts.algorithm import Algorithm


def on_clock(algorithm: Algorithm, devices: Devices | None) -> bool:
    """Return whether the devices decide who takes part in a round."""
    sample = algorithm.schedule.sample
    return devices is not None and (devices.absent or bool(sample.reporting.needs_clock) or isinstance(sample.by, Oort))


def check_clock(algorithm: Algorithm, devices: Devices | None) -> None:
    """Refuse an algorithm that contradicts the clock of the devices, in any phase.

    Raises:
        InputError: a setting needs devices and there are none, or a part does not go with virtual time.
    """
    for phase in algorithm.phases:
        sample = phase.schedule.sample
        key = sample.reporting.needs_clock or ('algorithm.sampling = "oort"' if isinstance(sample.by, Oort) else "")
        if devices is None and key:
            raise InputError(
                f"{key} without [devices]: must have devices, which set the clock; add the table [devices]"
            )
        if on_clock(phase, devices):
            _refuse(_parts(phase, key or "devices that are not always available"))
            _refuse(_over(phase))
            _refuse(_stale(phase))


Pair: TypeAlias = tuple[bool, str, str, str]
"""Whether two settings stand together that must not, the settings, and the remedy."""


def _refuse(pairs: Sequence[Pair]) -> None:
    for wrong, first, other, why in pairs:
        if wrong:
            raise InputError(f"{first} with {other}: must not be used together; {why}")


def _parts(algorithm: Algorithm, what: str) -> Sequence[Pair]:
    """Return the parts that do not go with the clock; `what` sets it."""
    schedule, sample, every = algorithm.schedule, algorithm.schedule.sample, algorithm.every
    others = {option.name for option in algorithm.options}
    drawn = isinstance(schedule, Arrivals) and isinstance(schedule.delay, Drawn)
    return (
        (drawn, what, "algorithm.max_staleness", "set concurrency instead, because this clock counts arrivals"),
        (
            algorithm.has_own_round and not isinstance(schedule, Arrivals),
            what,
            "an algorithm with rounds of its own",
            "use another algorithm, because all clients of such a round exchange with the server at once",
        ),
        ("downlink" in others, what, "[downlink]", "remove one of the two, because it sends whole models"),
        ("privacy" in others, what, "[privacy]", "remove one of the two, because the accounting assumes q"),
        (
            isinstance(sample.by, PowerOfChoice),
            what,
            "algorithm.candidates",
            'set algorithm.sampling = "oort" instead, because candidates would be asked without a clock',
        ),
        (
            isinstance(sample.by, Importance) and sample.by.start == "score",
            what,
            'algorithm.start = "score"',
            'set algorithm.start = "equal", because absent clients cannot be scored',
        ),
        (
            isinstance(sample.by, Oort) and sample.active < 1,
            what,
            f"algorithm.active = {sample.active}",
            "use devices that are not always available instead",
        ),
        (
            every > 1 and isinstance(sample.by, Oort),
            what,
            f"aggregate_every = {every}",
            'set algorithm.sampling = "uniform", because a model that travels has no utility of its own',
        ),
    )


def _over(algorithm: Algorithm) -> Sequence[Pair]:
    """Return what does not go with over-selection."""
    sample, every = algorithm.schedule.sample, algorithm.every
    reporting = sample.reporting
    return (
        (
            sample.by == "poisson" and reporting.over > 1,
            f"algorithm.over = {reporting.over}",
            'algorithm.sampling = "poisson"',
            "raise algorithm.fraction instead",
        ),
        (
            every > 1 and reporting.over > 1,
            f"algorithm.over = {reporting.over}",
            f"aggregate_every = {every}",
            "remove one of the two, because each travelling model goes to one client",
        ),
    )


def _stale(algorithm: Algorithm) -> Sequence[Pair]:
    """Return what does not go with late updates that count."""
    stale, every, server = algorithm.schedule.sample.reporting.late == "stale", algorithm.every, algorithm.server
    return (
        (every > 1 and stale, 'algorithm.late = "stale"', f"aggregate_every = {every}", 'set algorithm.late = "drop"'),
        (
            stale and bool({"attack", "aggregate"} & {option.name for option in algorithm.options}),
            'algorithm.late = "stale"',
            "an attack or a robust aggregation",
            'set algorithm.late = "drop", because late models are added to a sum',
        ),
        (
            stale and takes_updates(type(server)),
            'algorithm.late = "stale"',
            f"server = {server}",
            'set algorithm.late = "drop", because that rule reads the reports of one cohort',
        ),
        (
            stale and algorithm.sharing.newcomer == "average",
            'algorithm.late = "stale"',
            'algorithm.newcomer = "average"',
            'set algorithm.newcomer = "initial"',
        ),
    )
