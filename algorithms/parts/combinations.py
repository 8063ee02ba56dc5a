"""Mistakes of an algorithm's parts that are no pair of settings; for pairs see `algorithms.parts.conflicts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from inspect import signature

from algorithms.core.errors import InputError
from algorithms.core.report import REPORTED
from algorithms.core.returned import Returned, encodes, is_own, name_of, names_of
from algorithms.parts.arrivals import Arrivals
from algorithms.parts.conflicts import LATER, PAIRS
from algorithms.parts.option import Conflict, Option, Parts
from algorithms.parts.schedule import Rounds
from algorithms.parts.settings import SETTINGS
from algorithms.training.local import Local
from algorithms.training.method import RESERVED_SLOTS


def check_parts(parts: Parts) -> None:
    """Raise InputError for a slot without a use, arrivals in the engine's round, an unnamed need, or unequal phases."""
    for check in (
        _check_uses_of_slots,
        _check_arrivals,
        _check_needs,
        _check_phases,
        _check_cohort_options,
        _check_own_round,
        _check_local,
        _check_own_slots,
    ):
        check(parts)


def _check_uses_of_slots(parts: Parts) -> None:
    local, sharing = parts.local, parts.sharing
    slots = [slot for option in parts.options for slot in option.slots]
    unused = [slot for slot in sharing.slots if slot not in (*local.slots, *slots)]
    if "momentum" in unused[:1]:
        raise InputError(
            f"sharing.slots = 'momentum' with local.momentum = {local.momentum}: must have momentum to maintain; "
            "set local.momentum = 0.9, or leave algorithm.maintained_momentum out"
        )
    if unused:
        known = tuple(local.slots)
        raise InputError(
            f"sharing.slots = {unused[0]!r}: must be one of {known}, the slots of this `local`; leave the slot out"
        )


def _check_arrivals(parts: Parts) -> None:
    if not isinstance(parts.schedule, Rounds) and not parts.has_own_round:
        raise InputError(
            f"schedule = {parts.schedule} without own_round: must have a round of its own, because the engine's is "
            "synchronous; use own_round = start_arrivals for arrivals, or Rounds"
        )


def _check_needs(parts: Parts) -> None:
    """Try the weighting on a report without further entries; an own one may keep nothing on itself."""
    weighting = parts.weighting
    given = (*REPORTED, "staleness") if isinstance(parts.schedule, Arrivals) else REPORTED
    report = dict.fromkeys((*given, *parts.needs), 1.0)
    try:
        if is_own(weighting):
            own = Returned(f"weighting = {name_of(weighting)!r}", weighting)
            own.tried(partial(weighting, report), "compute it from the report alone")
        else:
            weighting(report)
    except KeyError as error:
        raise InputError(
            f"weighting = {weighting}: must read only {', '.join(given)} and the entries named by its "
            f"property `needs`, and reads {error}; name it there"
        ) from None


def _check_phases(parts: Parts) -> None:
    if parts.then is not None and parts.then.options != parts.options:
        raise InputError(
            f"options = {parts.options} before a phase with {parts.then.options}: must be the same in all phases, "
            "because they are of the whole run; use `Algorithm.having` on the algorithm with all its phases"
        )


def _check_cohort_options(parts: Parts) -> None:
    for option in parts.options:
        if option.draws_cohort:
            raise InputError(
                f"option {option}: must be given to the schedule, which draws by it; write Participation(by={option})"
            )


def _check_own_round(parts: Parts) -> None:
    try:
        if parts.own_round is not None:
            signature(parts.own_round).bind(None, None, None, last=False)
    except TypeError as error:
        raise InputError(
            f"own_round = {name_of(parts.own_round)}: must take (state, algorithm, fleet, *, last), and has a {error}; "
            "return a PendingRound, whose `finish` gives the state after the round"
        ) from None


def _check_local(parts: Parts) -> None:
    if type(parts.local) is not Local:
        raise InputError(
            f"local = {name_of(parts.local)}: must be a Local and no subclass, because what a method adds to each step "
            "is a Method; write Local(method=...)"
        )


def _check_own_slots(parts: Parts) -> None:
    """Refuse a slot of a user's own method or option under a name of other values, or one that no entry can have."""
    method, options = parts.local.method, parts.options
    listed = [*names_of(method, "personal"), *names_of(method, "shared")]
    own = *listed, *(method.slots.keys() - {*listed})
    slots: list[tuple[str, str, object]] = [(f"local.method = {method}", slot, method) for slot in own]
    slots += [(f"option {option}", slot, option) for option in options for slot in option.slots]
    taken = {*RESERVED_SLOTS, *(slot for _, slot, part in slots if not is_own(part))}
    for text, slot, part in slots:
        if is_own(part) and (not encodes(slot) or "/" in slot or slot in taken):
            raise InputError(
                f"{text} with the slot {slot!r}: must be a text without a slash, and none of "
                f"{', '.join(sorted(taken, key=str))}, which have other values; rename it"
            )
        taken.add(slot)


def check_declared(parts: Parts) -> None:
    """Raise InputError for the first declaration of a user's own option that is not of its kind, or never counts."""
    for option in filter(is_own, parts.folded):
        names_of(option, "columns")
        _check_texts(option)
        paired = {name for each in (*PAIRS, *LATER, *_conflicts(_kinds(Option))) for name in each[:2]}
        for name in option.settings.keys() - paired - {option.name}:
            raise _unknown(option, "settings", name, "its `name`, or a setting of a pair", paired)
        ours = {name for each in (*PAIRS, *LATER, *_conflicts(_ours())) for name in each[:2]}
        known = {*SETTINGS, *ours, *filter(encodes, (kind.name for kind in _kinds(Option)))}
        known |= {name for each in parts.folded for name in each.settings}
        for name in (name for each in option.conflicts for name in each[:2] if name not in known):
            raise _unknown(option, "conflicts", name, "a setting that parts or options have", known)


def _kinds(kind: type[Option]) -> Iterator[type[Option]]:
    """Yield the classes derived from one, and those derived from them."""
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


def _ours() -> Iterator[type[Option]]:
    return (kind for kind in _kinds(Option) if kind.__module__.startswith("algorithms."))


def _conflicts(kinds: Iterable[type[Option]]) -> Iterator[Conflict]:
    """Yield the pairs that some classes declare; one of another option may be no pair, which is refused there."""
    for kind in kinds:
        if isinstance(kind.conflicts, tuple):
            yield from filter(_is_pair, kind.conflicts)


def _is_pair(conflict: object) -> bool:
    return isinstance(conflict, tuple) and len(conflict) == len(Conflict._fields) and all(map(encodes, conflict))


def _check_texts(option: Option) -> None:
    pairs, settings = option.conflicts, option.settings
    if not isinstance(pairs, tuple | list) or not all(map(_is_pair, pairs)):
        wrong = next((each for each in pairs if not _is_pair(each)), "") if isinstance(pairs, tuple | list) else pairs
        raise InputError(
            f"option {option}: its `conflicts` must be a tuple of Conflict(one, other, must, remedy), each a text, and "
            f"has {wrong!r:.80}; correct it"
        )
    if not isinstance(settings, Mapping) or not all(map(encodes, settings)):
        raise InputError(f"option {option}: its `settings` must be texts by name, and are {settings!r:.80}; correct it")
    for name, text in settings.items():
        if not callable(text) and not encodes(text):
            raise InputError(
                f"option {option}: its `settings` must be texts, or functions of (parts, devices) that return one, and "
                f"{name!r} is {text!r:.80}; correct it"
            )


def _unknown(option: Option, what: str, name: str, allowed: str, known: set[str]) -> InputError:
    near = get_close_matches(name, sorted(known), 1)
    remedy = f"did you mean {near[0]!r}?" if near else "see `algorithms.parts.settings.SETTINGS`"
    return InputError(f"option {option}: its `{what}` names {name!r}: must be {allowed}; {remedy}")
