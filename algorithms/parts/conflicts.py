"""Settings that make no sense together, as one table: the checks, their errors and the page on them come from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError
from algorithms.parts.arrivals import Arrivals, Drawn
from algorithms.parts.option import ORDER, Option, Parts
from algorithms.parts.rules import AfterRound
from algorithms.parts.server import Assign, takes_updates
from algorithms.parts.staleness import WeightedMix
from algorithms.parts.weighting import ClientLoss, Equal, Samples, SamplesUsed

MEASURED = ("loss_after", "loss_received", "loss_rms", "score", "score_per_sample")
"""Entries of a report that are measured in evaluation."""

Setting: TypeAlias = Callable[[Parts, Devices | None], str]
"""Return a setting as the user knows it; "" if the parts and the devices do not have it."""


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


def clock_of(parts: Parts, devices: Devices | None = None) -> str:
    """Return the setting that needs or sets a clock: a key, or devices; "" if none does."""
    sample = parts.schedule.sample
    key = sample.reporting.needs_clock or ('algorithm.sampling = "oort"' if _is_oort(sample.by) else "")
    return key or ("devices that are not always available" if devices is not None and devices.absent else "")


def _option(parts: Parts, name: str) -> Option | None:
    return next((option for option in parts.folded if option.name == name), None)


def _is_oort(by: object) -> bool:
    return isinstance(by, Option) and by.name == "oort"


def _colludes(parts: Parts) -> bool:
    return bool(getattr(_option(parts, "attack"), "colludes", False))


def _robust(parts: Parts, _: Devices | None) -> str:
    rule = getattr(_option(parts, "aggregate"), "rule", None)
    return "" if rule is None or type(rule).__name__ == "Mean" else f"server.aggregate = {rule}"


def _personal(parts: Parts, _: Devices | None) -> str:
    update = parts.local.update
    stays = (*parts.sharing.stays, *(("state of local.update",) if update and update.personal else ()))
    return f"personal {', '.join(stays)}" if stays else ""


def _weights_above_one(parts: Parts, _: Devices | None) -> str:
    if not isinstance(parts.schedule, Arrivals):
        return f"schedule = {parts.schedule}"
    return f"weighting = {parts.weighting}" if isinstance(parts.weighting, Samples | SamplesUsed | ClientLoss) else ""


def _measured(parts: Parts, _: Devices | None) -> str:
    needed = [name for name in parts.needs if name in MEASURED]
    return f"a part that needs {needed[0]!r}" if needed else ""


def _clock(parts: Parts, devices: Devices | None) -> str:
    return clock_of(parts, devices) if devices is not None else ""


def _freezing(parts: Parts, _: Devices | None) -> str:
    return "a later phase that freezes them" if parts.then and parts.then.local.statistics == "frozen" else ""


def _of_plain_rounds(parts: Parts, _: Devices | None) -> str:
    return next((f"option {option}" for option in parts.folded if not option.in_own_rounds), "")


def _work_of_its_own(parts: Parts, _: Devices | None) -> str:
    """Return an option outside raysim that changes what workers do, but not on the models' way to the server."""
    own = (each for each in parts.folded if each.name not in ORDER and not each.on_the_way)
    return next((f"option {option}" for option in own if type(option).wrap is not Option.wrap), "")


def _text(holds: Callable[[Parts], object], text: Callable[[Parts], str]) -> Setting:
    """Return the setting with a text if something holds."""
    return lambda parts, _: text(parts) if holds(parts) else ""


def _of(name: str, text: Callable[[Option], str]) -> Setting:
    """Return the setting that is an option."""
    return lambda parts, _: "" if (found := _option(parts, name)) is None else text(found)


SETTINGS: Mapping[str, Setting] = {
    "aggregate_every > 1": _text(lambda a: a.every > 1, lambda a: f"aggregate_every = {a.every}"),
    "own rounds": _text(lambda a: a.has_own_round, lambda a: "rounds of its own"),
    "asynchronous arrivals": _text(lambda a: isinstance(a.schedule, Arrivals), lambda a: "asynchronous arrivals"),
    "buffer of arrivals": _text(
        lambda a: isinstance(a.schedule, Arrivals) and a.schedule.buffer != 1, lambda a: "a buffer of arrivals"
    ),
    "max_staleness": _text(
        lambda a: isinstance(a.schedule, Arrivals) and isinstance(a.schedule.delay, Drawn),
        lambda a: "algorithm.max_staleness",
    ),
    "centralized": _text(lambda a: not a.schedule.sends, lambda a: "united data, as in centralized"),
    "synchronous rounds of its own": _text(
        lambda a: a.has_own_round and not isinstance(a.schedule, Arrivals),
        lambda a: "an algorithm with rounds of its own",
    ),
    'sampling = "poisson"': _text(
        lambda a: a.schedule.sample.by == "poisson", lambda a: 'algorithm.sampling = "poisson"'
    ),
    'sampling other than "poisson"': _text(
        lambda a: a.schedule.sample.by != "poisson", lambda a: f"algorithm.sampling = {a.schedule.sample.by!r}"
    ),
    "active < 1": _text(
        lambda a: a.schedule.sample.active < 1, lambda a: f"algorithm.active = {a.schedule.sample.active}"
    ),
    "over > 1": _text(
        lambda a: a.schedule.sample.reporting.over > 1, lambda a: f"algorithm.over = {a.schedule.sample.reporting.over}"
    ),
    'late = "stale"': _text(
        lambda a: a.schedule.sample.reporting.late == "stale", lambda a: 'algorithm.late = "stale"'
    ),
    "weights by samples": _text(
        lambda a: isinstance(a.weighting, Samples | SamplesUsed), lambda a: f"weighting = {a.weighting}"
    ),
    "weights that are not equal": _text(
        lambda a: not isinstance(a.weighting, Equal), lambda a: f"weighting = {a.weighting}"
    ),
    "weights by reports": _text(
        lambda a: not isinstance(a.weighting, Samples | SamplesUsed | Equal), lambda a: f"weighting = {a.weighting}"
    ),
    "weights above one": _weights_above_one,
    "weights that stay with the clients": _text(
        lambda a: a.sharing.weights == "personal", lambda a: 'sharing.weights = "personal"'
    ),
    "personal batch-norm statistics": _text(
        lambda a: a.sharing.statistics == "personal", lambda a: 'sharing.statistics = "personal"'
    ),
    "personal state": _personal,
    'newcomer = "average"': _text(
        lambda a: a.sharing.newcomer == "average", lambda a: 'algorithm.newcomer = "average"'
    ),
    "server rule": _text(lambda a: not isinstance(a.server, Assign), lambda a: f"server = {a.server}"),
    "server rule that reads reports": _text(lambda a: takes_updates(type(a.server)), lambda a: f"server = {a.server}"),
    "weighted-mix": _text(
        lambda a: isinstance(getattr(a.server, "server", a.server), WeightedMix),
        lambda a: "server.rule = 'weighted-mix'",
    ),
    "phase by reports": _text(
        lambda a: a.until is not None and not isinstance(a.until, AfterRound), lambda a: f"until = {a.until}"
    ),
    "later phase that freezes statistics": _freezing,
    'local.steps = "largest"': _text(lambda a: a.local.steps == "largest", lambda a: "local.steps = 'largest'"),
    'local.statistics = "untracked"': _text(
        lambda a: a.local.statistics == "untracked", lambda a: 'local.statistics = "untracked"'
    ),
    "losses measured after an update": _measured,
    "candidates": _of("candidates", lambda each: "algorithm.candidates"),
    "oort": _of("oort", lambda each: 'algorithm.sampling = "oort"'),
    'start = "score"': _of(
        "importance", lambda each: 'algorithm.start = "score"' if getattr(each, "start", "") == "score" else ""
    ),
    "attack": _of("attack", lambda each: f"attack = {each}"),
    "colluding attack": lambda parts, _: f"attack = {_option(parts, 'attack')}" if _colludes(parts) else "",
    "robust rule": _robust,
    "attack or robust rule": lambda parts, _: (
        "an attack or a robust aggregation" if _option(parts, "attack") or _option(parts, "aggregate") else ""
    ),
    "uplink": _of("uplink", lambda each: f"uplink = {each}"),
    "uplink.feedback": _of("uplink", lambda each: "uplink.feedback = true" if getattr(each, "feedback", False) else ""),
    "downlink": _of("downlink", lambda each: "[downlink]"),
    "privacy": _of("privacy", lambda each: "[privacy]"),
    "option of plain rounds": _of_plain_rounds,
    "option with work of its own": _work_of_its_own,
    "round function": _text(lambda a: a.own_round is not None, lambda a: "rounds of its own"),
    "clock of the devices": _clock,
}
"""Settings that conflict with others, by name."""

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
