"""Taking what actors return, and what can be said of one that returns nothing any more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError, RayTaskError

from algorithms import DivergedError
from algorithms import InputError as AlgorithmInputError
from partitioning.common.disk import DiskFullError
from raysim.common.errors import InputError, ModelsLostError, OutOfMemoryError
from raysim.fleet.patience import START_SECONDS

ENDED_SECONDS = 10
"""How long Ray may take to say of an actor that was killed that it is dead."""

WORDS = 300
"""Characters of a message, or of what a process wrote, that are passed on."""


class AbsentError(RuntimeError):
    """A node does not see the population, and may have a copy of it: its id."""

    @property
    def node(self) -> str:
        """Ray's id of the node."""
        return str(self.args[0])


TOLD = (InputError, AlgorithmInputError, DivergedError, OutOfMemoryError, DiskFullError, AbsentError)
"""The errors that say all there is to say."""


class ActorLostError(RuntimeError):
    """A client actor died: its last words."""

    def __str__(self) -> str:
        return f"a client actor died: {self.words}"

    @property
    def words(self) -> str:
        """What is known of its end."""
        return str(self.args[0])


def take(references: Any, timeout: float | None = None) -> Any:
    """Fetch values of actors; an error that a user can mend, or training that diverged, comes as it was raised.

    Raises:
        ActorLostError: an actor died before it returned, or with its node what it returned.
        ModelsLostError: what it was to work with was lost.
        RuntimeError: actors did not start in time.
    """
    try:
        return ray.get(references, timeout=timeout)
    except RayTaskError as error:
        if isinstance(error.cause, TOLD):
            raise error.cause from None
        if isinstance(error.cause, ObjectLostError):
            raise ModelsLostError("models were lost with the node that they were on") from error
        raise
    except GetTimeoutError:
        raise RuntimeError(late(len(references), START_SECONDS)) from None
    except RayError as error:
        raise ActorLostError(_cause(error) + _written(error)) from error


def hung(reference: Any, seconds: float) -> ActorLostError:
    """The error of an actor that was ended because a call took so long: that, and what it wrote last."""
    what = f"no answer within {seconds:.0f} s"
    try:
        ray.get(reference, timeout=ENDED_SECONDS)
    except RayError as error:
        return ActorLostError(what + _written(error))
    return ActorLostError(what)


def late(actors: int, seconds: float) -> str:
    """What to say of actors that do not start."""
    offers = ray.available_resources()  # type: ignore[no-untyped-call]
    return (
        f"{actors} client actors did not start within {seconds:g} s; the cluster offers {offers}: ask for fewer "
        "actors, or less for each"
    )


def _cause(error: RayError) -> str:
    """Ray's own words for an actor's end, without those that it has for every end."""
    if isinstance(error, ObjectLostError):
        return "what it returned was lost with its node"
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    if not isinstance(error, RayActorError):
        return _short(lines[0] if lines else type(error).__name__)
    if error.actor_init_failed:
        return _short(lines[-1])
    facts = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): ")
    told = " ".join(line for line in lines[1:] or lines if not facts.match(line))
    told = re.split(r" Some common causes| There are some potential root causes", told)[0]
    return _short(told.rpartition("Worker exit detail: ")[2]).rstrip(".")


def _written(error: RayError) -> str:
    """The last lines that an actor wrote to its standard error stream, if any, where that is a file of this machine."""
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return ""  # the cause is what it wrote
    process, address = re.search(r"\bpid[:=] ?(\d+)", str(error)), re.search(r"\bip[:=] ?([\w.:]+\w)", str(error))
    # There is no public way to the folder of a session's logs.
    node: Any = ray._private.worker.global_worker.node
    if process is None or address is None or address[1] != node.node_ip_address:
        return ""
    for path in Path(node.get_logs_dir_path()).glob(f"worker-*-{process[1]}.err"):
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
        # Ray itself begins the file with notes that begin with a colon.
        own = [line for line in lines if line and not line.startswith(":")]
        fatal = [place for place, line in enumerate(own) if line.startswith("Fatal Python error")]
        # Python ends such a dump with a list of modules, which says nothing.
        told = own[fatal[-1] : fatal[-1] + 3] if fatal else own[-3:]
        return f"; it wrote last: {_short(' | '.join(told), last=not fatal)}" if told else ""
    return ""


def _short(text: str, last: bool = False) -> str:
    """One line of no more than so many characters, the first or the last ones."""
    line = " ".join(text.split())
    if len(line) <= WORDS:
        return line
    return f"...{line[-WORDS:]}" if last else f"{line[:WORDS]}..."
