"""Options of a run beside its experiment file, and the place to work that follows from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.tables import FleetTable
from raysim.fleet.inline import InlineWorkplace
from raysim.simulation.stop import Stop
from raysim.watching.progress import Watcher
from raysim.watching.stopwatch import Stopwatch

if TYPE_CHECKING:  # It imports Ray, which a run in this process does not need.
    from raysim.fleet.client_actors import ClientActors

Workplace: TypeAlias = "Callable[[], ClientActors | InlineWorkplace]"


@dataclass(frozen=True)
class RunOptions:
    """Options of a run; none of them changes the result.

    Args:
        actors: number of client actors, instead of the file's.
        inline: whether to run in this process, without Ray.
        address: address of a running Ray cluster; None starts Ray on this machine.
        watcher: observer of the run.
        stop: request to stop between two rounds.
        stopwatch: stages of the command so far.
    """

    actors: int | None = None
    inline: bool = False
    address: str | None = None
    watcher: Watcher = field(default_factory=Watcher)
    stop: Stop = field(default_factory=Stop)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)


def with_workplace(experiment: Experiment, options: RunOptions) -> tuple[Experiment, Workplace]:
    """Return the experiment with its number of actors, and a function that makes the place to work.

    Raises:
        InputError: two options exclude each other.
    """
    if options.inline and (options.actors is not None or options.address is not None):
        raise InputError("--inline with --actors or --address: must stand alone, as it starts no actors; leave one out")
    experiment = with_actors(experiment, options.actors)
    return experiment, _workplace(experiment.fleet, options.inline, options.address)


def with_actors(experiment: Experiment, actors: int | None) -> Experiment:
    """Return the experiment with another number of actors; None leaves it unchanged."""
    if actors is None:
        return experiment
    if actors < 1:
        raise InputError(f"--actors = {actors}: must be a whole number >= 1; use --actors 1")
    return experiment.model_copy(update={"fleet": experiment.fleet.model_copy(update={"actors": actors})})


def _workplace(table: FleetTable, inline: bool, address: str | None) -> Workplace:
    """Return a function that makes the place to work: this process, or client actors on Ray."""
    gpus = table.gpus_per_actor
    if inline:
        _check_inline(table)
        return InlineWorkplace
    if gpus == "auto" and table.pinned:
        raise InputError(
            'fleet.gpus_per_actor = "auto" with fleet.pinned = true: must be a number, because sites may have '
            "different GPUs; set fleet.gpus_per_actor = 1"
        )
    from raysim.fleet.client_actors import ClientActors

    return partial(
        ClientActors,
        table.actors,
        table.cpus_per_actor,
        gpus,
        address,
        labels=table.labels,
        group=table.group,
        pinned=table.pinned,
    )


def _check_inline(table: FleetTable) -> None:
    """Refuse settings of actors in a run without actors."""
    if table.gpus_per_actor:
        raise InputError(
            f"fleet.gpus_per_actor = {json.dumps(table.gpus_per_actor)} with --inline: must be 0, because this process "
            "computes on the CPU; set fleet.gpus_per_actor = 0, or leave --inline out"
        )
    if table.pinned:
        raise InputError(
            "fleet.pinned = true with --inline: must be false, because this process would need the data of all sites; "
            "set fleet.pinned = false, or leave --inline out"
        )
