"""Options of a run beside its experiment file, and their checks, which need neither torch nor Ray."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from raysim.common.errors import InputError
from raysim.common.log import LOG
from raysim.common.surface import option
from raysim.config.experiment import Experiment
from raysim.config.tables import FleetTable
from raysim.fleet import Workplace
from raysim.fleet.actors import Actors, check_number
from raysim.fleet.address import check_address
from raysim.fleet.gpus import require_gpu
from raysim.simulation.stop import Stop
from raysim.watching.progress import Watcher
from raysim.watching.stopwatch import Stopwatch


@dataclass(frozen=True)
class RunOptions:
    """Options of a run, as `raysim.run` takes them, and the stages of its command; none changes the result.

    Args:
        actors: number of client actors, instead of the file's.
        inline: whether to run in this process, without Ray.
        address: address of a running Ray cluster; None starts Ray on this machine.
        fleet: client actors of earlier runs, instead of new ones.
        watcher: observer of the run.
        stop: request to stop between two rounds.
        stopwatch: stages of the command.
    """

    actors: int | None = None
    inline: bool = False
    address: str | None = None
    fleet: Actors | None = None
    watcher: Watcher = field(default_factory=Watcher)
    stop: Stop = field(default_factory=Stop)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def tell(self, text: str) -> None:
        """Show a text to the user, and log it."""
        LOG.info("%s", text)
        self.watcher.notice(text)

    def placed(self, experiment: Experiment) -> Experiment:
        """Return the experiment with its number of actors.

        Raises:
            InputError: two options exclude each other, one has a wrong value, or the experiment does not go with it.
        """
        if self.fleet is not None and (self.inline or self.actors is not None or self.address is not None):
            raise InputError(
                "fleet with inline, actors or address: must stand alone, because the fleet has its actors; leave one "
                "out"
            )
        if self.inline and (self.actors is not None or self.address is not None):
            raise InputError(
                f"{option('inline')} with {option('actors')} or {option('address')}: must stand alone, as it starts no "
                "actors; leave one out"
            )
        if self.address is not None:
            check_address(self.address)
        table = experiment.fleet
        if self.actors is not None:
            check_number(self.actors)
            table = table.model_copy(update={"actors": self.actors})
        if self.is_here(experiment):
            _check_inline(table)
        elif table.gpus_per_actor == "auto" and table.pinned:
            raise InputError(
                'fleet.gpus_per_actor = "auto" with fleet.pinned = true: must be a number, because sites may have '
                "different GPUs; set fleet.gpus_per_actor = 1"
            )
        return experiment.model_copy(update={"fleet": table})

    def is_here(self, experiment: Experiment) -> bool:
        """Return whether this process runs the experiment: if asked to, or if only the initial model is written."""
        table = experiment.fleet
        needs_none = experiment.rounds == 0 and self.address is None and not (table.pinned or table.gpus_per_actor)
        return self.inline or needs_none

    def check_gpus(self, experiment: Experiment) -> None:
        """Raise InputError if actors with GPUs would start on this machine, which has none."""
        if self.fleet is None and not self.is_here(experiment):
            require_gpu(experiment.fleet.gpus_per_actor, self.address)

    def workplace(self, experiment: Experiment) -> Workplace:
        """Return the place where the experiment's blocks run; it starts as a context."""
        table = experiment.fleet
        if self.fleet is not None:
            return self.fleet.place(table)
        if self.is_here(experiment):
            from raysim.fleet.inline import InlineWorkplace

            return InlineWorkplace()
        self.check_gpus(experiment)
        from raysim.fleet.client_actors import ClientActors

        shape = table.actors, table.cpus_per_actor, table.gpus_per_actor, self.address
        return ClientActors(*shape, labels=table.labels, group=table.group, pinned=table.pinned)


def _check_inline(table: FleetTable) -> None:
    """Refuse settings of actors in a run without actors."""
    if table.gpus_per_actor:
        raise InputError(
            f"fleet.gpus_per_actor = {json.dumps(table.gpus_per_actor)} with {option('inline')}: must be 0, because "
            f"this process computes on the CPU; set fleet.gpus_per_actor = 0, or leave {option('inline')} out"
        )
    if table.pinned:
        raise InputError(
            f"fleet.pinned = true with {option('inline')}: must be false, because this process would need the data of "
            f"all sites; set fleet.pinned = false, or leave {option('inline')} out"
        )
