"""The Ray that all tests of a process share, and a Ray of several nodes on this machine."""

import gc
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import raysim
from raysim.config.tables import FleetTable
from raysim.fleet.calls import START_SECONDS, fetch_results
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.pool import ActorPool
from raysim.fleet.ray_runtime import NICENESS, environment, lean, patient, running
from raysim.fleet.traffic import Traffic

CPUS = 8
"""Logical CPUs of the shared Ray: enough for its actors, and for those of a test that starts its own."""

NOTICED = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""Settings with which a dead node is noticed after 3 seconds instead of 15."""


def await_actors(pool: ActorPool) -> None:
    """Wait until all actors of a started pool are there, so that the driver trains nothing itself."""
    for actor_print in fetch_results([handle.fingerprint.remote() for handle in pool.handles()], START_SECONDS):
        pool.admit(actor_print)


def moved_since(before: Traffic, now: Traffic) -> Traffic:
    """Return the bytes that were counted after a deep copy of the counts."""
    return Traffic(*(getattr(now, each.name) - getattr(before, each.name) for each in fields(Traffic)))


@contextmanager
def slight() -> Iterator[None]:
    """Make a Ray that starts in the context leave out what no test needs: it takes seconds of a core.

    These are a worker per CPU before an actor wants one, and the agent of each node that answers Prometheus. Actors are
    as urgent as their driver: with Ray's niceness they would hardly run beside other test processes.
    """
    wanted = {"RAY_prestart_worker_first_driver": "0", NICENESS: "0"}
    with environment(wanted), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ray._private.utils, "get_dashboard_dependency_error", lambda: ImportError("left out"), raising=False
        )
        yield


class SharedRay:
    """One Ray of this process and its client actors, started when a test asks for them.

    `raysim.run` and `ClientActors` find this Ray too, because a process has only one.
    """

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._actors: dict[int, raysim.Actors] = {}

    def start(self) -> None:
        """Start Ray unless it runs."""
        if not ray.is_initialized():
            self.end()
            with slight():
                self._ends.enter_context(running(CPUS, None))

    def actors(self, number: int) -> raysim.Actors:
        """Return client actors that have started, so that the driver trains nothing itself."""
        self.start()
        if number not in self._actors:
            actors = self._ends.enter_context(raysim.Actors(number))
            place = actors.place(FleetTable())
            place.pool.start()
            await_actors(place.pool)
            self._actors[number] = actors
        return self._actors[number]

    def place(self, number: int, group: int | None = None) -> ClientActors:
        """Return such actors as a place to work, with a group of blocks per node."""
        return self.actors(number).place(FleetTable() if group is None else FleetTable(group=group))

    def end(self) -> None:
        """End Ray, so that a test can start one of its own."""
        self._actors.clear()
        self._ends.close()


@contextmanager
def sockets_collected() -> Iterator[None]:
    """Collect the sockets that Ray leaves open in the context, where a node is slow to start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@contextmanager
def nodes(*each: Mapping[str, Any], connected: bool = True, noticed: bool = False) -> Iterator[Cluster]:
    """Run a head without CPUs, and nodes.

    Args:
        each: arguments of each node, as `ray.init` takes them.
        connected: whether this process is a driver of it.
        noticed: whether a dead node is noticed soon.
    """
    head = {"num_cpus": 0, "include_dashboard": False, **({"_system_config": NOTICED} if noticed else {})}
    with sockets_collected(), patient(90), lean(), slight():
        cluster = Cluster(True, head_node_args=head)
        if connected:  # before there are other nodes, because older versions of Ray connect to any on this machine
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        for node in each:
            cluster.add_node(**node)
    try:
        yield cluster
    finally:
        if connected:
            ray.shutdown()
        cluster.shutdown()
