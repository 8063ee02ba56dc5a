"""Settings of an algorithm's parts that conflict with others, by the name that users know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType

from algorithms.core.devices import Devices
from algorithms.core.returned import is_own
from algorithms.parts.arrivals import Arrivals, Drawn
from algorithms.parts.clustered import Clustered
from algorithms.parts.option import Option, Parts, Setting
from algorithms.parts.ordering import ORDER, engine_kind
from algorithms.parts.rules import AfterRound
from algorithms.parts.schedule import title_of
from algorithms.parts.server import Assign, WeightedMix, takes_updates
from algorithms.parts.weighting import ClientLoss, Equal, Samples, SamplesUsed, name_of_weighting

MEASURED = ("loss_after", "loss_received", "loss_rms", "score", "score_per_sample")
"""Entries of a report that are measured in evaluation."""


def virtual_time_of(parts: Parts, devices: Devices | None = None) -> str:
    """Return the setting that needs or sets the virtual time: a key, or devices; "" if none does."""
    participation = parts.schedule.participation
    key = participation.reporting.needs_virtual_time or (
        'algorithm.sampling = "oort"' if _is_oort(participation.by) else ""
    )
    return key or ("devices that are not always available" if devices is not None and devices.absent else "")


def _is_oort(by: object) -> bool:
    return isinstance(by, Option) and by.name == "oort"


def _personal(parts: Parts, _: Devices | None) -> str:
    update = parts.local.update
    stays = (*parts.sharing.stays, *(("state of local.update",) if update and update.personal else ()))
    return f"personal {', '.join(stays)}" if stays else ""


def _weighting(parts: Parts) -> str:
    name = name_of_weighting(parts.weighting)
    return f'weighting = "{name}"' if name else f"weighting = {parts.weighting}"


def _weights_above_one(parts: Parts, _: Devices | None) -> str:
    if not isinstance(parts.schedule, Arrivals):
        return "synchronous rounds"
    return _weighting(parts) if isinstance(parts.weighting, Samples | SamplesUsed | ClientLoss) else ""


def _weights_of_single_arrivals(parts: Parts, _: Devices | None) -> str:
    single = isinstance(parts.schedule, Arrivals) and parts.schedule.buffer == 1
    return f"{_weighting(parts)} of single arrivals" if single and type(parts.weighting) is not Equal else ""


def _measured(parts: Parts, _: Devices | None) -> str:
    needed = [name for name in parts.needs if name in MEASURED]
    return f"a part that needs {needed[0]!r}" if needed else ""


def _virtual_time(parts: Parts, devices: Devices | None) -> str:
    return virtual_time_of(parts, devices) if devices is not None else ""


def _freezing(parts: Parts, _: Devices | None) -> str:
    return "a later phase that freezes them" if parts.then and parts.then.local.statistics == "frozen" else ""


def _of_plain_rounds(parts: Parts, _: Devices | None) -> str:
    return next((f"option {option}" for option in parts.folded if not option.in_own_rounds), "")


def _work_of_its_own(parts: Parts, _: Devices | None) -> str:
    """Return an option outside raysim that changes what workers do, but not on the models' way to the server."""
    own = (each for each in parts.folded if each.name not in ORDER and not each.on_the_way)
    return next((f"option {option}" for option in own if option.overrides("wrap")), "")


def _left_out_by_arrivals(parts: Parts, _: Devices | None) -> str:
    """Return a user's option with a hook other than a `wrap` on the models' way to the server."""
    return _with_hooks(parts, lambda option: ("attend", *(() if option.on_the_way else ("wrap",)), "reduce", "publish"))


def _left_out_by_united_data(parts: Parts, _: Devices | None) -> str:
    """Return a user's option with a hook other than `publish`."""
    return _with_hooks(parts, lambda _: ("attend", "wrap", "reduce"))


def _with_hooks(parts: Parts, hooks_of: Callable[[Option], tuple[str, ...]]) -> str:
    for option in filter(is_own, parts.folded):
        for hook in hooks_of(option):
            # A subclass of the uplink, for one, keeps the hooks of raysim's class.
            if getattr(type(option), hook) is not getattr(engine_kind(option), hook):
                return f"option {option} with `{hook}`"
    return ""


def _another_round(parts: Parts, _: Devices | None) -> str:
    """Return the rounds of an algorithm that are not those of an option that carries some."""
    carried = [option.own_round for option in parts.folded if option.own_round is not None]
    return "rounds of its own" if any(each != parts.own_round for each in carried) else ""


def _is_weighted_mix(parts: Parts) -> bool:
    return isinstance(getattr(parts.server, "server", parts.server), WeightedMix)


SETTINGS: Mapping[str, Setting] = {
    "aggregate_every > 1": lambda a, _: f"aggregate_every = {a.every}" if a.every > 1 else "",
    "own rounds": lambda a, _: "rounds of its own" if a.has_own_round else "",
    "asynchronous arrivals": lambda a, _: "asynchronous arrivals" if isinstance(a.schedule, Arrivals) else "",
    "buffer of arrivals": lambda a, _: (
        "a buffer of arrivals" if isinstance(a.schedule, Arrivals) and a.schedule.buffer != 1 else ""
    ),
    "max_staleness": lambda a, _: (
        "algorithm.max_staleness" if isinstance(a.schedule, Arrivals) and isinstance(a.schedule.delay, Drawn) else ""
    ),
    "clusters": lambda a, _: (
        f"algorithm.clusters = {a.own_round.clusters}" if isinstance(a.own_round, Clustered) else ""
    ),
    "centralized": lambda a, _: "" if a.schedule.sends else "united data, as in centralized",
    "synchronous rounds of its own": lambda a, _: (
        "an algorithm with rounds of its own" if a.has_own_round and not isinstance(a.schedule, Arrivals) else ""
    ),
    'sampling = "poisson"': lambda a, _: (
        'algorithm.sampling = "poisson"' if a.schedule.participation.by == "poisson" else ""
    ),
    'sampling other than "poisson"': lambda a, _: (
        f"algorithm.sampling = {title_of(a.schedule.participation.by)!r}"
        if a.schedule.participation.by != "poisson"
        else ""
    ),
    "active < 1": lambda a, _: (
        f"algorithm.active = {a.schedule.participation.active}" if a.schedule.participation.active < 1 else ""
    ),
    "over > 1": lambda a, _: (
        f"algorithm.over = {a.schedule.participation.reporting.over}"
        if a.schedule.participation.reporting.over > 1
        else ""
    ),
    'late = "stale"': lambda a, _: (
        'algorithm.late = "stale"' if a.schedule.participation.reporting.late == "stale" else ""
    ),
    "weights by samples": lambda a, _: _weighting(a) if isinstance(a.weighting, Samples | SamplesUsed) else "",
    "weights that are not equal": lambda a, _: "" if type(a.weighting) is Equal else _weighting(a),
    "weights by reports": lambda a, _: "" if isinstance(a.weighting, Samples | SamplesUsed | Equal) else _weighting(a),
    "weights above one": _weights_above_one,
    "weights that stay with the clients": lambda a, _: (
        'sharing.weights = "personal"' if a.sharing.weights == "personal" else ""
    ),
    "personal batch-norm statistics": lambda a, _: (
        'sharing.statistics = "personal"' if a.sharing.statistics == "personal" else ""
    ),
    "personal state": _personal,
    'newcomer = "average"': lambda a, _: 'algorithm.newcomer = "average"' if a.sharing.newcomer == "average" else "",
    "server rule": lambda a, _: "" if isinstance(a.server, Assign) else f"server = {a.server}",
    "server rule that reads reports": lambda a, _: f"server = {a.server}" if takes_updates(type(a.server)) else "",
    "weighted-mix": lambda a, _: "server.rule = 'weighted-mix'" if _is_weighted_mix(a) else "",
    "server rule of the mean alone": lambda a, _: (
        "" if is_own(a.server) or _is_weighted_mix(a) else f"server = {a.server}"
    ),
    "weights of single arrivals": _weights_of_single_arrivals,
    "phase by reports": lambda a, _: "" if type(a.until) in (NoneType, AfterRound) else f"until = {a.until}",
    "later phase that freezes statistics": _freezing,
    'local.steps = "largest"': lambda a, _: "local.steps = 'largest'" if a.local.steps == "largest" else "",
    'local.statistics = "untracked"': lambda a, _: (
        'local.statistics = "untracked"' if a.local.statistics == "untracked" else ""
    ),
    "losses measured after an update": _measured,
    "option of plain rounds": _of_plain_rounds,
    "option with work of its own": _work_of_its_own,
    "option with a hook that arrivals leave out": _left_out_by_arrivals,
    "option with a hook that united data leave out": _left_out_by_united_data,
    "another round function": _another_round,
    "round function": lambda a, _: "" if a.own_round is None else "rounds of its own",
    "virtual time of the devices": _virtual_time,
}
"""Settings of parts that conflict with others, by name; options name their own."""
