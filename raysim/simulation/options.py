"""Options of a run beside its experiment file, and the place to work that follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.tables import FleetTable
from raysim.fleet.actors import Actors
from raysim.simulation.place import check_place, needs_no_actors
from raysim.simulation.stop import Stop
from raysim.watching.progress import Watcher
from raysim.watching.stopwatch import Stopwatch

if TYPE_CHECKING:  # These import torch, and Ray, which a run in this process does not need.
    from raysim.fleet.client_actors import ClientActors
    from raysim.fleet.inline import InlineWorkplace

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
        fleet: client actors of earlier runs; None for actors of the run's own.
    """

    actors: int | None = None
    inline: bool = False
    address: str | None = None
    watcher: Watcher = field(default_factory=Watcher)
    stop: Stop = field(default_factory=Stop)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    fleet: Actors | None = None


def with_workplace(experiment: Experiment, options: RunOptions) -> tuple[Experiment, Workplace]:
    """Return the experiment with its number of actors, and a function that makes the place to work.

    Raises:
        InputError: see `check_place`.
    """
    if options.fleet is not None and (options.inline or options.actors is not None or options.address is not None):
        raise InputError(
            "fleet with inline, actors or address: must stand alone, because the fleet has its actors; leave one out"
        )
    experiment = check_place(experiment, options.actors, options.inline, options.address)
    if options.fleet is not None:
        return experiment, partial(options.fleet.place, experiment.fleet)
    inline = options.inline or needs_no_actors(experiment, options.address)
    return experiment, _workplace(experiment.fleet, inline, options.address)


def _workplace(table: FleetTable, inline: bool, address: str | None) -> Workplace:
    """Return a function that makes the place to work: this process, or client actors on Ray."""
    if inline:
        from raysim.fleet.inline import InlineWorkplace

        return InlineWorkplace
    from raysim.fleet.client_actors import ClientActors

    return partial(
        ClientActors,
        table.actors,
        table.cpus_per_actor,
        table.gpus_per_actor,
        address,
        labels=table.labels,
        group=table.group,
        pinned=table.pinned,
    )
