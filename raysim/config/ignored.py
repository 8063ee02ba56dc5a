"""Keys of a file that a user's own algorithm ignores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from typing import Any, NamedTuple

from algorithms import Algorithm, Local, Participation
from algorithms.parts.server import Server
from raysim.config import own
from raysim.config.check import signature_of

OWN_STEP = "has a step of its own; remove [server]"
OWN_COHORTS = "has a Participation of its own; remove it, or let the algorithm use replace(participation, ...)"
OWN_UPDATES = "has a Local of its own; remove it, or let the algorithm use replace(local, ...)"


class Parts(NamedTuple):
    """Values of a file from which an algorithm is composed, in the order of its function's arguments."""

    participation: Participation
    local: Local
    server: Server


def composed_without(
    name: str, compose: Callable[[Parts], Algorithm], parts: Parts, function: Callable[..., Any]
) -> dict[str, Algorithm]:
    """Return the algorithm without each part of a file that is not the default, by the part's name.

    A part is left out if the algorithm cannot be composed without it. Compose the algorithm itself afterwards,
    because the user's code may keep the values of its last call.

    Args:
        name: name of the algorithm in the file.
        compose: function that composes the algorithm.
        parts: values of the file.
        function: the user's function, whose `server` has the rule of a file without one as its default.
    """
    server, default = parts.server, signature_of(function).parameters["server"].default
    defaults: dict[str, Any] = {}
    if _changed_keys(parts.participation):
        defaults["participation"] = Participation()
    if _changed_keys(parts.local):
        defaults["local"] = Local()
    if type(server) is not type(default) or getattr(server, "__dict__", {}) != getattr(default, "__dict__", {}):
        defaults["server"] = default
    found = {}
    for part, value in defaults.items():
        try:
            # The values that the user's code prints would be those of no algorithm of the file.
            with own.secluded(name), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                found[part] = compose(parts._replace(**{part: value}))
        except KeyboardInterrupt:
            raise
        except BaseException:  # The user's code may raise anything; it has used the value then.
            continue
    return found


def ignored_key(algorithm: Algorithm, without: Mapping[str, Algorithm], parts: Parts) -> tuple[str, str] | None:
    """Return a key of a file that an algorithm surely ignores, and the reason with its remedy; None if there is none.

    An algorithm surely ignores a part of the file if it is the same without the part and contains none of the part's
    values. Nothing is known of a rule, a round or a function that does not equal a second one made alike.

    Args:
        algorithm: composed algorithm.
        without: the algorithm without each part, see `composed_without`.
        parts: values of the file that the algorithm was composed from.
    """
    phases = list(algorithm.phases)
    if _is_same(algorithm, without.get("server")) and not any(
        type(each.server) is type(parts.server) for each in phases
    ):
        return "server.rule", OWN_STEP
    if _is_same(algorithm, without.get("participation")):
        drawing = [phase.schedule.participation for phase in phases]
        is_derived = any(each.reporting is parts.participation.reporting for each in drawing)
        if not is_derived and (key := _unused(parts.participation, drawing)):
            return f"algorithm.{key}", OWN_COHORTS
    if _is_same(algorithm, without.get("local")):
        training = [phase.local for phase in phases]
        is_derived = any(each.compute is parts.local.compute or each.loss is parts.local.loss for each in training)
        if not is_derived and (key := _unused(parts.local, training)):
            return f"local.{key}", OWN_UPDATES
    return None


def _unused(part: Participation | Local, used: Sequence[Participation | Local]) -> str:
    """Return the first key of a part that differs from its default if no used part has any such value; else ""."""
    keys = _changed_keys(part)
    return "" if any(_changed_keys(each).get(key) == keys[key] for each in used for key in keys) else next(iter(keys))


def _is_same(algorithm: Algorithm, other: Any) -> bool:
    """Return whether two algorithms are equal; False if the user's values in them cannot be compared."""
    try:
        return bool(algorithm == other)
    except KeyboardInterrupt:
        raise
    except BaseException:  # The user's code may raise anything, and arrays do.
        return False


def _changed_keys(part: Participation | Local) -> dict[str, Any]:
    """Return the values of a part that differ from the default, by key; the ways to compute apart."""
    if isinstance(part, Local):
        return {key: value for key, value in _changed(part, Local()).items() if key != "compute"}
    found = _changed(part, Participation())
    reporting = found.pop("reporting", None)
    found = {"sampling" if key == "by" else key: value for key, value in found.items()}
    return found if reporting is None else found | _changed(reporting, Participation().reporting)


def _changed(given: Any, default: Any) -> dict[str, Any]:
    """Return the fields of a value that differ from the default's."""
    values = {each.name: getattr(given, each.name) for each in fields(given)}
    return {name: value for name, value in values.items() if value != getattr(default, name)}
