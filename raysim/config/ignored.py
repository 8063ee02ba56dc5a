"""Keys of a file that a user's own algorithm ignores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from algorithms import Algorithm, Local, Participation
from algorithms.parts.server import Server

OWN_STEP = "has a step of its own; remove [server]"
OWN_COHORTS = "has a Participation of its own; remove it, or let the algorithm use replace(participation, ...)"
OWN_UPDATES = "has a Local of its own; remove it, or let the algorithm use replace(local, ...)"


def ignored_key(
    algorithm: Algorithm, participation: Participation, local: Local, server: Server, default: Server
) -> tuple[str, str] | None:
    """Return a key of a file that an algorithm surely ignores, and the reason with its remedy; None if there is none.

    A part that the algorithm has derived from the file's by `replace` ignores nothing.

    Args:
        algorithm: composed algorithm.
        participation, local, server: values of the file that the algorithm was composed from.
        default: server rule of a file without one.
    """
    phases = list(algorithm.phases)
    is_default = type(server) is type(default) and getattr(server, "__dict__", {}) == getattr(default, "__dict__", {})
    if not is_default and not any(type(part) is type(server) for part in _parts(algorithm)):
        return "server.rule", OWN_STEP
    drawing = [phase.schedule.participation for phase in phases]
    if not any(each.reporting is participation.reporting for each in drawing):
        for field in _ignored(participation, drawing, Participation(), "reporting"):
            return f"algorithm.{'sampling' if field == 'by' else field}", OWN_COHORTS
        for field in _ignored(participation.reporting, [each.reporting for each in drawing], Participation().reporting):
            return f"algorithm.{field}", OWN_COHORTS
    training = [phase.local for phase in phases]
    if not any(each.compute is local.compute or each.loss is local.loss for each in training):
        for field in _ignored(local, training, Local(), "compute"):
            return f"local.{field}", OWN_UPDATES
    return None


def _ignored(given: Any, used: Sequence[Any], default: Any, but: str = "") -> Iterator[str]:
    """Yield the fields of a given value that differ from the default and from all used values."""
    for name in (each.name for each in fields(given) if each.name != but):
        value = getattr(given, name)
        if value != getattr(default, name) and all(value != getattr(each, name) for each in used):
            yield name


def _parts(value: Any) -> Iterator[Any]:
    """Yield all parts of a value made of dataclasses, tuples and plain objects."""
    yield value
    inner = value if isinstance(value, tuple | list) else ()
    if is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, each.name) for each in fields(value)]
    for part in inner:
        yield from _parts(part)
