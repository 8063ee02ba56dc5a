"""The fleet on Ray: client actors with explicit resources, and references that go from actor to actor."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from algorithms import Block, Function, Outcome
from algorithms import InputError as AlgorithmInputError
from partitioning import InputError
from raysim.fleet.bench import BenchPlan
from raysim.fleet.machine import fingerprint, settle
from raysim.fleet.traffic import INLINE_LIMIT, Traffic, array_bytes

START_SECONDS = 180
"""How long actors may take to start: on a busy machine importing torch alone takes many seconds."""

ANSWER_SECONDS = 10
"""How long the head of a cluster may take to answer."""

CALLS_IN_FLIGHT = 2
"""Blocks an actor holds at once: while one runs, the next one's values are fetched."""


class ClientActor:
    """One process that plays many clients: a resident model, pinned threads, memory-mapped shards."""

    def __init__(self, number: int, threads: int, device: str) -> None:
        settle(threads)
        self._number = number
        self._device = device
        self._bench: Any = None

    def fingerprint(self) -> dict[str, str]:
        """What this process's results depend on."""
        return fingerprint(self._device)

    def prepare(self, plan: BenchPlan) -> None:
        """Set up the bench that the following blocks run on."""
        if self._bench is not None:
            self._bench.kept.close()
        self._bench = plan.build(self._device)

    def run(self, function: Function, block: Block, *values: Any) -> Any:
        """Run a block; its value, the sizes of its objects and facts of the machine come first, then the objects."""
        started = time.perf_counter()
        output = function(self._bench, block, *values)
        machine = {"seconds": time.perf_counter() - started, "actor": float(self._number)}
        sizes = [array_bytes(thing) for thing in output.objects]
        first = output.value, sizes, array_bytes(values), machine
        return (first, *output.objects) if output.objects else first


class ClientActors:
    """A running Ray with client actors on it; a context that ends what it started.

    Args:
        actors: how many.
        cpus_per_actor: CPUs of each, and the threads it may use.
        gpus_per_actor: GPUs of each, a fraction or a whole number; 0 computes on the CPU.
        address: of a running cluster; None starts Ray on this machine.

    Raises:
        InputError: the address does not answer, the cluster is too small, or Ray has no such fraction of GPUs.
        RuntimeError: the actors do not start in time, or differ in their fingerprint (when the context is entered).
    """

    def __init__(
        self, actors: int, cpus_per_actor: int = 1, gpus_per_actor: float = 0, address: str | None = None
    ) -> None:
        if gpus_per_actor > 1 and gpus_per_actor != int(gpus_per_actor):
            raise InputError(
                f"fleet.gpus_per_actor = {gpus_per_actor}: must be a fraction below 1 or a whole number; set it to "
                f"{int(gpus_per_actor)}"
            )
        self._actors, self._cpus, self._gpus, self._address = actors, cpus_per_actor, gpus_per_actor, address
        self._started = False
        self.handles: list[Any] = []

    def __enter__(self) -> ClientActors:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            ray.kill(handle)
        if self._started:
            ray.shutdown()

    def _start(self) -> None:
        if not ray.is_initialized():
            _start_ray(self._actors * self._cpus, self._address)
            self._started = True
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        for kind, each in (("CPU", self._cpus), ("GPU", self._gpus)):
            if self._actors * each > there.get(kind, 0):
                raise InputError(
                    f"fleet.actors = {self._actors} of {each:g} {kind} each: must fit the {there.get(kind, 0):g} "
                    f"{kind} that Ray has; set fewer fleet.actors, or a smaller fleet.{kind.lower()}s_per_actor"
                )
        device = "cuda" if self._gpus else "cpu"
        # cuBLAS is deterministic only with a workspace of fixed size, which must be set before torch is imported.
        environment = {"env_vars": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}} if self._gpus else {}
        actor = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_restarts=0, runtime_env=environment)(
            ClientActor
        )
        self.handles = [actor.remote(number, self._cpus, device) for number in range(self._actors)]
        self.fingerprint = self._shared_fingerprint()

    def fleet(self, plan: BenchPlan, done: Callable[[Block], None] = lambda block: None) -> RayFleet:
        """A fleet on these actors, each with a bench of its own."""
        return RayFleet(self.handles, plan, done)

    def _shared_fingerprint(self) -> dict[str, str]:
        try:
            prints = ray.get([handle.fingerprint.remote() for handle in self.handles], timeout=START_SECONDS)
        except GetTimeoutError:
            offers = ray.available_resources()  # type: ignore[no-untyped-call]
            raise RuntimeError(
                f"{len(self.handles)} client actors did not start within {START_SECONDS} s; the cluster offers "
                f"{offers}: ask for fewer actors, or less for each"
            ) from None
        return agreed(prints)


def agreed(prints: Sequence[dict[str, str]]) -> dict[str, str]:
    """The fingerprint that all actors have; RuntimeError where one differs, for so would its bytes."""
    for other in prints:
        if other != prints[0]:
            raise RuntimeError(f"client actors differ, and so would their bytes: {prints[0]} and {other}")
    return dict(prints[0])


class RayFleet:
    """Runs blocks on client actors: the longest first, an idle actor taking the next.

    Args:
        handles: of the running actors.
        plan: what to set up in each.
        done: called after each block.
    """

    def __init__(self, handles: list[Any], plan: BenchPlan, done: Callable[[Block], None]) -> None:
        self.census = plan.census()
        self.placement = plan.placement()
        self.block_size = plan.block_size
        self.traffic = Traffic()
        self._handles = handles
        self._done = done
        _take([handle.prepare.remote(plan) for handle in self._handles])

    def put(self, value: Any) -> ray.ObjectRef[Any]:
        """Put a value into the object store, once for all blocks."""
        self.traffic.driver += array_bytes(value)
        return ray.put(value)

    def map(self, function: Function, blocks: Sequence[Block], references: Sequence[Any] = ()) -> list[Outcome]:
        """Run the function on every block; the outcomes come in the blocks' order."""
        waiting = Queue(blocks, len(self._handles))
        running: dict[Any, tuple[int, int, list[Any]]] = {}
        outcomes: list[Outcome | None] = [None] * len(blocks)

        def send(actor: int) -> None:
            index = waiting.next(actor)
            if index is not None:
                first, *objects = self._send(actor, function, blocks[index], references)
                running[first] = (actor, index, objects)

        for _ in range(CALLS_IN_FLIGHT):
            for actor in range(len(self._handles)):
                send(actor)
        while running:
            (first,), _ = ray.wait(list(running), num_returns=1)
            actor, index, objects = running.pop(first)
            outcomes[index] = self._receive(first, objects)
            send(actor)
            self._done(blocks[index])
        return [outcome for outcome in outcomes if outcome is not None]

    def close(self) -> None:
        """Nothing to release: the actors end with their context."""

    def _send(self, actor: int, function: Function, block: Block, references: Sequence[Any]) -> list[Any]:
        count = 1 + function.objects(block)
        bare = replace(block, references=())
        # References are top-level arguments, so Ray resolves them at the actor, straight from where they were made.
        call = self._handles[actor].run.options(num_returns=count)
        returned = call.remote(function, bare, *references, *block.references)
        return [returned] if count == 1 else list(returned)

    def _receive(self, first: Any, objects: list[Any]) -> Outcome:
        value, sizes, taken, machine = _take(first)
        self.traffic.driver += array_bytes(value)
        self.traffic.inlined += sum(size for size in sizes if size < INLINE_LIMIT)
        self.traffic.moved += taken
        return Outcome(value, tuple(objects), machine)


class Queue:
    """Blocks that wait, longest first; of equally long ones an actor prefers those of its own range of clients."""

    def __init__(self, blocks: Sequence[Block], actors: int) -> None:
        self._sizes = [block.size for block in blocks]
        self._owner = [number * actors // len(blocks) for number in range(len(blocks))]
        self._waiting = set(range(len(blocks)))

    def next(self, actor: int) -> int | None:
        """The next block for an idle actor."""
        if not self._waiting:
            return None
        index = min(self._waiting, key=lambda i: (-self._sizes[i], self._owner[i] != actor, i))
        self._waiting.remove(index)
        return index


def _start_ray(cpus: int, address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = address or os.environ.get("RAY_ADDRESS")
    if address and address != "local":
        check_answers(address)
        ray.init(address=address, **quiet)
    else:
        # As many logical CPUs as the actors take: more actors than cores share them, and give the same bytes.
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)


def check_answers(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    wrong = f"--address = {address!r}: must be HOST:PORT of a running Ray cluster"
    if not host or not port.isdecimal():
        raise InputError(f"{wrong}; leave it out to start Ray here")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"{wrong}, and nothing answers there ({error}); leave it out to start Ray here") from None


def _take(references: Any) -> Any:
    """Fetch values of actors; an error that a user can mend comes as it was raised."""
    try:
        return ray.get(references)
    except RayTaskError as error:
        if isinstance(error.cause, (InputError, AlgorithmInputError)):
            raise error.cause from None
        raise
    except RayActorError as error:
        raise RuntimeError(f"a client actor died: {error}") from error
