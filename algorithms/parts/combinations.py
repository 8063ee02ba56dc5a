"""Parts that make no sense together: each pair, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from algorithms.engine.errors import InputError
from algorithms.parts.arrivals import Arrivals
from algorithms.parts.schedule import Rounds
from algorithms.parts.server import Assign, WeightedMix
from algorithms.parts.weighting import Loss, Samples, Used

if TYPE_CHECKING:
    from algorithms.parts.algorithm import Algorithm


REPORTED = ("samples", "steps", "used", "labelled", "loss")
"""What the report of every visit has; where arrivals merge one by one, also `staleness`."""


def check(algorithm: Algorithm) -> None:
    """Refuse what makes no sense.

    Raises:
        InputError: two parts contradict each other.
    """
    for refused in REFUSED:
        if text := refused(algorithm):
            raise InputError(text)


def _slot_without_a_use(algorithm: Algorithm) -> str:
    unused = [slot for slot in algorithm.sharing.slots if slot not in algorithm.local.slots]
    if not unused:
        return ""
    if unused[0] == "momentum":
        return (
            f"place.slots = 'momentum' with local.momentum = {algorithm.local.momentum}: must have momentum that can "
            "be maintained; set local.momentum = 0.9, or leave algorithm.maintained_momentum out"
        )
    return (
        f"place.slots = {unused[0]!r}: must be one of {algorithm.local.slots}, which visits of this `local` have; "
        "leave the slot out"
    )


def _own_size_for_a_model_of_many(algorithm: Algorithm) -> str:
    if not (_redistributes(algorithm) and isinstance(algorithm.weighting, Samples | Used)):
        return ""
    return (
        f"weigh = {algorithm.weighting} with merge_every = {algorithm.rounds.aggregate_every}: must be Equal() where models "
        "are redistributed, for a merged model has trained on several clients; use Equal() or merge_every = 1"
    )


def _redistribution_of_nothing(algorithm: Algorithm) -> str:
    if not (_redistributes(algorithm) and algorithm.sharing.weights == "personal"):
        return ""
    return (
        f'place.weights = "kept" with merge_every = {algorithm.rounds.aggregate_every}: must be "shared" where models are '
        "redistributed, for nothing else travels; use merge_every = 1"
    )


def _server_without_models(algorithm: Algorithm) -> str:
    if algorithm.sharing.weights != "personal" or isinstance(algorithm.server, Assign):
        return ""
    return (
        f'server = {algorithm.server} with place.weights = "kept": must be Assign() where no weights travel; remove '
        "the table [server]"
    )


def _arrivals_in_rounds(algorithm: Algorithm) -> str:
    if isinstance(algorithm.schedule, Rounds) or algorithm.own_round:
        return ""
    return (
        f"schedule = {algorithm.schedule} without own_step: must have a step of its own, for the engine's goes in "
        "rounds; use own_step = arrive for arrivals, or Rounds"
    )


def _kept_entries_out_of_order(algorithm: Algorithm) -> str:
    if not (isinstance(algorithm.schedule, Arrivals) and algorithm.sharing.stays):
        return ""
    return (
        f"{', '.join(algorithm.sharing.stays)} that stay with the clients where arrivals merge one by one: must travel, "
        "for visits that overlap leave no order in a client's own entries; use an algorithm that goes in rounds, or "
        "epochs or steps in place of local.batches"
    )


def _weights_above_one(algorithm: Algorithm) -> str:
    asynchronous = isinstance(algorithm.schedule, Arrivals)
    holds = asynchronous and not isinstance(algorithm.weighting, Samples | Used | Loss)
    if holds or not isinstance(algorithm.server, WeightedMix):
        return ""
    what = f"weigh = {algorithm.weighting}" if asynchronous else f"schedule = {algorithm.schedule}"
    return (
        f"server.rule = 'weighted-mix' with {what}: must be where models of a weight of at most 1 merge one by one, as "
        'in fedasync; set server.rule = "mix"'
    )


def _kept_statistics_that_never_change(algorithm: Algorithm) -> str:
    if not (algorithm.local.statistics == "untracked" and algorithm.sharing.statistics == "personal"):
        return ""
    return (
        'local.statistics = "untracked" with place.statistics = "kept": must be "batch" where clients keep their '
        'statistics, for nothing would ever change them; set local.statistics = "batch"'
    )


def _nothing_to_freeze(algorithm: Algorithm) -> str:
    then = algorithm.switch and algorithm.switch.then.local.statistics
    if not (algorithm.local.statistics == "untracked" and then == "frozen"):
        return ""
    return (
        'local.statistics = "untracked" before a phase that freezes them: must be "batch", for there would be nothing '
        'to freeze; set local.statistics = "batch"'
    )


def _initial_statistics_in_a_report(algorithm: Algorithm) -> str:
    needed = [name for name in algorithm.needs if name in ("loss_after", "score", "score_per_sample")]
    if not (algorithm.local.statistics == "untracked" and needed):
        return ""
    return (
        f'local.statistics = "untracked" with a part that needs {needed[0]!r}: must be "batch", for after a visit '
        'there would be none but the initial ones to normalise by; set local.statistics = "batch"'
    )


def _unnamed_needs(algorithm: Algorithm) -> str:
    """Weigh a report that has what every report has, and what the parts name."""
    try:
        algorithm.weighting(dict.fromkeys((*REPORTED, *algorithm.needs), 1.0))
    except KeyError as error:
        return (
            f"weigh = {algorithm.weighting}: must read no more of a report than {', '.join(REPORTED)} and what its "
            f"property `needs` names, and reads {error}; name it there"
        )
    return ""


REFUSED: tuple[Callable[[Algorithm], str], ...] = (
    _slot_without_a_use,
    _own_size_for_a_model_of_many,
    _redistribution_of_nothing,
    _server_without_models,
    _arrivals_in_rounds,
    _kept_entries_out_of_order,
    _weights_above_one,
    _kept_statistics_that_never_change,
    _nothing_to_freeze,
    _initial_statistics_in_a_report,
    _unnamed_needs,
)
"""Each says why it refuses an algorithm, or nothing."""


def _redistributes(algorithm: Algorithm) -> bool:
    return isinstance(algorithm.schedule, Rounds) and algorithm.schedule.aggregate_every > 1
