"""Files of the driver on nodes that do not see them: copies of the population, and an actor for personal state.

Each node has one copy of the population, sent through Ray's object store or fetched from a URI.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from algorithms import Layout, Location, PersonalStore
from partitioning import fetch
from partitioning.common.disk import DiskFullError
from partitioning.store.fetching import cached_folder, copy_to_cache, has_manifest, is_whole
from partitioning.store.manifest import MANIFEST
from raysim.common.errors import InputError
from raysim.common.log import LOG
from raysim.fleet.personal_disk import PersonalDisk
from raysim.fleet.resources import this_node
from raysim.fleet.worker_plan import WorkerPlan

PIECE = 16 * 2**20
"""Bytes sent at once."""

CACHED_PIECES = 4
"""Pieces kept for other nodes: nodes that copy at the same time read the same pieces."""

RESTARTS = {"max_restarts": 3, "max_task_retries": 3}
"""Options of an actor whose state is in files: one that dies is replaced, and its calls are repeated."""

StoreHandle = tuple[Path, Any]
"""File by which a node recognises the run's folder, and the actor that stands in for the folder elsewhere."""


def located(plan: WorkerPlan, copy: Path | None = None) -> WorkerPlan | None:
    """Return the plan with this node's folder of the population: the driver's, or a copy; None if it needs a copy.

    `copy` is the folder of one that was just made; without it, there may be one in this node's cache.

    Raises:
        InputError: the node has no copy and may not have one.
    """
    if copy is not None:
        return replace(plan, population=copy)
    if plan.digest is None or has_manifest(plan.population, plan.digest):
        return plan
    if not plan.copies:
        raise InputError(
            f"data.population: every node must see {plan.population}; {platform.node()} does not, and may not have a "
            "copy (fleet.copies = false or fleet.pinned = true); mount the folder there"
        )
    folder = cached_folder(plan.digest)
    return replace(plan, population=folder) if is_whole(folder, plan.digest) else None


class PopulationSender:
    """Ray actor on the driver's node that reads a population's files, in pieces, for nodes that do not see them."""

    def __init__(self, folder: Path, size: int = PIECE) -> None:
        self._folder, self._size = folder, size
        self._stored = lru_cache(CACHED_PIECES)(self._store)

    def piece(self, name: str, number: int) -> list[Any]:
        """Return a reference to a piece of a file; the piece after the last one is empty."""
        return [self._stored(name, number)]

    def _store(self, name: str, number: int) -> Any:
        return ray.put(np.fromfile(self._folder / name, np.uint8, self._size, offset=number * self._size))


class FileServer:
    """Copies of the driver's populations on nodes that do not see them."""

    def __init__(self) -> None:
        self._senders: dict[Path, Any] = {}
        self._copies: dict[tuple[str, Path], Any] = {}

    def copy_to(self, node: str, plan: WorkerPlan) -> Any:
        """Give a node a copy of a plan's population, once; return a reference to the folder on that node."""
        folder = plan.population
        if (node, folder) not in self._copies or _has_failed(self._copies[node, folder]):
            LOG.info("node %s does not see %s: raysim copies it there", node, folder)
            if plan.uri is None and folder not in self._senders:
                actor = ray.remote(PopulationSender).options(**RESTARTS, **on_node(this_node()))
                self._senders[folder] = actor.remote(folder.resolve())
            sender = None if plan.uri else self._senders[folder]
            task = ray.remote(receive).options(**on_node(node))
            self._copies[node, folder] = task.remote(plan.digest, plan.uri, sender)
        return self._copies[node, folder]

    def forget(self, folder: Path) -> None:
        """Forget a population that all nodes have. Its sender ends; a node that needs a copy later gets another one."""
        self._senders.pop(folder, None)
        self._copies = {key: copy for key, copy in self._copies.items() if key[1] != folder}


def on_node(node: str) -> dict[str, Any]:
    """Return options of a Ray task or actor that runs on a node, however busy the node is."""
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def receive(digest: str | None, uri: str | None, sender: Any) -> Path:
    """Copy a population into this node's cache unless it is there, from its URI or the driver's; return its folder.

    Raises:
        InputError: another population arrived, or the node's cache cannot be written.
        DiskFullError: the copy does not fit.
    """
    try:
        if uri is None:
            manifest = b"".join(pieces(sender, MANIFEST))
            folder = copy_to_cache(manifest, partial(pieces, sender), "the driver's population")
        else:
            folder = fetch(uri)
    except (DiskFullError, RayError):
        raise
    except OSError as error:
        raise InputError(
            f"RAYSIM_CACHE on {platform.node()}: must be a writable folder, for the copy of the population ({error}); "
            "set another folder there, or mount the population"
        ) from error
    if folder.name != digest:
        raise InputError(f"data.population = {uri!r}: must not change after the run began; start a new run")
    return folder


def pieces(sender: Any, name: str) -> Iterator[bytes]:
    """Yield the driver's file in pieces; fetch the next piece while the caller writes this one."""
    following = sender.piece.remote(name, 0)
    for number in range(1, 2**31):
        piece: NDArray[np.uint8] = ray.get(ray.get(following)[0])
        if not piece.size:
            return
        following = sender.piece.remote(name, number)
        yield piece.tobytes()


def _has_failed(reference: Any) -> bool:
    """Return whether a copy failed, for example because its node died."""
    ready, _ = ray.wait([reference], timeout=0)
    try:
        ray.get(ready)
    except Exception:  # the actor that waits for the copy reports it
        return True
    return False


def store_of(plan: WorkerPlan) -> StoreHandle | None:
    """Return new access to a plan's personal state for nodes that do not see its folder; None if it has none.

    Each fleet needs its own. The folder's keeper takes the files of an earlier one for ended, and may remove them.
    """
    if not plan.layouts.personal.entries:
        return None
    plan.personal.mkdir(parents=True, exist_ok=True)
    mark = plan.personal / f"mark-{uuid.uuid4().hex}"
    mark.touch()
    actor = ray.remote(StoreServer).options(**RESTARTS, **on_node(this_node()))
    return mark, actor.remote(plan.personal.resolve(), plan.layouts.personal)


class StoreServer:
    """Ray actor on the driver's node that writes and reads personal state for nodes that do not see the run's folder.

    This class does not inherit from `PersonalStore`, because Ray alters the signatures of an actor's methods, in the
    driver too.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._store = PersonalDisk(folder, layout)

    def put(self, record: bytes) -> Location:
        """Write one record."""
        return self._store.put(record)

    def get(self, location: Location) -> bytes:
        """Read one record."""
        return self._store.get(location)


class RemotePersonalStore(PersonalStore):
    """Personal store whose records an actor on the driver's node writes and reads, in place of a local one."""

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
