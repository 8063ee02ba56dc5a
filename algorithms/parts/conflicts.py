"""Settings that make no sense together, as one table: the checks, their errors and the page on them come from it."""

from __future__ import annotations

from typing import NamedTuple

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError
from algorithms.parts.option import Parts
from algorithms.parts.settings import SETTINGS


class Conflict(NamedTuple):
    """Two settings that make no sense together.

    Args:
        one: setting that the error names first, a key of `SETTINGS`.
        other: setting that the error names second.
        must: duty of the first one, with the reason.
        remedy: change that makes sense.
    """

    one: str
    other: str
    must: str
    remedy: str


def check_conflicts(parts: Parts, devices: Devices | None = None) -> None:
    """Raise InputError for the first conflict of an algorithm's parts and options.

    Args:
        parts: parts of a phase.
        devices: devices of the clients, which may set the clock.
    """
    for one, other, must, remedy in CONFLICTS:
        first = SETTINGS[one](parts, devices)
        if first and (second := SETTINGS[other](parts, devices)):
            raise InputError(f"{first} with {second}: must {must}; {remedy}")


MEAN = 'set server.aggregate = "mean", or use another algorithm'
HONEST = "remove [attack], or use another algorithm"
WHOLE = "remove [downlink], or use another algorithm"

CONFLICTS: tuple[Conflict, ...] = (
    Conflict(
        *("weights by samples", "aggregate_every > 1"),
        "be Equal() if models are redistributed, because each has trained on several clients",
        "use Equal() or aggregate_every = 1",
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
        *("colluding attack", "uplink"),
        "be used without an uplink, because its attackers only know each other's updates before they are sent",
        HONEST,
    ),
    Conflict(*("robust rule", "own rounds"), "be used with a cohort that trains at once", MEAN),
    Conflict(
        *("robust rule", "aggregate_every > 1"),
        "be used with aggregate_every = 1, because a model that visits many clients has met an attacker",
        MEAN,
    ),
    Conflict(*("robust rule", "weights by reports"), "be used with weights by samples, which it ignores", MEAN),
    Conflict(*("robust rule", "weights that stay with the clients"), "be used with weights that are sent", MEAN),
    Conflict(*("attack", "own rounds"), "be used with a cohort that trains at once", HONEST),
    Conflict(
        *("colluding attack", "aggregate_every > 1"),
        "be used with aggregate_every = 1, because a model that visits many clients has met an attacker",
        HONEST,
    ),
    Conflict(*("attack", "weights that stay with the clients"), "be used with weights that are sent", HONEST),
    *(
        Conflict("uplink", other, "be empty, because no client sends its weights", "remove [uplink]")
        for other in ("centralized", "weights that stay with the clients")
    ),
    Conflict(
        *("uplink.feedback", 'newcomer = "average"'),
        'be "initial", because a newcomer owes the server nothing',
        'set algorithm.newcomer = "initial"',
    ),
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
        "set algorithm.fraction to the product of both",
    ),
    Conflict(
        *("weights that are not equal", "privacy"),
        "be Equal(), because a weight scales a clipped change",
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
        *("attack or robust rule", "privacy"),
        "be left out, because the noise is for a sum of clipped changes",
        "remove one of the two",
    ),
    Conflict(*("downlink", "own rounds"), "be used with rounds that begin with one global model", WHOLE),
    Conflict(
        *("downlink", "aggregate_every > 1"),
        "be used with aggregate_every = 1, because models travel from client to client",
        WHOLE,
    ),
    Conflict(*("downlink", "weights that stay with the clients"), "be left out, because no weights are sent", WHOLE),
    Conflict(*("downlink", "candidates"), "be left out, because all candidates receive the whole model", WHOLE),
    Conflict(
        *("clock of the devices", "max_staleness"),
        "not be used together, because this clock counts arrivals",
        "set concurrency instead",
    ),
    Conflict(
        *("clock of the devices", "synchronous rounds of its own"),
        "not be used together, because all clients of such a round exchange with the server at once",
        "use another algorithm",
    ),
    Conflict(
        *("clock of the devices", "downlink"),
        "not be used together, because it sends whole models",
        "remove one of the two",
    ),
    Conflict(
        *("clock of the devices", "privacy"),
        "not be used together, because the accounting assumes q",
        "remove one of the two",
    ),
    Conflict(
        *("clock of the devices", "candidates"),
        "not be used together, because candidates would be asked without a clock",
        'set algorithm.sampling = "oort" instead',
    ),
    Conflict(
        *("clock of the devices", 'start = "score"'),
        "not be used together, because absent clients cannot be scored",
        'set algorithm.start = "equal"',
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
        *('late = "stale"', "attack or robust rule"),
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
        "remove it, or use a synchronous algorithm",
    ),
    Conflict(
        *("option with work of its own", 'late = "stale"'),
        "not be used together, because late updates do not have that work",
        'set algorithm.late = "drop", or set `on_the_way` in its class',
    ),
)
"""All pairs that are refused, in the order in which they are looked for."""
