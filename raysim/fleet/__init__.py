"""Fleets: what runs blocks of work, in this process or on Ray."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # They import torch, and Ray, which a run in this process does not need.
    from raysim.fleet.client_actors import ClientActors
    from raysim.fleet.inline import InlineFleet, InlineWorkplace
    from raysim.fleet.ray_fleet import RayFleet

RunFleet: TypeAlias = "InlineFleet | RayFleet"
Workplace: TypeAlias = "InlineWorkplace | ClientActors"
