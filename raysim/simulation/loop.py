"""The main loop: the rounds of one algorithm on one fleet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from algorithms import Algorithm, Purpose, State, start_round
from raysim.common.errors import ModelsLostError, RetriesSpentError, StoppedError
from raysim.fleet.inline import InlineFleet
from raysim.simulation.checkpoints import Recovery
from raysim.simulation.records import Records
from raysim.simulation.stop import Stop
from raysim.store.result import Snapshot

if TYPE_CHECKING:  # It imports Ray, which a run in this process does not need.
    from raysim.fleet.ray_fleet import RayFleet

LOG = logging.getLogger("raysim")

Keyed: TypeAlias = Callable[[Purpose, int], AbstractContextManager[None]]

REPLAYS = 3
"""Times in a row that rounds are repeated since an aggregation because their models were lost."""


def run_rounds(
    algorithm: Algorithm,
    fleet: InlineFleet | RayFleet,
    records: Records,
    recovery: Recovery,
    *,
    every: int,
    stop: Stop,
    keyed: Keyed,
) -> None:
    """Run the rounds that are left; repeat the rounds since the last aggregation if their models are lost.

    Args:
        algorithm: all phases of the algorithm.
        fleet: fleet that runs the blocks.
        records: records of the rounds.
        recovery: state to begin with, and to go back to.
        every: rounds from one evaluation to the next; 0 evaluates only after the last round.
        stop: request to stop.
        keyed: context of a purpose and a round, in which the driver calls a user's own code.

    Raises:
        StoppedError: the run was asked to stop.
        RetriesSpentError: models were lost again and again.
    """
    state, losses = recovery.snapshot.state, 0
    with stop.between_rounds():
        while True:
            try:
                with keyed(Purpose.OWN_RECORD, state.round):
                    if state.round >= records.progress.last:
                        return _write(records, recovery)
                    if stop.asked:
                        _stop(records, recovery)
                state = _run_round(state, algorithm, fleet, records, recovery, every, keyed)
            except ModelsLostError as error:
                losses += 1
                if losses > REPLAYS:
                    what = f"round {state.round + 1}: {error}, {losses} times in a row"
                    raise RetriesSpentError(f"{what}; check the nodes, and resume the run") from error
                state = records.restart() or recovery.snapshot.state
                LOG.warning("%s: %s; repeating the rounds since round %d", records.name, error, state.round)
            else:
                losses = losses if state.travelling_models else 0


def _run_round(
    state: State,
    algorithm: Algorithm,
    fleet: InlineFleet | RayFleet,
    records: Records,
    recovery: Recovery,
    every: int,
    keyed: Keyed,
) -> State:
    """Run a round; while its client updates run, the round before is evaluated and written."""
    last = state.round + 1 == records.progress.last
    traffic, starting = fleet.traffic.copy(), fleet.starting

    with keyed(Purpose.OWN_ROUND, state.round + 1):
        pending = start_round(state, algorithm, fleet, last=last)
    with keyed(Purpose.OWN_RECORD, state.round):
        _write(records, recovery)
    with keyed(Purpose.OWN_ROUND, state.round + 1):
        state = pending.finish()
    # A repeated round is in the records already.
    if state.round > records.progress.result.rounds:
        evaluated = last or bool(every and state.round % every == 0)
        records.add(state, fleet.traffic.since(traffic), fleet.starting - starting, evaluated)
    return state


def _write(records: Records, recovery: Recovery) -> None:
    """Write the round that was added last; after an aggregation the run can go back to it."""
    written = records.write()
    if written is None:
        return
    if not written.travelling_models:
        recovery.keep(Snapshot(written, records.progress))
    records.show()


def _stop(records: Records, recovery: Recovery) -> NoReturn:
    """Write the last round and a checkpoint, and end.

    Raises:
        StoppedError: always; it names the last round.
    """
    _write(records, recovery)
    recovery.save()
    raise StoppedError(f"stopped after round {records.progress.result.rounds}")
