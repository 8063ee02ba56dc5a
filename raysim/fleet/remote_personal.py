"""Personal state on nodes that do not see the run's folder: an actor on the driver's node writes and reads it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError

from algorithms import Location, PersonalStore
from raysim.fleet.population_copies import on_node
from raysim.fleet.resources import this_node
from raysim.fleet.worker_plan import WorkerPlan

StoreHandle = tuple[Path, Any]
"""File by which a node recognises the run's folder, and the actor that stands in for the folder elsewhere."""


def served_store(plan: WorkerPlan) -> StoreHandle:
    """Start an actor that serves the plan's personal state to other nodes."""
    plan.personal.mkdir(parents=True, exist_ok=True)
    mark = plan.personal / f"mark-{uuid.uuid4().hex}"
    mark.touch()
    actor = ray.remote(PersonalStore).options(**on_node(this_node()))
    return mark, actor.remote(plan.personal.resolve(), plan.layouts.personal)


class RemotePersonalStore(PersonalStore):
    """Personal store whose records an actor on the driver's node writes and reads.

    Args:
        store: local store that it replaces.
        server: actor with the records.
    """

    def __init__(self, store: PersonalStore, server: Any) -> None:
        super().__init__(store.folder, store.layout)
        self._server = server

    def put(self, record: bytes) -> Location:
        """Write one record to the driver's disk; return after it is there."""
        location: Location = _answer(self._server.put.remote(record))
        return location

    def get(self, location: Location) -> bytes:
        """Read one record."""
        record: bytes = _answer(self._server.get.remote(location))
        return record


def reachable(store: PersonalStore, handle: StoreHandle) -> PersonalStore:
    """Return the store itself if this node sees the run's folder, or else one that asks the actor."""
    mark, server = handle
    return store if mark.exists() else RemotePersonalStore(store, server)


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        # Raise a full disk and the like as a local store does.
        raise error.cause from None
