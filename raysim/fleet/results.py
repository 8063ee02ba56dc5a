"""Results of client actors, and the error of an actor that died."""

from __future__ import annotations

import re
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

from algorithms import DamagedError, DivergedError
from algorithms import InputError as AlgorithmInputError
from partitioning.common.disk import DiskFullError
from raysim.common.errors import InputError, ModelsLostError, OutOfMemoryError
from raysim.fleet.ray_private import WORKER
from raysim.fleet.timeouts import START_SECONDS

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
        own = [line for line in lines if line and not line.startswith(":")]
        fatal = [place for place, line in enumerate(own) if line.startswith("Fatal Python error")]
        # Python ends such a dump with a list of modules, which does not help.
        quoted = own[fatal[-1] : fatal[-1] + 3] if fatal else own[-3:]
        return f"; its last output: {one_line(' | '.join(quoted), end=not fatal)}" if quoted else ""
    return ""


def one_line(text: str, end: bool = False) -> str:
    """Return one line of at most `MESSAGE_LENGTH` characters, cut at its end or (with `end`) at its beginning."""
    line = " ".join(text.split())
    if len(line) <= MESSAGE_LENGTH:
        return line
    return f"...{line[-MESSAGE_LENGTH:]}" if end else f"{line[:MESSAGE_LENGTH]}..."
