"""Options of a run beside its experiment file, and the place to work that follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
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
    """Options of a run, as `raysim.run` takes them, and the stages of its command; none changes the result."""

    actors: int | None = None
    inline: bool = False
    address: str | None = None
    watcher: Watcher = field(default_factory=Watcher)
    stop: Stop = field(default_factory=Stop)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    fleet: Actors | None = None


def with_workplace(experiment: Experiment, options: RunOptions) -> tuple[Experiment, Workplace]:
    """Return the experiment with its number of actors, and a function that makes its place to work.

    Raises:
        InputError: see `check_place`.
    """
    if options.fleet is not None and (options.inline or options.actors is not None or options.address is not None):
        raise InputError(
            "fleet with inline, actors or address: must stand alone, because the fleet has its actors; leave one out"
        )
    experiment = check_place(experiment, options.actors, options.inline, options.address)
    table = experiment.fleet
    if options.fleet is not None:
        return experiment, partial(options.fleet.place, table)
    if options.inline or needs_no_actors(experiment, options.address):
        from raysim.fleet.inline import InlineWorkplace

        return experiment, InlineWorkplace
    from raysim.fleet.client_actors import ClientActors

    shape = table.actors, table.cpus_per_actor, table.gpus_per_actor, options.address
    return experiment, partial(ClientActors, *shape, labels=table.labels, group=table.group, pinned=table.pinned)
