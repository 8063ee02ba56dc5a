"""Settings of an algorithm's parts that conflict with others, by the name that users know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType

from algorithms.core.devices import Devices
from algorithms.core.returned import is_own
from algorithms.parts.arrivals import Arrivals, Drawn
from algorithms.parts.clustered import Clustered
from algorithms.parts.option import ORDER, Option, Parts, Setting
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
    own = (option for option in parts.folded if is_own(option))
    found = (f"option {option} with `{hook}`" for option in own for hook in hooks_of(option) if option.overrides(hook))
    return next(found, "")


def _another_round(parts: Parts, _: Devices | None) -> str:
    """Return the rounds of an algorithm that are not those of an option that carries some."""
    carried = [option.own_round for option in parts.folded if option.own_round is not None]
    return "rounds of its own" if any(each != parts.own_round for each in carried) else ""


def _text(holds: Callable[[Parts], object], text: Callable[[Parts], str]) -> Setting:
    """Return the setting with a text if something holds."""
    return lambda parts, _: text(parts) if holds(parts) else ""


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
    "clusters": _text(
        lambda a: isinstance(a.own_round, Clustered), lambda a: f"algorithm.clusters = {a.own_round.clusters}"
    ),
    "centralized": _text(lambda a: not a.schedule.sends, lambda a: "united data, as in centralized"),
    "synchronous rounds of its own": _text(
        lambda a: a.has_own_round and not isinstance(a.schedule, Arrivals),
        lambda a: "an algorithm with rounds of its own",
    ),
    'sampling = "poisson"': _text(
        lambda a: a.schedule.participation.by == "poisson", lambda a: 'algorithm.sampling = "poisson"'
    ),
    'sampling other than "poisson"': _text(
        lambda a: a.schedule.participation.by != "poisson",
        lambda a: f"algorithm.sampling = {title_of(a.schedule.participation.by)!r}",
    ),
    "active < 1": _text(
        lambda a: a.schedule.participation.active < 1, lambda a: f"algorithm.active = {a.schedule.participation.active}"
    ),
    "over > 1": _text(
        lambda a: a.schedule.participation.reporting.over > 1,
        lambda a: f"algorithm.over = {a.schedule.participation.reporting.over}",
    ),
    'late = "stale"': _text(
        lambda a: a.schedule.participation.reporting.late == "stale", lambda a: 'algorithm.late = "stale"'
    ),
    "weights by samples": _text(lambda a: isinstance(a.weighting, Samples | SamplesUsed), _weighting),
    "weights that are not equal": _text(lambda a: type(a.weighting) is not Equal, _weighting),
    "weights by reports": _text(lambda a: not isinstance(a.weighting, Samples | SamplesUsed | Equal), _weighting),
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
    "server rule of the mean alone": _text(
        lambda a: not (is_own(a.server) or isinstance(getattr(a.server, "server", a.server), WeightedMix)),
        lambda a: f"server = {a.server}",
    ),
    "weights of single arrivals": _text(
        lambda a: isinstance(a.schedule, Arrivals) and a.schedule.buffer == 1 and type(a.weighting) is not Equal,
        lambda a: f"{_weighting(a)} of single arrivals",
    ),
    "phase by reports": _text(lambda a: type(a.until) not in (NoneType, AfterRound), lambda a: f"until = {a.until}"),
    "later phase that freezes statistics": _freezing,
    'local.steps = "largest"': _text(lambda a: a.local.steps == "largest", lambda a: "local.steps = 'largest'"),
    'local.statistics = "untracked"': _text(
        lambda a: a.local.statistics == "untracked", lambda a: 'local.statistics = "untracked"'
    ),
    "losses measured after an update": _measured,
    "option of plain rounds": _of_plain_rounds,
    "option with work of its own": _work_of_its_own,
    "option with a hook that arrivals leave out": _left_out_by_arrivals,
    "option with a hook that united data leave out": _left_out_by_united_data,
    "another round function": _another_round,
    "round function": _text(lambda a: a.own_round is not None, lambda a: "rounds of its own"),
    "virtual time of the devices": _virtual_time,
}
"""Settings of parts that conflict with others, by name; options name their own."""
