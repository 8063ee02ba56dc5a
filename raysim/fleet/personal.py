"""What clients keep, where the run's folder is on the driver's node alone: written and read there, for the others."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError

from algorithms import Layout, Location, PersonalStore
from raysim.fleet.copies import at
from raysim.fleet.worker_plan import WorkerPlan


class Keeper:
    """Writes and reads the records of a folder on the driver's node.

    Args:
        folder: of the kept entries.
        layout: of them.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._store = PersonalStore(folder, layout)

    def put(self, record: bytes) -> Location:
        """Write one record."""
        return self._store.put(record)

    def get(self, location: Location, length: int) -> bytes:
        """Read one record."""
        return self._store.get(location, length)


class Keeping:
    """A keeper for the nodes that do not see a plan's folder of kept entries, and a mark by which they know.

    Args:
        plan: has the folder and the layout.
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self.folder = plan.personal
        self.folder.mkdir(parents=True, exist_ok=True)
        mark = self.folder / f"mark-{uuid.uuid4().hex}"
        mark.touch()
        here = at(ray.get_runtime_context().get_node_id())
        keeper = ray.remote(Keeper).options(**here).remote(plan.personal.resolve(), plan.layouts.personal)
        self.handle = (mark, keeper)


class SentStore(PersonalStore):
    """A store whose records the keeper has.

    Args:
        store: what it stands for.
        keeper: on the driver's node.
    """

    def __init__(self, store: PersonalStore, keeper: Any) -> None:
        super().__init__(store.folder, store.layout)
        self._keeper = keeper

    def put(self, record: bytes) -> Location:
        """Have one record written; it is on the driver's disk when this returns."""
        location: Location = _answer(self._keeper.put.remote(record))
        return location

    def get(self, location: Location, length: int) -> bytes:
        """Have one record read."""
        record: bytes = _answer(self._keeper.get.remote(location, length))
        return record


def reached(store: PersonalStore, keeping: tuple[Path, Any]) -> PersonalStore:
    """The store that reaches the run's records from this node: itself where the mark is seen, or the keeper's."""
    mark, keeper = keeping
    return store if mark.exists() else SentStore(store, keeper)


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        # Such as a full disk: as it would be raised here.
        raise error.cause from None
