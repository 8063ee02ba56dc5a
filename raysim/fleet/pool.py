"""Pool of a run's client actors: it starts and replaces them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import ray

from raysim.common.errors import InputError
from raysim.fleet.calls import START_SECONDS, ActorLostError, ActorTimeouts, fetch_results, late_message
from raysim.fleet.client_actor import ClientActor
from raysim.fleet.gpu_sharing import measured_by, shared_gpus
from raysim.fleet.machine import fingerprint
from raysim.fleet.outlook import Outlook
from raysim.fleet.prometheus import PrometheusLogger
from raysim.fleet.ray_runtime import RayThread, check_answers
from raysim.fleet.remote_files import FileServer, StoreHandle
from raysim.fleet.resources import ActorDemand, ActorResources, living_nodes, site_names
from raysim.fleet.worker_plan import WorkerPlan


class ActorPool:
    """Client actors on a Ray that starts in the background, while the driver reads its data.

    On this machine's CPUs the driver also runs the first blocks itself. If the number of actors is left to raysim, Ray
    starts there only when the rest of the run is long enough for it. If Ray or its actors do not start, such as on a
    busy machine, the driver stands in for the actors: it runs all blocks until an actor is ready.

    If their number depends on the plans, the actors start only in `fit`.

    Args:
        demand: number and resources of the actors.
        address: address of a running cluster; None to start Ray on this machine.
        timeouts: limits for starts and calls, and the number of retries.

    Raises:
        InputError: the address does not answer.
    """

    def __init__(self, demand: ActorDemand, address: str | None, timeouts: ActorTimeouts = ActorTimeouts()) -> None:
        address = address or os.environ.get("RAY_ADDRESS")
        self.is_here = address in (None, "local") and not (ray.is_initialized() and len(living_nodes()) > 1)
        """Whether Ray runs on this machine alone, whose processes see all files."""
        if address is not None and not self.is_here and not ray.is_initialized():
            check_answers(address)  # before the run reads its data
        self.demand, self.timeouts = demand, timeouts
        self.device = "cuda" if demand.each.gpus else "cpu"
        self.driver_may_help = self.is_here and self.device == "cpu" and not (demand.pinned or demand.each.labels)
        """Whether the driver may run blocks: on this machine's CPUs, unless actors are bound to sites or labels."""
        self.starts_late = self.driver_may_help and demand.number is None
        """Whether Ray waits until the run proves long."""
        self._outlook: Outlook | None = None  # Ray's thread reads it in one step: the main thread may clear it
        self.meter = PrometheusLogger()
        self.arrived = False
        """Whether an actor has ever been ready."""
        self.absence = ""
        """Reason why the driver stands in for the actors; "" if it does not."""
        self._notice = ""
        self._cores = demand.number or max(1, (os.cpu_count() or 1) // demand.each.cpus)
        """Number of actors whose CPUs a Ray of our own has."""
        calls = self._serving, self.stand_in, self.meter.publish, lambda: not (o := self._outlook) or o.is_long
        self._ray = RayThread(self._cores * demand.each.cpus, address, timeouts, *calls)
        self.sites: list[int | None] = []
        """Site whose clients each actor may have, once the actors exist; None for all clients."""
        self._hosts: list[str] = []
        self._handles: list[Any] = []
        self._print: dict[str, str] | None = None
        self._files = FileServer()

    def start(self) -> None:
        """Start Ray and the actors in the background, unless they are started."""
        self._ray.start()

    def end(self) -> None:
        """End the actors, and Ray if the pool started it."""
        self._ray.end()

    @property
    def waits_for(self) -> Literal["length", "start", ""]:
        """Cause of a wait for actors: "length" until the run proves long, "start" while Ray starts, or ""."""
        return "length" if self.starts_late and not self._ray.is_released else "start" if self._ray.is_starting else ""

    @property
    def home(self) -> str:
        """Id of the driver's node; "" before Ray runs."""
        return self._ray.home

    @property
    def workers(self) -> int:
        """Planned number of actors. Waits for Ray if the number depends on its nodes."""
        if self.demand.number is not None and not self.demand.pinned:
            return self.demand.number
        if self.driver_may_help:
            return self._cores
        self._ray.wait()
        return len(self.sites)

    @property
    def hosts(self) -> list[str]:
        """Ids of the nodes that fit an actor."""
        self._ray.wait()
        return self._hosts

    @property
    def fingerprint(self) -> dict[str, str]:
        """Properties that all actors' results depend on: the driver's own if the actors are on this machine."""
        if self.driver_may_help:
            return fingerprint()
        self._print = self._print or self._first_print()
        return dict(self._print)

    def handles(self, wait: bool = True) -> list[Any]:
        """Return the actors' handles; none if Ray is not there yet and `wait` is false, or if the driver stands in."""
        if wait:
            self._outlook = None  # nothing is left that the driver may run meanwhile
        self._ray.wait(START_SECONDS if wait else 0)
        return self._handles

    def stand_in(self, absence: str) -> bool:
        """Let the driver run all blocks until an actor is ready; return whether it may.

        Args:
            absence: reason why no actor is ready, for the notice.
        """
        if self.arrived or not self.driver_may_help:
            return False
        if not self.absence:
            self.absence = self._notice = absence
        return True

    def take_notice(self) -> str:
        """Return the reason why the driver stands in, once; "" after that, or without such a reason."""
        notice, self._notice = self._notice, ""
        return notice

    def skip(self, updates: int) -> None:
        """Leave client updates out of those that `fit` was told of: an earlier command ran them."""
        if self._outlook is not None:
            self._outlook.skip(updates)

    def ran_here(self, updates: int) -> None:
        """Record client updates that the driver ran; Ray starts when the rest of the run proves long."""
        if self._outlook is not None:
            self._outlook.add(updates)

    def fit(self, plans: Mapping[str, WorkerPlan], updates: int) -> None:
        """Start the actors if their number depends on the plans; let Ray start late if the run is to prove long first.

        Raises:
            InputError: the actors do not fit the nodes, their GPUs or the population's sites.
            OutOfMemoryError: a plan does not fit a whole GPU.
        """
        if self.starts_late and not self._ray.is_begun:
            self._outlook = Outlook(updates)
            self.start()
        if not self.demand.waits:
            return
        if self.demand.pinned:
            self.demand = replace(self.demand, sites=site_names(next(iter(plans.values())).sites))
        self._ray.wait()
        if self.demand.by_memory:
            blocks = max(plan.blocks for plan in plans.values())
            self.demand = shared_gpus(self.demand, *self._measured(plans), living_nodes(), blocks)
        self._create()

    def prepare(self, number: int, plan: WorkerPlan, store: StoreHandle | None, copy_to: str | None = None) -> Any:
        """Set up an actor's worker, after a copy of the population to a node if one is named; return a reference."""
        site = self.sites[number]
        there = plan if site is None else replace(plan, here=(self.demand.sites[site],))
        copies = [] if copy_to is None else [self._files.copy_to(copy_to, plan)]
        return self._handles[number].prepare.remote(there, store, *copies)

    def forget_copies(self, plan: WorkerPlan) -> None:
        """End the sender of a plan's population, because all actors are set up."""
        self._files.forget(plan.population)

    def admit(self, actor_print: dict[str, str]) -> None:
        """Accept an actor by its fingerprint.

        Raises:
            RuntimeError: it differs from the other actors, or from the driver if that may have computed as well.
        """
        first = self.fingerprint if self.driver_may_help or self._print else actor_print
        if actor_print != first:
            raise RuntimeError(f"client actors differ, and their bytes would differ too: {first} and {actor_print}")
        self._print = first
        self.arrived = True

    def replace(self, number: int) -> None:
        """Kill an actor and start another one in its place."""
        ray.kill(self._handles[number])
        self._handles[number] = self._actor(number, self.demand.of(self.sites[number]))

    def room(self, site: int | None = None) -> int:
        """Return the number of actors of a site that fit the living nodes."""
        return self.demand.of(site).room(living_nodes())

    def shortage(self, site: int | None) -> str:
        """Return the message that no living node has room for an actor."""
        return f"none of Ray's {len(living_nodes())} living nodes has the {self.demand.of(site)} of one"

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Have the actors in the context, on the running Ray; raise an error before it if they do not fit."""
        if self.demand.by_memory:
            if not self.room():
                raise InputError(
                    'fleet.gpus_per_actor = "auto": must be a number if Ray has no GPU; set fleet.gpus_per_actor = 0'
                )
        elif not self.demand.waits:
            self._create()
        try:
            yield
        finally:
            for handle in self._handles:
                ray.kill(handle)

    def _create(self) -> None:
        """Start the actors.

        Raises:
            InputError: an actor fits no node. Ray itself would wait in silence.
        """
        nodes = living_nodes()
        self.sites = self.demand.planned(nodes)
        kinds = [self.demand.of(site) for site in dict.fromkeys(self.sites)]
        self._hosts = [node["NodeID"] for node in nodes if any(kind.on(node) for kind in kinds)]
        self._handles = [self._actor(number, self.demand.of(site)) for number, site in enumerate(self.sites)]

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

    def _measured(self, plans: Mapping[str, WorkerPlan]) -> tuple[int, int]:
        """Measure the most bytes that a plan takes of a GPU, and the GPU's bytes, in an actor with a whole GPU."""
        probe = self._actor(0, self.demand.each)
        try:
            return measured_by(probe, plans, self._files.copy_to)
        finally:
            ray.kill(probe)

    def _first_print(self) -> dict[str, str]:
        """Return the fingerprint of the first actor that answers; `admit` compares the others with it."""
        answers = [handle.fingerprint.remote() for handle in self.handles()]
        while True:
            ready, answers = ray.wait(answers, timeout=self.timeouts.start)
            if not ready:
                raise RuntimeError(late_message(len(answers), self.timeouts.start))
            try:
                return dict(fetch_results(ready[0]))
            except ActorLostError:
                if not answers:
                    raise
