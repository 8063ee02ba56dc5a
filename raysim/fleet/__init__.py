"""Fleets: what runs blocks of work, in this process or on Ray."""

from raysim.fleet.bench import BenchPlan, ModelPlan
from raysim.fleet.client_actors import ClientActors, RayFleet
from raysim.fleet.inline import InlineFleet
from raysim.fleet.machine import fingerprint, settled

__all__ = ["BenchPlan", "ClientActors", "InlineFleet", "ModelPlan", "RayFleet", "fingerprint", "settled"]
