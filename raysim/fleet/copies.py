"""Copies of a population on nodes that do not see the driver's: one a node, in pieces, through Ray's object store."""

from __future__ import annotations

import logging
import platform
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from partitioning import fetch
from partitioning.common.disk import DiskFullError
from partitioning.store.fetching import cached_folder, copy_to_cache, has_manifest, is_whole
from partitioning.store.population import MANIFEST
from raysim.common.errors import InputError
from raysim.fleet.lost import AbsentError
from raysim.fleet.worker_plan import Origin, WorkerPlan

LOG = logging.getLogger("raysim")

PIECE = 16 * 2**20
"""Bytes that are sent at once."""

HELD = 4
"""Pieces that are held for the next node that asks for them: nodes that copy at the same time read alike."""


def found(plan: WorkerPlan, copy: Path | None = None) -> WorkerPlan:
    """The plan with the folder in which this node has the population: the driver's, or a copy.

    Args:
        plan: as the driver has it.
        copy: that this node has just been given; None where one may be in its cache.

    Raises:
        AbsentError: it has none yet.
        InputError: it has none, and may have none.
    """
    origin = plan.origin
    if copy is not None:
        return replace(plan, population=copy)
    if origin is None or has_manifest(plan.population, origin.digest):
        return plan
    if not origin.copies:
        raise InputError(
            f"data.population: every node must see {plan.population}, and {platform.node()} does not, and may have no "
            "copy (fleet.copies = false, or fleet.pinned = true); mount it there"
        )
    folder = cached_folder(origin.digest)
    if not is_whole(folder, origin.digest):
        raise AbsentError(ray.get_runtime_context().get_node_id())
    return replace(plan, population=folder)


class Sender:
    """Reads a population's files, on the driver's node, for nodes that do not see them.

    Args:
        folder: of the population.
        size: bytes of a piece.
    """

    def __init__(self, folder: Path, size: int = PIECE) -> None:
        self._folder, self._size = folder, size
        self._held: OrderedDict[tuple[str, int], Any] = OrderedDict()

    def piece(self, name: str, number: int) -> list[Any]:
        """A reference to a piece of a file, which nodes that ask in time share; the piece behind the last is empty."""
        key = (name, number)
        if key not in self._held:
            content = np.fromfile(self._folder / name, np.uint8, self._size, offset=number * self._size)
            self._held[key] = ray.put(content)
            if len(self._held) > HELD:
                self._held.popitem(last=False)
        return [self._held[key]]


class Copies:
    """The copies of populations that nodes have, or are being given."""

    def __init__(self) -> None:
        self._senders: dict[Path, Any] = {}
        self._under_way: dict[tuple[str, Path], Any] = {}

    def on(self, node: str, plan: WorkerPlan) -> Any:
        """Have a node given a copy, once; a reference to its folder there.

        Args:
            node: Ray's id of it.
            plan: has the population.
        """
        key = (node, plan.population)
        if key not in self._under_way or _has_failed(self._under_way[key]):
            if plan.origin is None:
                raise ValueError("a population without an origin is not copied")
            LOG.info("node %s does not see %s: it is given a copy", node, plan.population)
            sender = None if plan.origin.uri else self._sender(plan.population)
            self._under_way[key] = ray.remote(receive).options(**at(node)).remote(plan.origin, sender)
        return self._under_way[key]

    def _sender(self, folder: Path) -> Any:
        if folder not in self._senders:
            here = at(ray.get_runtime_context().get_node_id())
            self._senders[folder] = ray.remote(Sender).options(**here).remote(folder.resolve())
        return self._senders[folder]


def at(node: str) -> dict[str, Any]:
    """What has something run on a node, whatever else does."""
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def receive(origin: Origin, sender: Any) -> Path:
    """Copy a population into this node's cache, unless it is there; its folder.

    Args:
        origin: which population.
        sender: gives its files; None where its URI does.

    Raises:
        InputError: what came is another population, or the node's cache cannot be written.
        DiskFullError: it does not fit.
    """
    try:
        if origin.uri is None:
            folder = copy_to_cache(
                b"".join(pieces(sender, MANIFEST)), partial(pieces, sender), "the driver's population"
            )
        else:
            folder = fetch(origin.uri)
    except (DiskFullError, RayError):
        raise
    except OSError as error:
        raise InputError(
            f"RAYSIM_CACHE on {platform.node()}: must be a folder that can be written, for its copy of the population "
            f"({error}); set another one there, or mount the population"
        ) from error
    if folder.name != origin.digest:
        raise InputError(f"data.population = {origin.uri!r}: must stay as it was when the run began; run it anew")
    return folder


def pieces(sender: Any, name: str) -> Iterator[bytes]:
    """Give a file of the driver's, piece by piece: while one is written the next one is on its way."""
    following = sender.piece.remote(name, 0)
    for number in range(1, 2**31):
        piece: NDArray[np.uint8] = ray.get(ray.get(following)[0])
        if not piece.size:
            return
        following = sender.piece.remote(name, number)
        yield piece.tobytes()


def _has_failed(reference: Any) -> bool:
    """Whether a copy came to nothing, as where its node died."""
    ready, _ = ray.wait([reference], timeout=0)
    try:
        ray.get(ready)
    except Exception:  # told by the actor that waits for it; another one may fare better
        return True
    return False
