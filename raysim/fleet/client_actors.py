"""Client actors on Ray, which start while the driver does other work."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import Any, Literal

import ray

from algorithms import Block
from raysim.common.errors import InputError, RayStartError, of_algorithm
from raysim.common.surface import given
from raysim.data.shards import Sites
from raysim.fleet.client_actor import ClientActor
from raysim.fleet.gpu_sharing import arranged, capacity, fraction, sharers
from raysim.fleet.machine import fingerprint
from raysim.fleet.population_copies import population_copier
from raysim.fleet.prometheus import PUBLISH_SECONDS, PrometheusLogger
from raysim.fleet.ray_fleet import RayFleet
from raysim.fleet.ray_private import START, untold
from raysim.fleet.ray_runtime import ANSWER_SECONDS, check_answers, running
from raysim.fleet.remote_personal import StoreHandle, served_store
from raysim.fleet.resources import (
    ActorResources,
    RayNode,
    actors_that_fit,
    check_gpus,
    check_labels,
    living_nodes,
    this_node,
)
from raysim.fleet.results import ActorLostError, fetch_results, late_message, one_line
from raysim.fleet.timeouts import START_SECONDS, ActorTimeouts
from raysim.fleet.worker_plan import WorkerPlan
from raysim.watching.loggers.logger import Logger

LOG = logging.getLogger("raysim")

ENDING: list[threading.Thread] = []
"""Threads of abandoned Ray starts. They must end before another Ray starts."""


class ClientActors:
    """Pool of client actors on a running Ray; a context that ends what it started.

    The context starts Ray and the actors in the background, while the driver reads its data. On this machine's CPUs the
    driver also runs the first blocks itself. If Ray does not start there, such as on a busy machine, the driver stands
    in for the actors: it runs all blocks, and the context starts Ray again and again until it has actors.

    With `gpus_per_actor = "auto"` or `pinned`, the actors start only in `fit`, which knows the plans. A pinned actor
    has the clients of one site and runs on a node with the label site=NAME. Models travel to it; the data stay.

    Args:
        actors: number of actors, if pinned of each site; None for as many as fit Ray's nodes.
        cpus_per_actor: CPUs and threads of each actor.
        gpus_per_actor: GPUs of each actor, a fraction or a whole number; 0 for the CPU; "auto" for as many actors on a
            GPU as its memory holds.
        address: address of a running cluster; None to start Ray on this machine.
        timeouts: limits for starts and calls, and the number of retries.
        labels: labels of the nodes that may have actors.
        group: blocks that are joined on one of several nodes before anything leaves it, or "auto".
        pinned: whether each actor has the clients of one site only.

    Raises:
        InputError: the address does not answer, or the actors do not fit the nodes, their GPUs or the population's
            sites (some of this only from `handles` or `fit`).
        RayStartError: Ray does not start, and the driver may not stand in.
        RuntimeError: the actors do not start in time, or their fingerprints differ (from the fleet).
    """

    def __init__(
        self,
        actors: int | None,
        cpus_per_actor: int = 1,
        gpus_per_actor: float | Literal["auto"] = 0,
        address: str | None = None,
        timeouts: ActorTimeouts = ActorTimeouts(),
        labels: Mapping[str, str] | None = None,
        group: int | Literal["auto"] = "auto",
        pinned: bool = False,
    ) -> None:
        gpus = 1.0 if gpus_per_actor == "auto" else gpus_per_actor
        check_gpus(gpus)
        check_labels(labels or {})
        self._each = ActorResources(cpus_per_actor, gpus, labels or {})
        self._auto = gpus_per_actor == "auto"
        self.pinned, self.timeouts, self.group, self.home = pinned, timeouts, group, ""
        self.meter = PrometheusLogger()
        self._address = address or os.environ.get("RAY_ADDRESS")
        if self._address not in (None, "local") and not ray.is_initialized():
            check_answers(self._address)  # before the run reads its data
        self._copy_to = population_copier()
        self._store: tuple[WorkerPlan, StoreHandle] | None = None
        self._wanted = actors
        self._cores = actors or max(1, (os.cpu_count() or 1) // cpus_per_actor)
        """Number of actors whose CPUs a Ray of our own has."""
        self._site_names: tuple[str, ...] = ()
        self._sites: list[int | None] = []
        """Site of each actor, once the actors exist."""
        self._hosts: list[str] = []
        self._handles: list[Any] = []
        self._prints: list[dict[str, str]] = []
        self._error: BaseException | None = None
        self._up, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, name="ray", daemon=True)
        self.device = "cuda" if gpus else "cpu"
        self.kept = self.arrived = False
        self.absence = self.unsaid = ""

    def __enter__(self) -> ClientActors:
        if self._thread.ident is None:  # they may be kept from an earlier run
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.kept:
            return
        self._over.set()
        # If Ray still waits for an address, do not wait with it: the thread and Ray end with the process.
        self._thread.join(START_SECONDS if self.home else ANSWER_SECONDS)
        ENDING[:] = [thread for thread in (*ENDING, self._thread) if thread.is_alive()]

    @property
    def loggers(self) -> dict[str, Logger]:
        """Loggers beside those of the experiment: Ray's own endpoint for Prometheus."""
        return {"prometheus": self.meter}

    @property
    def driver_may_help(self) -> bool:
        """Whether the driver computes the same bytes as the actors: on the same machine, and on CPUs."""
        return self._is_here and self.device == "cpu" and not self.pinned

    @property
    def _is_here(self) -> bool:
        return self._address in (None, "local")

    @property
    def workers(self) -> int:
        """Planned number of actors. Waits for Ray if the number depends on its nodes."""
        if self._wanted is not None and not self.pinned:
            return self._wanted
        if self.driver_may_help:
            return self._cores
        self._wait()
        return len(self._sites)

    @property
    def hosts(self) -> list[str]:
        """Ids of the nodes that fit an actor."""
        self._wait()
        return self._hosts

    def site(self, number: int) -> int | None:
        """Return the site whose clients an actor may have; None for all clients."""
        return self._sites[number]

    def handles(self, wait: bool = True) -> list[Any]:
        """Return the actors' handles; none if Ray is still starting and `wait` is false, or if the driver stands in."""
        if wait or self._up.is_set():
            self._wait()
        return self._handles

    def has_started(self) -> bool:
        """Return whether an actor has been ready, or will not be."""
        return self.arrived or bool(self.absence)

    def stand_in(self, absence: str) -> bool:
        """Let the driver run all blocks until an actor is ready; return whether it may.

        Args:
            absence: reason why no actor is ready, for the notice.
        """
        if self.arrived or not self.driver_may_help:
            return False
        if not self.absence:
            self.absence = self.unsaid = absence
        self._up.set()
        return True

    def fit(self, plans: Mapping[str, WorkerPlan]) -> None:
        """Start the actors if their number depends on the plans.

        Args:
            plans: plan of each algorithm, by name.

        Raises:
            InputError: see the class.
            OutOfMemoryError: a plan does not fit a whole GPU.
        """
        if self.pinned:
            self._site_names = _site_names(next(iter(plans.values())).sites)
            self._wait()
            self._create()
        elif self._auto:
            self._wait()
            self._share_gpus(*self._measured(plans))
            self._create()

    def fleet(
        self,
        plan: WorkerPlan,
        done: Callable[[Block], None] = lambda block: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> RayFleet:
        """Return a fleet on these actors, each with a worker of its own."""
        if lacking := untold(START):
            tell(lacking)
        return RayFleet(self, plan, done, tell)

    def prepare(self, number: int, plan: WorkerPlan, copy_to: str | None = None) -> Any:
        """Set up an actor's worker, after a copy of the population to a node if one is named; return a reference."""
        site = self._sites[number]
        own = plan if site is None else replace(plan, here=(self._site_names[site],))
        given = [] if copy_to is None else [self._copy_to(copy_to, plan)]
        return self._handles[number].prepare.remote(own, self._personal(plan), *given)

    def admit(self, actor_print: dict[str, str]) -> None:
        """Accept an actor by its fingerprint.

        Raises:
            RuntimeError: it differs from the other actors, or from the driver if that may have computed as well.
        """
        self._prints.append(actor_print)
        agreed([*([fingerprint()] if self.driver_may_help else []), *self._prints])
        self.arrived = True

    def replace(self, number: int) -> None:
        """Kill an actor and start another one in its place."""
        ray.kill(self._handles[number])
        self._handles[number] = self._actor(number, self._resources(self._sites[number]))

    def room(self, site: int | None = None) -> int:
        """Return the number of actors of a site that fit the living nodes."""
        return self._resources(site).room(living_nodes())

    def shortage(self, site: int | None = None) -> str:
        """Return the message that no living node has room for an actor."""
        return f"none of Ray's {len(living_nodes())} living nodes has the {self._resources(site)} of one"

    @property
    def fingerprint(self) -> dict[str, str]:
        """Properties that all actors' results depend on: the driver's own if the actors are on this machine."""
        if self.driver_may_help:
            return fingerprint()
        if not self._prints:
            self._prints.append(self._first_print())
        return dict(self._prints[0])

    def _first_print(self) -> dict[str, str]:
        """Return the fingerprint of the first actor that answers; `admit` compares the others with it."""
        answers = [handle.fingerprint.remote() for handle in self.handles()]
        while True:
            ready, answers = ray.wait(answers, timeout=self.timeouts.start)
            if not ready:
                raise RuntimeError(late_message(len(answers), self.timeouts.start))
            try:
                found: dict[str, str] = fetch_results(ready[0])
                return found
            except ActorLostError:
                if not answers:
                    raise

    def _personal(self, plan: WorkerPlan) -> StoreHandle | None:
        """Return access to a plan's personal state for nodes that do not see its folder; None without need."""
        if self._is_here or not plan.layouts.personal.entries:
            return None
        if self._store is None or self._store[0].personal != plan.personal:
            self._store = plan, served_store(plan)
        return self._store[1]

    def _wait(self) -> None:
        """Wait until Ray runs or the driver stands in, and raise the error of Ray's start."""
        late = f"Ray did not start within {START_SECONDS} s"
        if not self._up.wait(START_SECONDS) and not self.stand_in(late):
            raise RayStartError(f"{late}; see its log, or use {given('inline')}")
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        # One thread from start to end: the kernel ends Ray's processes with the thread that started them.
        try:
            for thread in list(ENDING):  # a process has one Ray
                thread.join()
            for start in count(1):
                if self._over.is_set() or not (failure := self._serve()):
                    break
                if not self.stand_in(failure) and (start == self.timeouts.starts or not self._is_here):
                    remedy = f"repeat it when the machine is less busy, or use {given('inline')}"
                    raise RayStartError(f"{failure}; {remedy if self._is_here else 'check the cluster'}")
                self._over.wait(self.timeouts.pause)
        except BaseException as error:  # `_wait` raises it in the main thread
            self._error = error
        self._up.set()

    def _serve(self) -> str:
        """Run Ray until the context ends; return the reason if it does not start."""
        with ExitStack() as ray_context:
            try:
                ray_context.enter_context(running(self._cores * self._each.cpus, self._address))
                self.home = this_node()
                if self._auto:
                    self._check_gpu()
                elif not self.pinned:
                    self._create()
            except InputError:
                raise
            except Exception as error:  # Ray has no class for a start that failed
                return f"Ray did not start ({one_line(str(error).partition('. ')[0]) or type(error).__name__})"
            self._up.set()
            _log_endpoint()
            while not self._over.wait(PUBLISH_SECONDS):
                self.meter.publish()
            for handle in self._handles:
                ray.kill(handle)
        return ""

    def _check_gpu(self) -> None:
        if not self._each.room(living_nodes()):
            raise InputError(
                'fleet.gpus_per_actor = "auto": must be a number if Ray has no GPU; set fleet.gpus_per_actor = 0'
            )

    def _share_gpus(self, peak: int, total: int) -> None:
        """Set the number of actors and their GPU share.

        Args:
            peak: most bytes that a plan takes of a GPU.
            total: bytes of a GPU.
        """
        held, nodes = sharers(peak, total), [node for node in living_nodes() if self._each.on(node)]
        gpus = int(capacity(1, [node["Resources"]["GPU"] for node in nodes]))
        places = replace(self._each, gpus=0).room(nodes)
        self._wanted, shared = arranged(held, gpus, places, self._wanted)
        self._each = replace(self._each, gpus=fraction(shared))
        LOG.info(
            'fleet.gpus_per_actor = "auto": a block takes %d of %d MiB, so a GPU holds %d actors; %d of %g GPU each',
            *(peak >> 20, total >> 20, held, self._wanted, self._each.gpus),
        )

    def _measured(self, plans: Mapping[str, WorkerPlan]) -> tuple[int, int]:
        """Measure the most bytes that a plan takes of a GPU, and the GPU's bytes, in an actor with a whole GPU."""
        probe = self._actor(0, self._each)
        try:
            fetch_results([probe.fingerprint.remote()], START_SECONDS)
            measured: list[tuple[int, int]] = []
            for name, plan in plans.items():
                with of_algorithm(name):
                    taken, node = fetch_results(probe.measure.remote(plan))
                    if taken is None:
                        taken, _ = fetch_results(probe.measure.remote(plan, self._copy_to(node, plan)))
                    measured.append(taken)
            return max(measured)
        finally:
            ray.kill(probe)

    def _create(self) -> None:
        """Start the actors.

        Raises:
            InputError: an actor fits no node. Ray itself would wait in silence.
        """
        nodes = living_nodes()
        self._sites = self._planned_sites(nodes)
        kinds = [self._resources(site) for site in dict.fromkeys(self._sites)]
        self._hosts = [node["NodeID"] for node in nodes if any(kind.on(node) for kind in kinds)]
        self._handles = [self._actor(number, self._resources(site)) for number, site in enumerate(self._sites)]

    def _planned_sites(self, nodes: Sequence[RayNode]) -> list[int | None]:
        """Return the site of each actor to start; None for an actor that is not pinned."""
        if not self.pinned:
            return [None] * actors_that_fit(self._each, nodes, self._wanted)
        return [
            site
            for site, name in enumerate(self._site_names)
            for _ in range(actors_that_fit(self._resources(site), nodes, self._wanted, f" of site {name!r}"))
        ]

    def _resources(self, site: int | None) -> ActorResources:
        return self._each if site is None else self._each.at(self._site_names[site])

    def _actor(self, number: int, each: ActorResources) -> Any:
        # cuBLAS is deterministic only with a workspace of fixed size, set before torch is imported.
        environment = {"env_vars": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}} if each.gpus else {}
        actor = ray.remote(
            num_cpus=each.cpus,
            num_gpus=each.gpus,
            label_selector=dict(each.labels),
            max_restarts=0,
            runtime_env=environment,
        )(ClientActor)
        return actor.remote(number, each.cpus, self.device, min(1.0, each.gpus) or 1.0)


def _site_names(sites: Sites | None) -> tuple[str, ...]:
    """Return the names of the population's sites.

    Raises:
        InputError: the population has no sites, or a client has none.
    """
    if sites is None:
        raise InputError(
            "fleet.pinned = true: must be used with a population that has sites, and this one has none; set "
            "fleet.pinned = false, or make the population with a column of sites"
        )
    if (without := (sites.numbers == len(sites.names)).sum()) > 0:
        raise InputError(
            f"fleet.pinned = true: every client must have a site, and {without} have none; set fleet.pinned = false, "
            "or make the population with a site for each client"
        )
    return sites.names


def _log_endpoint() -> None:
    """Log the URL at which Prometheus finds this driver's numbers, if its node has one."""
    here = this_node()
    for node in living_nodes():
        if node["NodeID"] == here and node["MetricsExportPort"] > 0:
            LOG.info("for Prometheus: http://%s:%d/metrics", node["NodeManagerAddress"], node["MetricsExportPort"])


def agreed(prints: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the fingerprint that all actors have; raise RuntimeError if one differs."""
    for other in prints:
        if other != prints[0]:
            raise RuntimeError(f"client actors differ, and their bytes would differ too: {prints[0]} and {other}")
    return dict(prints[0])
