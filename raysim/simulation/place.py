"""Place to work, this process or client actors: checks that need neither torch nor Ray."""

from __future__ import annotations

import json

from raysim.common.errors import InputError
from raysim.common.surface import assigned, given, option
from raysim.config.experiment import Experiment
from raysim.config.tables import MOST_ACTORS, FleetTable
from raysim.fleet.address import check_address


def check_place(experiment: Experiment, actors: int | None, inline: bool, address: str | None) -> Experiment:
    """Check the options of the place to work, and return the experiment with its number of actors.

    Args:
        experiment: experiment.
        actors: number of client actors, instead of the file's.
        inline: whether to run in this process, without Ray.
        address: address of a running Ray cluster; None starts Ray on this machine.

    Raises:
        InputError: two options exclude each other, or one has a wrong value.
    """
    if inline and (actors is not None or address is not None):
        raise InputError(
            f"{option('inline')} with {option('actors')} or {option('address')}: must stand alone, as it starts no "
            "actors; leave one out"
        )
    if address is not None:
        check_address(address)
    experiment = with_actors(experiment, actors)
    table = experiment.fleet
    if inline or needs_no_actors(experiment, address):
        _check_inline(table)
    elif table.gpus_per_actor == "auto" and table.pinned:
        raise InputError(
            'fleet.gpus_per_actor = "auto" with fleet.pinned = true: must be a number, because sites may have '
            "different GPUs; set fleet.gpus_per_actor = 1"
        )
    return experiment


def needs_no_actors(experiment: Experiment, address: str | None) -> bool:
    """Return whether this process runs the experiment: the initial model alone, without data on actors."""
    table = experiment.fleet
    return experiment.rounds == 0 and address is None and not (table.pinned or table.gpus_per_actor)


def with_actors(experiment: Experiment, actors: int | None) -> Experiment:
    """Return the experiment with another number of actors; None leaves it unchanged."""
    if actors is None:
        return experiment
    if not 1 <= actors <= MOST_ACTORS:
        raise InputError(
            f"{assigned('actors', actors)}: must be a whole number from 1 to {MOST_ACTORS}; use {given('actors', 1)}"
        )
    return experiment.model_copy(update={"fleet": experiment.fleet.model_copy(update={"actors": actors})})


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
