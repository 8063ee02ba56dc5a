"""Pool of Ray processes that run whole calls side by side, each with CPUs of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ray

from raysim.common.errors import InputError, RetriesSpentError
from raysim.fleet.calls import ActorLostError, fetch_results
from raysim.fleet.machine import keep_memory
from raysim.fleet.ray_runtime import running
from raysim.fleet.resources import capacity, living_nodes

LOOK_SECONDS = 15
"""Seconds without a result after which a look follows whether a process still fits a node."""


class ProcessPool:
    """Processes on a Ray that starts with the first call; a context that ends what it started.

    Args:
        workers: number of processes; None for as many as fit the CPUs of this machine or the cluster.
        cpus: CPUs of each process.
        address: address of a running cluster; None to start Ray on this machine.

    Raises:
        InputError: the address does not answer, or a process fits no node (from the first call).
    """

    def __init__(self, workers: int | None, cpus: int, address: str | None = None) -> None:
        self._workers, self._cpus = workers, cpus
        self._address = address or os.environ.get("RAY_ADDRESS")
        self._stack = ExitStack()
        self._under_way: dict[Any, Any] = {}
        self._room = 0

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        # A Ray that was there before stays, so cancel the calls themselves.
        for reference in self._under_way:
            ray.cancel(reference, force=True)
        self._under_way.clear()
        self._stack.close()

    @property
    def busy(self) -> int:
        """Number of calls in progress."""
        return len(self._under_way)

    @property
    def free(self) -> bool:
        """Whether another call could run now."""
        return len(self._under_way) < (self._room or self._start())

    def begin(self, key: Any, function: Callable[..., Any], *given: Any) -> None:
        """Run a function in a process; `next` returns its value with the key."""
        if not self._room:
            self._start()
        task: Any = ray.remote(num_cpus=self._cpus, max_retries=0)(_call)
        self._under_way[task.remote(function, *given)] = key

    def next(self) -> tuple[Any, Any]:
        """Wait for a call, and return its key and its value, or the `ActorLostError` of a process that died.

        Raises:
            RetriesSpentError: no living node has room for a process any more.
        """
        while not (ready := ray.wait(list(self._under_way), num_returns=1, timeout=LOOK_SECONDS)[0]):
            if not capacity(self._cpus, _node_cpus()):  # Ray itself would wait in silence
                raise RetriesSpentError(
                    f"no process is left, and none of Ray's {len(living_nodes())} living nodes has {self._cpus} CPUs; "
                    "start a node that has"
                )
        key = self._under_way.pop(ready[0])
        try:
            return key, fetch_results(ready[0])
        except ActorLostError as error:
            return key, error

    def _start(self) -> int:
        """Start Ray, and return the number of processes that fit it."""
        here = max(1, (os.cpu_count() or 1) // self._cpus)
        self._stack.enter_context(running((self._workers or here) * self._cpus, self._address))
        nodes = _node_cpus()
        fitting = int(capacity(self._cpus, nodes))
        if not fitting:
            raise InputError(
                f"fleet.cpus_per_actor = {self._cpus}: must fit a node of Ray, and the largest has "
                f"{max(nodes, default=0):g} CPUs; set fewer"
            )
        self._room = min(self._workers or fitting, fitting)
        return self._room


def _node_cpus() -> list[float]:
    return [node["Resources"].get("CPU", 0.0) for node in living_nodes()]


def _call(function: Callable[..., Any], *given: Any) -> Any:
    keep_memory()
    return function(*given)
