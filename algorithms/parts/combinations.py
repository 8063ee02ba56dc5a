"""Combinations of parts that make no sense: each is refused with the pair named and the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from algorithms.core.errors import InputError
from algorithms.core.rows import REPORTED
from algorithms.parts.arrivals import Arrivals
from algorithms.parts.schedule import Rounds, Schedule
from algorithms.parts.server import Assign, Server, takes_updates
from algorithms.parts.sharing import Sharing
from algorithms.parts.staleness import WeightedMix
from algorithms.parts.weighting import ClientLoss, Samples, SamplesUsed, Weighting
from algorithms.training.local import Local

MEASURED = ("loss_after", "loss_received", "loss_rms", "score", "score_per_sample")
"""Entries of a report that are measured in evaluation."""


def check(
    schedule: Schedule,
    local: Local,
    sharing: Sharing,
    weighting: Weighting,
    server: Server,
    *,
    slots: Sequence[str],
    own_round: bool,
    later: Local | None,
    needs: tuple[str, ...],
) -> None:
    """Refuse an algorithm's parts if two contradict each other.

    Args:
        schedule, local, sharing, weighting, server: the parts.
        slots: personal slots of the options.
        own_round: whether the algorithm replaces the engine's round.
        later: `local` of the next phase, if there is one.
        needs: entries of a report that the parts name.

    Raises:
        InputError: two parts contradict each other.
    """
    every = schedule.aggregate_every if isinstance(schedule, Rounds) else 1
    for text in (
        _slot_without_use(local, sharing, slots),
        _sizes_after_redistribution(every, weighting) if every > 1 else "",
        _redistribution_of_nothing(every, sharing) if every > 1 else "",
        _server_without_models(server, sharing),
        _arrivals_in_rounds(schedule, own_round),
        _personal_state_with_arrivals(schedule, local, sharing),
        _weights_above_one(schedule, weighting, server),
        _reports_of_a_buffer(schedule, server),
        _poisson_with_redistribution(schedule, every),
        _personal_statistics_that_never_change(local, sharing),
        _no_statistics_to_freeze(local, later),
        _report_on_initial_statistics(local, needs),
        _unnamed_needs(weighting, needs),
    ):
        if text:
            raise InputError(text)


def _slot_without_use(local: Local, sharing: Sharing, slots: Sequence[str]) -> str:
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


def _sizes_after_redistribution(every: int, weighting: Weighting) -> str:
    if not isinstance(weighting, Samples | SamplesUsed):
        return ""
    return (
        f"weighting = {weighting} with aggregate_every = {every}: must be Equal() if models are redistributed, because "
        "each has trained on several clients; use Equal() or aggregate_every = 1"
    )


def _redistribution_of_nothing(every: int, sharing: Sharing) -> str:
    if sharing.weights != "personal":
        return ""
    return (
        f'sharing.weights = "personal" with aggregate_every = {every}: must be "shared" if models are redistributed, '
        "because nothing else travels; use aggregate_every = 1"
    )


def _server_without_models(server: Server, sharing: Sharing) -> str:
    if sharing.weights != "personal" or isinstance(server, Assign):
        return ""
    return (
        f'server = {server} with sharing.weights = "personal": must be Assign() if no weights are sent; remove '
        "the table [server]"
    )


def _arrivals_in_rounds(schedule: Schedule, own_round: bool) -> str:
    if isinstance(schedule, Rounds) or own_round:
        return ""
    return (
        f"schedule = {schedule} without own_round: must have a round of its own, because the engine's is synchronous; "
        "use own_round = start_arrivals for arrivals, or Rounds"
    )


def _personal_state_with_arrivals(schedule: Schedule, local: Local, sharing: Sharing) -> str:
    stays = (*sharing.stays, *(("state of local.update",) if local.update and local.update.personal else ()))
    if not (isinstance(schedule, Arrivals) and stays):
        return ""
    return (
        f"personal {', '.join(stays)} with asynchronous arrivals: must be shared, because overlapping client "
        "updates have no order in a client's personal state; use a synchronous algorithm, or epochs or steps in place "
        "of local.batches"
    )


def _weights_above_one(schedule: Schedule, weighting: Weighting, server: Server) -> str:
    asynchronous = isinstance(schedule, Arrivals)
    holds = asynchronous and not isinstance(weighting, Samples | SamplesUsed | ClientLoss)
    if holds or not isinstance(getattr(server, "server", server), WeightedMix):
        return ""
    other = f"weighting = {weighting}" if asynchronous else f"schedule = {schedule}"
    return (
        f"server.rule = 'weighted-mix' with {other}: must be used with single arrivals of weight at most 1, as "
        'in fedasync; set server.rule = "mix"'
    )


def _reports_of_a_buffer(schedule: Schedule, server: Server) -> str:
    if not isinstance(schedule, Arrivals) or schedule.buffer == 1 or not takes_updates(type(server)):
        return ""
    return (
        f"server = {server} with a buffer of arrivals: must not read the clients' reports, because the buffer holds "
        "only their sum; set algorithm.buffer = 1, or use a rule without `updates`"
    )


def _poisson_with_redistribution(schedule: Schedule, every: int) -> str:
    if schedule.sample.by != "poisson" or every == 1:
        return ""
    return (
        f'aggregate_every = {every} with algorithm.sampling = "poisson": must be 1, because a cohort may have more '
        'clients than there are travelling models; set algorithm.sampling = "uniform"'
    )


def _personal_statistics_that_never_change(local: Local, sharing: Sharing) -> str:
    if not (local.statistics == "untracked" and sharing.statistics == "personal"):
        return ""
    return (
        'local.statistics = "untracked" with sharing.statistics = "personal": must be "batch", because untracked '
        'personal statistics never change; set local.statistics = "batch"'
    )


def _no_statistics_to_freeze(local: Local, later: Local | None) -> str:
    if not (local.statistics == "untracked" and later is not None and later.statistics == "frozen"):
        return ""
    return (
        'local.statistics = "untracked" before a phase that freezes them: must be "batch", because there is nothing '
        'to freeze; set local.statistics = "batch"'
    )


def _report_on_initial_statistics(local: Local, needs: tuple[str, ...]) -> str:
    needed = [name for name in needs if name in MEASURED]
    if not (local.statistics == "untracked" and needed):
        return ""
    return (
        f'local.statistics = "untracked" with a part that needs {needed[0]!r}: must be "batch", because the trained '
        'model has only its initial statistics; set local.statistics = "batch"'
    )


def _unnamed_needs(weighting: Weighting, needs: tuple[str, ...]) -> str:
    """Try the weighting on a report without further entries."""
    try:
        weighting(dict.fromkeys((*REPORTED, *needs), 1.0))
    except KeyError as error:
        return (
            f"weighting = {weighting}: must read only {', '.join(REPORTED)} and the entries named by its property "
            f"`needs`, and reads {error}; name it there"
        )
    return ""
