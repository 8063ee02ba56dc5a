"""Settings that make no sense together, as one table: the checks, their errors and the page on them come from it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError
from algorithms.parts.option import Conflict, Option, Parts
from algorithms.parts.ordering import place
from algorithms.parts.settings import SETTINGS


def check_conflicts(parts: Parts, devices: Devices | None = None) -> None:
    """Raise InputError for the first conflict of an algorithm's parts and options.

    Conflicts that a key can mend are told together, a line for each key. Others are told one by one, because most of
    them vanish with the first.

    Args:
        parts: parts of a phase.
        devices: devices of the clients, which may set the virtual time.
    """
    of_options = {name: text for option in parts.folded for name, text in option.settings.items()}

    @cache
    def found(setting: str) -> str:
        has = SETTINGS.get(setting) or of_options.get(setting, "")
        return has if isinstance(has, str) else has(parts, devices)

    lines: dict[str, str] = {}
    for one, other, must, remedy in conflicts_of(type(option) for option in parts.folded):
        is_set = remedy.startswith("set ")
        if (is_set or not lines) and (first := found(one)) and (second := found(other)):
            lines.setdefault(first, f"{first} with {second}: must {must}; {remedy}")
            if not is_set:
                break
    if lines:
        line, *others = lines.values()
        raise InputError(line, others)


def conflicts_of(options: Iterable[type[Option]]) -> tuple[Conflict, ...]:
    """Return all pairs that are refused, in the order of the checks: of the parts, then of options, of virtual time."""
    return (*PAIRS, *(each for option in sorted(options, key=place) for each in option.conflicts), *LATER)


PAIRS: tuple[Conflict, ...] = (
    Conflict(
        *("weights by samples", "aggregate_every > 1"),
        "be equal if models are redistributed, because each has trained on several clients",
        'set algorithm.weighting = "equal", or aggregate_every = 1',
    ),
    Conflict(
        *("weights that stay with the clients", "aggregate_every > 1"),
        'be "shared" if models are redistributed, because nothing else travels',
        "use aggregate_every = 1",
    ),
    Conflict(
        *("server rule", "weights that stay with the clients"),
        "be Assign() if no weights are sent",
        "remove the table [server]",
    ),
    Conflict(
        *("uplink.feedback", "asynchronous arrivals"),
        "be false, because overlapping client updates have no order in a client's residual",
        "use a synchronous algorithm",
    ),
    Conflict(
        *("personal state", "asynchronous arrivals"),
        "be shared, because overlapping client updates have no order in a client's personal state",
        "use a synchronous algorithm, or epochs or steps in place of local.batches",
    ),
    Conflict(
        *("weighted-mix", "weights above one"),
        "be used with single arrivals of weight at most 1, as in fedasync",
        'set server.rule = "mix"',
    ),
    Conflict(
        *("server rule of the mean alone", "weights of single arrivals"),
        "be 'weighted-mix', because the mean of one model is the same at any weight",
        'set server.rule = "weighted-mix", or algorithm.staleness = "constant"',
    ),
    Conflict(
        *("server rule that reads reports", "buffer of arrivals"),
        "not read the clients' reports, because the buffer holds only their sum",
        "set algorithm.buffer = 1, or use a rule without `updates`",
    ),
    Conflict(
        *("aggregate_every > 1", 'sampling = "poisson"'),
        "be 1, because a cohort may have more clients than there are travelling models",
        'set algorithm.sampling = "uniform"',
    ),
    Conflict(
        *('local.statistics = "untracked"', "personal batch-norm statistics"),
        'be "batch", because untracked personal statistics never change',
        'set local.statistics = "batch"',
    ),
    Conflict(
        *('local.statistics = "untracked"', "later phase that freezes statistics"),
        'be "batch", because there is nothing to freeze',
        'set local.statistics = "batch"',
    ),
    Conflict(
        *('local.statistics = "untracked"', "losses measured after an update"),
        'be "batch", because the trained model has only its initial statistics',
        'set local.statistics = "batch"',
    ),
    Conflict(
        *("aggregate_every > 1", "candidates"),
        "be 1, because between aggregations there is no model for their losses",
        "leave algorithm.candidates out",
    ),
    Conflict(
        *('local.statistics = "untracked"', "candidates"),
        'be "batch", because the global model has only its initial statistics',
        "leave algorithm.candidates out",
    ),
    Conflict(
        *('local.statistics = "untracked"', "clusters"),
        'be "batch", because clients choose by losses, and the models of clusters have only their initial statistics',
        'set local.statistics = "batch"',
    ),
)
"""Pairs of settings of the parts."""

LATER: tuple[Conflict, ...] = (
    Conflict(
        *("virtual time of the devices", "max_staleness"),
        "not be used together, because the time of drawn staleness counts arrivals",
        "set concurrency instead",
    ),
    Conflict(
        *("virtual time of the devices", "synchronous rounds of its own"),
        "not be used together, because all clients of such a round exchange models at once",
        "use another algorithm",
    ),
    Conflict(
        *("virtual time of the devices", "candidates"),
        "not be used together, because candidates would be asked outside virtual time",
        'set algorithm.sampling = "oort" instead',
    ),
    Conflict(
        *("oort", "active < 1"),
        "not be used together, because the devices say who is there",
        "use devices that are not always available instead",
    ),
    Conflict(
        *("oort", "aggregate_every > 1"),
        "not be used together, because a model that travels has no utility of its own",
        'set algorithm.sampling = "uniform"',
    ),
    Conflict(
        *("over > 1", 'sampling = "poisson"'),
        "not be used together, because the cohort's size varies anyway",
        "raise algorithm.fraction instead",
    ),
    Conflict(
        *("over > 1", "aggregate_every > 1"),
        "not be used together, because each travelling model goes to one client",
        "remove one of the two",
    ),
    Conflict(
        *('late = "stale"', "aggregate_every > 1"),
        "not be used together, because a late model has travelled on",
        'set algorithm.late = "drop"',
    ),
    Conflict(
        *('late = "stale"', "option that looks at single models"),
        "not be used together, because late models are added to a sum",
        'set algorithm.late = "drop"',
    ),
    Conflict(
        *('late = "stale"', "server rule that reads reports"),
        "not be used together, because that rule reads the reports of one cohort",
        'set algorithm.late = "drop"',
    ),
    Conflict(
        *('late = "stale"', 'newcomer = "average"'),
        "not be used together, because the average is that of one cohort",
        'set algorithm.newcomer = "initial"',
    ),
    Conflict(
        *("option of plain rounds", "round function"),
        "be left out, because such rounds do not carry it out",
        "remove it, or use a method of plain rounds",
    ),
    Conflict(
        *("option with a hook that arrivals leave out", "asynchronous arrivals"),
        "have no hook but a `wrap` that is `on_the_way`, because arrivals call no other",
        "remove it, or use a synchronous algorithm",
    ),
    Conflict(
        *("option with a hook that united data leave out", "centralized"),
        "have no hook but `publish`, because united data call no other",
        "remove it, or use another algorithm",
    ),
    Conflict(
        *("option with work of its own", 'late = "stale"'),
        "not be used together, because late updates do not have that work",
        'set algorithm.late = "drop", or set `on_the_way` in its class',
    ),
)
"""Pairs that are looked for after those of the options."""
