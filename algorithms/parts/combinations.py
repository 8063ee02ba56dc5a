"""Mistakes of an algorithm's parts that are no pair of settings; for pairs see `algorithms.parts.conflicts`."""

from __future__ import annotations

from inspect import signature

from algorithms.core.errors import InputError
from algorithms.core.returned import name_of
from algorithms.core.rows import REPORTED
from algorithms.parts.option import Parts
from algorithms.parts.schedule import Rounds
from algorithms.training.local import Local


def check_parts(parts: Parts) -> None:
    """Raise InputError for a slot without a use, arrivals in the engine's round, an unnamed need, or unequal phases."""
    for text in (
        _slot_without_use(parts),
        _arrivals_in_rounds(parts),
        _unnamed_needs(parts),
        _options_of_one_phase(parts),
        _cohort_option_among_options(parts),
        _wrong_signature(parts),
        _subclass_of_local(parts),
    ):
        if text:
            raise InputError(text)


def _slot_without_use(parts: Parts) -> str:
    local, sharing = parts.local, parts.sharing
    slots = [slot for option in parts.options for slot in option.slots]
    unused = [slot for slot in sharing.slots if slot not in (*local.slots, *slots)]
    if not unused:
        return ""
    if unused[0] == "momentum":
        return (
            f"sharing.slots = 'momentum' with local.momentum = {local.momentum}: must have momentum to maintain; "
            "set local.momentum = 0.9, or leave algorithm.maintained_momentum out"
        )
    known = tuple(local.slots)
    return f"sharing.slots = {unused[0]!r}: must be one of {known}, the slots of this `local`; leave the slot out"


def _arrivals_in_rounds(parts: Parts) -> str:
    if isinstance(parts.schedule, Rounds) or parts.has_own_round:
        return ""
    return (
        f"schedule = {parts.schedule} without own_round: must have a round of its own, because the engine's is "
        "synchronous; use own_round = start_arrivals for arrivals, or Rounds"
    )


def _unnamed_needs(parts: Parts) -> str:
    """Try the weighting on a report without further entries."""
    try:
        parts.weighting(dict.fromkeys((*REPORTED, *parts.needs), 1.0))
    except KeyError as error:
        return (
            f"weighting = {parts.weighting}: must read only {', '.join(REPORTED)} and the entries named by its "
            f"property `needs`, and reads {error}; name it there"
        )
    return ""


def _cohort_option_among_options(parts: Parts) -> str:
    given = next((option for option in parts.options if option.draws_cohort), None)
    if given is None:
        return ""
    return f"option {given}: must be given to the schedule, which draws by it; write Participation(by={given})"


def _subclass_of_local(parts: Parts) -> str:
    if type(parts.local) is Local:
        return ""
    return (
        f"local = {name_of(parts.local)}: must be a Local and no subclass, because what a method adds to each step is "
        "a Method; write Local(method=...)"
    )


def _wrong_signature(parts: Parts) -> str:
    if parts.own_round is None:
        return ""
    try:
        signature(parts.own_round).bind(None, None, None, last=False)
    except TypeError as error:
        return (
            f"own_round = {name_of(parts.own_round)}: must take (state, algorithm, fleet, *, last), and has a {error}; "
            "return a PendingRound, whose `finish` gives the state after the round"
        )
    return ""


def _options_of_one_phase(parts: Parts) -> str:
    if parts.then is None or parts.then.options == parts.options:
        return ""
    return (
        f"options = {parts.options} before a phase with {parts.then.options}: must be the same in all phases, because "
        "they are of the whole run; use `Algorithm.having` on the algorithm with all its phases"
    )
