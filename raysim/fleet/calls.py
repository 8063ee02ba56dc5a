"""Calls of client actors: the maps that they belong to, their results and deaths, and the limits of their duration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import (
    GetTimeoutError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfDiskError,
    RayActorError,
    RayError,
    RayTaskError,
)

from algorithms import Block, DamagedError, DivergedError, Function, Outcome
from algorithms import InputError as AlgorithmInputError
from algorithms.parts.client_update import round_of
from partitioning.common.disk import DiskFullError
from raysim.common.errors import InputError, ModelsLostError, OutOfMemoryError
from raysim.fleet.dispatch import ActorTask, BlockDispatcher, JoinValues
from raysim.fleet.ray_private import WORKER
from raysim.fleet.traffic import StoredValue

START_SECONDS = 180
"""Time that Ray and actors may take to start. On a busy machine importing torch alone takes many seconds."""


@dataclass(frozen=True)
class ActorTimeouts:
    """Limits after which an actor counts as hung, and after which a run gives up.

    A call may take, from the return of the call before it,

        (floor + factor max(slowest second a sample x its samples, slowest second a block x its blocks)) 2^deaths

    seconds. The slowest values are those of earlier calls of the same kind; before the first call the limit is
    `unseen`. The limit doubles after each actor that was killed for the call, to let slow work finish.

    Args:
        factor: allowed slowdown relative to the slowest earlier call.
        floor: seconds for costs that do not grow with the work, such as fetching models from a busy node.
        unseen: seconds for a call of a kind that has not returned yet.
        retries: number of times that a block runs again after its actor died.
        start: seconds until an actor must be ready.
        starts: failed starts in a row after which an actor is given up, or Ray itself if the run needs it.
        pause: seconds until Ray is started again after a failure.
        place: seconds that an actor waits for resources before a notice.
        look: seconds between two checks for actors that do not answer.
    """

    factor: float = 20
    floor: float = 60
    unseen: float = 20 * START_SECONDS
    retries: int = 3
    start: float = START_SECONDS
    starts: int = 3
    pause: float = 30
    place: float = 15
    look: float = 1


class CallTimes:
    """Measured durations of calls, by the type of their function."""

    def __init__(self) -> None:
        self._latest: dict[type[Any], float] = {}
        self._slowest: dict[type[Any], tuple[float, float]] = {}

    def add(self, function: object, seconds: Sequence[float], samples: int) -> None:
        """Record a call: the duration of each block, and the samples of all blocks."""
        kind, total = type(function), sum(seconds)
        if samples:
            self._latest[kind] = total / samples
        of_sample, of_block = self._slowest.get(kind, (0.0, 0.0))
        self._slowest[kind] = max(of_sample, total / max(1, samples)), max(of_block, *seconds)

    def samples(self, function: object, seconds: float) -> float:
        """Return the number of samples that take this time; 0 before the first call."""
        return seconds / self._latest.get(type(function), float("inf"))

    def limit(self, function: object, samples: int, blocks: int, timeouts: ActorTimeouts) -> float:
        """Return the seconds after which a call counts as hung; see `ActorTimeouts`."""
        if type(function) not in self._slowest:
            return timeouts.unseen
        of_sample, of_block = self._slowest[type(function)]
        return timeouts.floor + timeouts.factor * max(of_sample * samples, of_block * blocks)


END_SECONDS = 10
"""Time that Ray may take to report the death of a killed actor."""

MESSAGE_LENGTH = 300
"""Characters of an error message or of a process's output that are passed on."""

COMPLETE_ERRORS = (InputError, AlgorithmInputError, DamagedError, DivergedError, OutOfMemoryError, DiskFullError)
"""Errors whose message needs no addition."""

STORE_FULL = (
    "a node of Ray has no room for a model: its object store is full, and so is the disk to which it spills; free "
    "space there, or start Ray with a larger --object-store-memory or another --temp-dir"
)
"""Message about a node without memory and disk for models."""


class ActorLostError(RuntimeError):
    """Death of a client actor, with the known cause."""

    def __str__(self) -> str:
        return f"a client actor died: {self.cause}"

    @property
    def cause(self) -> str:
        """Known cause of the death."""
        return str(self.args[0])


def fetch_results(references: Any, timeout: float | None = None) -> Any:
    """Fetch results of actors; raise user errors and divergence unchanged.

    Raises:
        ActorLostError: an actor died before it returned, or its node took the result with it.
        DiskFullError: a node has no room for a model.
        ModelsLostError: an input of the call was lost.
        RuntimeError: actors did not start in time.
    """
    try:
        return ray.get(references, timeout=timeout)
    except (OutOfDiskError, ObjectStoreFullError) as error:
        raise DiskFullError(STORE_FULL) from error
    except RayTaskError as error:
        if isinstance(error.cause, COMPLETE_ERRORS):
            raise error.cause from None
        if isinstance(error.cause, ObjectLostError):
            raise ModelsLostError("models were lost with their node") from error
        raise
    except GetTimeoutError:
        raise RuntimeError(late_message(len(references), START_SECONDS)) from None
    except RayError as error:
        raise ActorLostError(_cause(error) + _last_output(error)) from error


def fetch_start(reference: Any) -> Any:
    """Fetch the answer of a starting actor like `fetch_results`; a lost copy of the population is its death, too."""
    try:
        return fetch_results(reference)
    except ModelsLostError as error:
        raise ActorLostError("its copy of the population was lost on the way") from error


def hung_error(reference: Any, seconds: float) -> ActorLostError:
    """Return the error of an actor that was killed because a call took too long; include its last output."""
    what = f"no answer within {seconds:.0f} s"
    try:
        ray.get(reference, timeout=END_SECONDS)
    except RayError as error:
        return ActorLostError(what + _last_output(error))
    return ActorLostError(what)


def late_message(actors: int, seconds: float) -> str:
    """Return the message about actors that do not start."""
    offers = ray.available_resources()  # type: ignore[no-untyped-call]
    return (
        f"{actors} client actors did not start within {seconds:g} s; the cluster offers {offers}: ask for fewer "
        "actors, or for less per actor"
    )


def _cause(error: RayError) -> str:
    """Return Ray's words for the end of an actor, without its general advice."""
    if isinstance(error, ObjectLostError):
        return "its result was lost with its node"
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    if not isinstance(error, RayActorError):
        return one_line(lines[0] if lines else type(error).__name__)
    if error.actor_init_failed:
        return one_line(lines[-1])
    facts = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): ")
    words = " ".join(line for line in lines[1:] or lines if not facts.match(line))
    words = re.split(r" Some common causes| There are some potential root causes", words)[0]
    return one_line(words.rpartition("Worker exit detail: ")[2]).rstrip(".")


def _last_output(error: RayError) -> str:
    """Return the last lines of an actor's standard error stream, if its log file is on this machine."""
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return ""  # the cause already quotes them
    process, address = re.search(r"\bpid[:=] ?(\d+)", str(error)), re.search(r"\bip[:=] ?([\w.:]+\w)", str(error))
    # Ray has no public function for the folder of a session's logs.
    node: Any = getattr(WORKER.find(), "node", None)
    if node is None or process is None or address is None or address[1] != node.node_ip_address:
        return ""
    for path in Path(node.get_logs_dir_path()).glob(f"worker-*-{process[1]}.err"):
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
        # Ray writes notes of its own at the top; they begin with a colon.
        output = [line for line in lines if line and not line.startswith(":")]
        fatal = [place for place, line in enumerate(output) if line.startswith("Fatal Python error")]
        # Python ends such a dump with a list of modules, which does not help.
        quoted = output[fatal[-1] : fatal[-1] + 3] if fatal else output[-3:]
        return f"; its last output: {one_line(' | '.join(quoted), end=not fatal)}" if quoted else ""
    return ""


def one_line(text: str, end: bool = False) -> str:
    """Return one line of at most `MESSAGE_LENGTH` characters, cut at its end or (with `end`) at its beginning."""
    line = " ".join(text.split())
    if len(line) <= MESSAGE_LENGTH:
        return line
    return f"...{line[-MESSAGE_LENGTH:]}" if end else f"{line[:MESSAGE_LENGTH]}..."


MAX_CLIENTS = 10
"""Clients that a message names."""


@dataclass(eq=False)
class PendingMap:
    """Blocks in progress: those that wait, and outcomes that the caller has not taken yet.

    Divergence is raised for the first diverged block, whichever actor was faster.

    Args:
        function: function of each block.
        blocks: all blocks.
        references: values that all blocks take.
        dispatcher: hands out the blocks.
        deaths: number of actors that may have died of each block.
        outcomes: outcomes that are not taken yet, by first block.
        diverged: errors of blocks that diverged, by first block.
        done: number of blocks with an outcome.
    """

    function: Function
    blocks: Sequence[Block]
    references: Sequence[Any]
    dispatcher: BlockDispatcher
    deaths: Counter[int]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    diverged: dict[int, DivergedError] = field(default_factory=dict)
    done: int = 0

    @cached_property
    def objects(self) -> int:
        """Number of objects that all blocks leave behind."""
        return sum(map(self.function.objects, self.blocks))

    def arguments(self, task: ActorTask) -> tuple[Function, Sequence[Block], Sequence[StoredValue]]:
        """Return the function, blocks and common values of the call for a task."""
        if not task.parts:
            return self.function, [self.blocks[number] for number in task.node.blocks], self.references
        values = tuple(part.value for part in task.parts)
        nodes = tuple(part.node for part in task.parts)
        return JoinValues(self.function, task.node, nodes), [Block(0, (), 0, references=values)], ()

    def add(self, outcome: Outcome) -> None:
        """Record an outcome, which the caller has yet to take."""
        self.outcomes[outcome.node.start] = outcome
        self.done += len(outcome.node.blocks)

    def check(self, start: int) -> None:
        """Raise a divergence if all blocks before it have a value.

        Args:
            start: first block whose outcome is not taken yet.
        """
        if self.diverged and self.dispatcher.reached(start, first := min(self.diverged)):
            raise self.diverged[first]


@dataclass(frozen=True)
class ActorCall:
    """Call of an actor for a task of a map.

    `facts`, `value` and `objects` are references: to facts of the execution, to the joined value, and to the objects
    that the blocks leave behind. `host` is the id of the actor's node.
    """

    map: PendingMap
    task: ActorTask
    actor: int
    host: str
    function: Function
    blocks: Sequence[Block]
    facts: Any
    value: Any
    objects: Sequence[Any]

    @property
    def awaited(self) -> Any:
        """Reference that resolves when the call is done: the value if it comes to the driver, or else the facts."""
        return self.facts if self.task.stays else self.value

    @property
    def deaths(self) -> int:
        """Largest number of actors that may have died of one of its blocks."""
        return max(self.map.deaths[number] for number in self.task.node.blocks)


def spent_message(call: ActorCall, why: ActorLostError) -> str:
    """Return the message about a call whose actors die again and again."""
    function, clients = call.map.function, [c for n in call.task.node.blocks for c in call.map.blocks[n].clients]
    what = type(function).__name__ if (number := round_of(function)) is None else f"round {number}"
    ids = ", ".join(map(str, clients[:MAX_CLIENTS])) + (", ..." if len(clients) > MAX_CLIENTS else "")
    noun = "client" if len(clients) == 1 else "clients"
    return f"{what}: the actor with {noun} {ids} died {call.deaths} times, the last cause: {why.cause}"
