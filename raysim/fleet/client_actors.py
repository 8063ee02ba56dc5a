"""Client actors on Ray: processes that play many clients, started beside the driver's other work."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import ray

from algorithms import Block, Function, Worker
from algorithms.engine.tree import Node
from raysim.fleet.copies import Copies, found
from raysim.fleet.inline import run_here
from raysim.fleet.lost import ActorLostError, late, take
from raysim.fleet.machine import fingerprint, keep_memory, settle
from raysim.fleet.meter import PUBLISH_SECONDS, Meter
from raysim.fleet.patience import START_SECONDS, Patience
from raysim.fleet.personal import Keeping, reached
from raysim.fleet.placing import ActorResources, Host, check_gpus, check_labels, here, living, places
from raysim.fleet.probe import measure
from raysim.fleet.ray_fleet import RayFleet
from raysim.fleet.ray_process import ANSWER_SECONDS, check_answers, running
from raysim.fleet.traffic import array_bytes
from raysim.fleet.worker_plan import WorkerPlan

if TYPE_CHECKING:
    from raysim.watching.loggers.logger import Logger

LOG = logging.getLogger("raysim")

ENDING: list[threading.Thread] = []
"""Those whose Ray was still starting when nobody wanted it any more: it has to end before another one starts."""


class ClientActor:
    """One process that plays many clients: resident models, pinned threads, memory-mapped shards.

    Args:
        number: its own among the actors.
        threads: that it may use.
        device: "cpu" or "cuda".
        share: its part of the device, in (0, 1].
    """

    def __init__(self, number: int, threads: int, device: str, share: float = 1.0) -> None:
        keep_memory()
        settle(threads)
        self._number, self._device, self._share = number, device, share
        self._worker: Worker | None = None

    def fingerprint(self) -> dict[str, str]:
        """What this process's results depend on."""
        return fingerprint(self._device)

    def measure(self, plan: WorkerPlan, copy: Path | None = None) -> tuple[int, int]:
        """The most bytes that a plan takes of the GPU, and those that it has; `copy` is as for `prepare`."""
        return measure(found(plan, copy))

    def prepare(self, plan: WorkerPlan, keeper: Any = None, copy: Path | None = None) -> tuple[dict[str, str], str]:
        """Set up the bench that the following blocks run on; the fingerprint, and the node that it is on.

        Args:
            plan: of the bench.
            keeper: keeps what clients keep, where the node does not see the folder for it; None where all see it.
            copy: of the population, on this node; None where it has not been given one.

        Raises:
            AbsentError: the population is to be copied to the node.
        """
        if self._worker is not None:
            self._worker.personal.close()
            # Its models go before the next ones come, for a GPU may not hold both; cycles hold some of them.
            self._worker = None
            if self._device != "cpu":
                gc.collect()
        worker = found(plan, copy).build(self._share)
        self._worker = worker if keeper is None else replace(worker, personal=reached(worker.personal, keeper))
        return self.fingerprint(), here()

    def run(self, function: Function, blocks: Sequence[tuple[Block, int]], common: int, *values: Any) -> Any:
        """Run neighbouring blocks.

        Args:
            function: what to do.
            blocks: each with the number of its own values.
            common: how many values all of them take; these come first, then the blocks' own.
            values: what references have come to on the way.

        Returns:
            facts: of the machine, the sizes of the joined value and of the objects, the bytes of the values; then the
            joined value; then each of the objects.
        """
        if self._worker is None:
            raise RuntimeError("a block came before the bench")
        own = iter(values[common:])
        whole = [replace(block, references=tuple(islice(own, count))) for block, count in blocks]
        done = run_here(self._worker, function, Node(0, len(whole)), whole, values[:common], self._number)
        sizes = [array_bytes(thing) for thing in done.objects]
        return (done.machine, array_bytes(done.value), sizes, array_bytes(values)), done.value, *done.objects


class ClientActors:
    """A running Ray with client actors on it; a context that ends what it started.

    Entering it returns at once: Ray and the actors start in the background, while the driver reads its data and, on
    this machine's CPUs, runs the first blocks itself.

    Args:
        actors: how many; None for as many as Ray's nodes hold.
        cpus_per_actor: CPUs of each, and the threads it may use.
        gpus_per_actor: GPUs of each, a fraction or a whole number; 0 computes on the CPU.
        address: of a running cluster; None starts Ray on this machine.
        patience: how long they are waited for, and how often what they leave undone is tried again.
        labels: that the nodes have on which they may be.
        group: blocks that are joined on one of several nodes before anything leaves it, or "auto".

    Raises:
        InputError: the address does not answer, no node has what an actor takes, they do not hold so many, or Ray has
            no such fraction of GPUs (from `handles`, where it comes to light there).
        RuntimeError: the actors do not start in time, or differ in their fingerprint (from the fleet).
    """

    pinned = False
    """Whether each actor has the clients of one site alone."""

    def __init__(
        self,
        actors: int | None,
        cpus_per_actor: int = 1,
        gpus_per_actor: float = 0,
        address: str | None = None,
        patience: Patience = Patience(),
        labels: Mapping[str, str] | None = None,
        group: int | Literal["auto"] = "auto",
    ) -> None:
        check_gpus(gpus_per_actor)
        check_labels(labels or {})
        self._each = ActorResources(cpus_per_actor, gpus_per_actor, labels or {})
        self.patience, self.group, self.home = patience, group, ""
        self.meter = Meter()
        self._address = address or os.environ.get("RAY_ADDRESS")
        if self._address not in (None, "local") and not ray.is_initialized():
            check_answers(self._address)  # now, for before it is used data are read
        self.copies = Copies()
        self._keeping: Keeping | None = None
        self._wanted = actors
        self._cores = actors or max(1, (os.cpu_count() or 1) // cpus_per_actor)
        """Actors that fit a Ray of our own, which has as many CPUs as these take."""
        self._sites: list[int | None] = []
        """Of each actor, once they are created; there they have numbers."""
        self._hosts: list[str] = []
        self._handles: list[Any] = []
        self._prints: list[dict[str, str]] = []
        self._error: BaseException | None = None
        self._up, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, name="ray", daemon=True)
        self.device = "cuda" if gpus_per_actor else "cpu"
        self.arrived = False
        """Whether an actor has ever answered."""

    def __enter__(self) -> ClientActors:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # Not for ever: where Ray still waits for an address, the thread ends with the process, and Ray with it.
        self._thread.join(START_SECONDS if self._up.is_set() else ANSWER_SECONDS)
        ENDING[:] = [thread for thread in (*ENDING, self._thread) if thread.is_alive()]

    @property
    def loggers(self) -> dict[str, Logger]:
        """Who is told of a run beside those that it names: what Ray's own endpoint publishes."""
        return {"prometheus": self.meter}

    @property
    def driver_may_help(self) -> bool:
        """Whether the driver computes the same bytes as the actors: they are on its machine, and on CPUs."""
        return self._is_here and self.device == "cpu" and not self.pinned

    @property
    def _is_here(self) -> bool:
        """Whether Ray is started on this machine."""
        return self._address in (None, "local")

    @property
    def workers(self) -> int:
        """How many actors there are to be; waits for Ray where that follows from its nodes."""
        if self._wanted is not None and not self.pinned:
            return self._wanted
        if self.driver_may_help:
            return self._cores
        self._wait()
        return len(self._sites)

    @property
    def hosts(self) -> list[str]:
        """The nodes that can have an actor; `home` is the driver's."""
        self._wait()
        return self._hosts

    def site(self, number: int) -> int | None:
        """The site whose clients alone an actor may have; None where it may have all."""
        return self._sites[number]

    def handles(self, wait: bool = True) -> list[Any]:
        """The actors' handles; none yet where Ray is still starting and nobody waits for it."""
        if wait or self._up.is_set():
            self._wait()
        return self._handles

    def plan_of(self, number: int, plan: WorkerPlan) -> WorkerPlan:
        """What an actor sets up for a plan."""
        return plan

    def fit(self, plans: Mapping[str, WorkerPlan]) -> None:
        """Nothing is left to choose: what an actor takes was given, and the actors start with Ray."""

    def fleet(
        self,
        plan: WorkerPlan,
        done: Callable[[Block], None] = lambda block: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> RayFleet:
        """A fleet on these actors, each with a bench of its own."""
        return RayFleet(self, plan, done, tell)

    def keeper(self, plan: WorkerPlan) -> Any:
        """What keeps what a plan's clients keep, for nodes that do not see its folder; None where there are none."""
        if self._is_here or not plan.layouts.personal.entries:
            return None
        if self._keeping is None or self._keeping.folder != plan.personal:
            self._keeping = Keeping(plan)
        return self._keeping.handle

    def admit(self, actors: dict[str, str]) -> None:
        """Take note of an actor that has arrived, by its fingerprint.

        Raises:
            RuntimeError: it is not what the others are, or the driver where that has computed as well.
        """
        self._prints.append(actors)
        agreed([*([fingerprint()] if self.driver_may_help else []), *self._prints])
        self.arrived = True

    def replace(self, number: int) -> Any:
        """Have an actor start in the place of one that died, or hangs: then it is ended; the new one's handle."""
        ray.kill(self._handles[number])
        self._handles[number] = self._actor(number, self._kind(self._sites[number]))
        return self._handles[number]

    def room(self, site: int | None = None) -> int:
        """How many actors, of a site, the living nodes hold, if nobody else uses them."""
        return self._kind(site).room(living())

    def wanting(self, site: int | None = None) -> str:
        """What to say where no living node has room."""
        return f"none of Ray's {len(living())} living nodes has the {self._kind(site)} of one"

    @property
    def fingerprint(self) -> dict[str, str]:
        """What all actors' results depend on; where they are on this machine, the driver's own."""
        if self.driver_may_help:
            return fingerprint()
        if not self._prints:
            self._prints.append(self._first_print())
        return dict(self._prints[0])

    def _first_print(self) -> dict[str, str]:
        """The fingerprint of the first actor that answers: the others are compared with it before they run anything."""
        answers = [handle.fingerprint.remote() for handle in self.handles()]
        while True:
            ready, answers = ray.wait(answers, timeout=self.patience.start)
            if not ready:
                raise RuntimeError(late(len(answers), self.patience.start))
            try:
                found: dict[str, str] = take(ready[0])
                return found
            except ActorLostError:
                if not answers:
                    raise

    def _wait(self) -> None:
        """Wait until Ray runs; what went wrong with it is raised here."""
        if not self._up.wait(START_SECONDS):
            raise RuntimeError(f"Ray did not start within {START_SECONDS} s; see its log, or use --inline")
        if self._error is not None:
            raise self._error

    def _live(self) -> None:
        # One thread from start to end: the kernel ends Ray's processes with the thread that started them.
        try:
            for thread in list(ENDING):  # a process has one Ray
                thread.join()
            if not self._over.is_set():
                self._serve()
        except BaseException as error:  # raised again in the thread that asks for the handles
            self._error = error
        self._up.set()

    def _serve(self) -> None:
        """Have Ray run until nobody wants it any more."""
        with running(self._cores * self._each.cpus, self._address):
            self.home = here()
            self._begin()
            self._up.set()
            _tell_of_endpoint()
            while not self._over.wait(PUBLISH_SECONDS):
                self.meter.publish()
            for handle in self._handles:
                ray.kill(handle)

    def _begin(self) -> None:
        """Do what must not wait, as soon as Ray runs."""
        self._create()

    def _create(self) -> None:
        """Have the actors start.

        Raises:
            InputError: what no node can place would wait in silence.
        """
        hosts = living()
        self._sites = self._places(hosts)
        kinds = [self._kind(site) for site in dict.fromkeys(self._sites)]
        self._hosts = [host.name for host in hosts if any(kind.held(host) for kind in kinds)]
        self._handles = [self._actor(number, self._kind(site)) for number, site in enumerate(self._sites)]

    def _places(self, hosts: Sequence[Host]) -> list[int | None]:
        """The site of each actor that there is to be: here none of them has one."""
        return [None] * places(self._each, hosts, self._wanted)

    def _kind(self, site: int | None) -> ActorResources:
        """What an actor of a site takes."""
        return self._each

    def _actor(self, number: int, each: ActorResources) -> Any:
        """Have an actor start that takes so much of a node."""
        # cuBLAS is deterministic only with a workspace of fixed size, which must be set before torch is imported.
        environment = {"env_vars": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}} if each.gpus else {}
        actor = ray.remote(
            num_cpus=each.cpus,
            num_gpus=each.gpus,
            label_selector=dict(each.labels),
            max_restarts=0,
            runtime_env=environment,
        )(ClientActor)
        return actor.remote(number, each.cpus, self.device, min(1.0, each.gpus) or 1.0)


def _tell_of_endpoint() -> None:
    """Log where Prometheus finds what this driver publishes: its node's endpoint, where that has one."""
    here = ray.get_runtime_context().get_node_id()
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["NodeID"] == here and node["MetricsExportPort"] > 0:
            LOG.info("for Prometheus: http://%s:%d/metrics", node["NodeManagerAddress"], node["MetricsExportPort"])


def agreed(prints: Sequence[dict[str, str]]) -> dict[str, str]:
    """The fingerprint that all have; RuntimeError where one differs, for so would its bytes."""
    for other in prints:
        if other != prints[0]:
            raise RuntimeError(f"client actors differ, and so would their bytes: {prints[0]} and {other}")
    return dict(prints[0])
