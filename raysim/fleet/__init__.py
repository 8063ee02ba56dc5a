"""Fleets: what runs blocks of work, in this process or on Ray."""

from raysim.fleet.bench import BenchPlan, ModelPlan, Origin
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.fitted_actors import FittedActors
from raysim.fleet.inline import Inline, InlineFleet
from raysim.fleet.machine import settled
from raysim.fleet.own_code import sent_whole
from raysim.fleet.pinned_actors import PinnedActors
from raysim.fleet.ray_fleet import RayFleet

__all__ = [
    "BenchPlan",
    "ClientActors",
    "FittedActors",
    "Inline",
    "InlineFleet",
    "ModelPlan",
    "Origin",
    "PinnedActors",
    "RayFleet",
    "sent_whole",
    "settled",
]
