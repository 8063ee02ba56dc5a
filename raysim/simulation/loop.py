"""The main loop: the rounds of one algorithm on one fleet."""

from __future__ import annotations

from algorithms import Purpose, State, start_round
from raysim.common.errors import ModelsLostError
from raysim.common.log import LOG
from raysim.fleet import RunFleet
from raysim.fleet.worker_plan import WorkerPlan
from raysim.simulation.failures import REPEATS, lost_again
from raysim.simulation.records import Records
from raysim.simulation.stop import Stop


def run_rounds(plan: WorkerPlan, fleet: RunFleet, records: Records, state: State, stop: Stop) -> None:
    """Run the rounds that are left; repeat the rounds since the last aggregation if their models are lost.

    Raises:
        StoppedError: the run was asked to stop.
        RetriesSpentError: models were lost again and again.
    """
    losses, since = 0, -1
    with stop.between_rounds():
        while True:
            try:
                while state.round < records.progress.last and not stop.asked:
                    last = state.round + 1 == records.progress.last
                    with plan.keyed(Purpose.OWN_ROUND, state.round + 1):
                        pending = start_round(state, plan.algorithm, fleet, last=last)
                        # The client updates are under way. Meanwhile the round before is evaluated and written.
                        with plan.keyed(Purpose.OWN_RECORD, state.round):
                            records.write()
                        state = pending.finish()
                    records.add(state)
                with plan.keyed(Purpose.OWN_RECORD, state.round):
                    return records.write() if state.round >= records.progress.last else records.stop()
            except ModelsLostError as error:
                back = records.restart()
                losses, since = losses + 1 if back.round == since else 1, back.round
                if losses > REPEATS:
                    raise lost_again(f"round {state.round + 1}", error) from error
                LOG.warning("%s: %s; repeating the rounds since round %d", records.name, error, back.round)
                state = back
