"""Processes of Ray that run whole calls side by side, each with CPUs of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ray

from raysim.common.errors import InputError
from raysim.fleet.fractions import capacity
from raysim.fleet.lost import ActorLostError, take
from raysim.fleet.machine import keep_memory
from raysim.fleet.ray_process import running


class Processes:
    """So many processes on a Ray that starts with the first call; a context that ends what it started.

    Args:
        workers: how many at once; None for as many as the CPUs of this machine, or of the cluster, hold.
        cpus: of each.
        address: of a running cluster; None starts Ray on this machine.

    Raises:
        InputError: the address does not answer, or no node has so many CPUs (from the first call).
    """

    def __init__(self, workers: int | None, cpus: int, address: str | None = None) -> None:
        self._workers, self._cpus = workers, cpus
        self._address = address or os.environ.get("RAY_ADDRESS")
        self._stack = ExitStack()
        self._under_way: dict[Any, Any] = {}
        self._room = 0

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        # Where Ray itself stays, because it was there before, what is under way must not.
        for reference in self._under_way:
            ray.cancel(reference, force=True)
        self._under_way.clear()
        self._stack.close()

    @property
    def busy(self) -> int:
        """How many calls are under way."""
        return len(self._under_way)

    @property
    def free(self) -> bool:
        """Whether another call could run now."""
        return len(self._under_way) < (self._room or self._start())

    def begin(self, key: Any, function: Callable[..., Any], *given: Any) -> None:
        """Have a function run in a process, for `next` to return its value."""
        if not self._room:
            self._start()
        task: Any = ray.remote(num_cpus=self._cpus, max_retries=0)(_call)
        self._under_way[task.remote(function, *given)] = key

    def next(self) -> tuple[Any, Any]:
        """Wait for a call that is under way: its key and its value, or the `ActorLostError` of a process that died."""
        ready, _ = ray.wait(list(self._under_way), num_returns=1)
        key = self._under_way.pop(ready[0])
        try:
            return key, take(ready[0])
        except ActorLostError as error:
            return key, error

    def _start(self) -> int:
        """Have Ray run; how many processes it holds."""
        here = max(1, (os.cpu_count() or 1) // self._cpus)
        self._stack.enter_context(running((self._workers or here) * self._cpus, self._address))
        nodes = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        fitting = int(capacity(self._cpus, nodes))
        if not fitting:
            raise InputError(
                f"fleet.cpus_per_actor = {self._cpus}: must fit a node of Ray's, of which the largest has "
                f"{max(nodes, default=0):g} CPUs; set fewer"
            )
        self._room = min(self._workers or fitting, fitting)
        return self._room


def _call(function: Callable[..., Any], *given: Any) -> Any:
    """What a process does."""
    keep_memory()
    return function(*given)
