"""Keys of a file that a user's own algorithm ignores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from algorithms import Algorithm, Local, Participation
from algorithms.parts.server import Server
from raysim.config import own

OWN_STEP = "has a step of its own; remove [server]"
OWN_COHORTS = "has a Participation of its own; remove it, or let the algorithm use replace(participation, ...)"
OWN_UPDATES = "has a Local of its own; remove it, or let the algorithm use replace(local, ...)"


def composed_without(
    name: str,
    compose: Callable[..., Any],
    participation: Participation,
    local: Local,
    server: Server,
    default: Server,
) -> dict[str, Any]:
    """Return the algorithm without each part of a file that is not the default, by the part's name.

    A part is left out if the algorithm cannot be composed without it. Compose the algorithm itself afterwards,
    because the user's code may keep the values of its last call.

    Args:
        name: name of the algorithm in the file.
        compose: function of the three parts that returns the algorithm.
        participation, local, server: values of the file.
        default: server rule of a file without one.
    """
    given: dict[str, Any] = {"participation": participation, "local": local, "server": server}
    defaults: dict[str, Any] = {}
    if _changed_keys(participation):
        defaults["participation"] = Participation()
    if _changed_keys(local):
        defaults["local"] = Local()
    if type(server) is not type(default) or getattr(server, "__dict__", {}) != getattr(default, "__dict__", {}):
        defaults["server"] = default
    found = {}
    for part, value in defaults.items():
        try:
            with own.secluded(name):
                found[part] = compose(*(given | {part: value}).values())
        except KeyboardInterrupt:
            raise
        except BaseException:  # The user's code may raise anything; it has used the value then.
            continue
    return found


def ignored_key(
    algorithm: Algorithm, without: Mapping[str, Any], participation: Participation, local: Local, server: Server
) -> tuple[str, str] | None:
    """Return a key of a file that an algorithm surely ignores, and the reason with its remedy; None if there is none.

    An algorithm surely ignores a part of the file if it is the same without the part and contains none of the part's
    values. Nothing is known of a rule, a round or a function that does not equal a second one made alike.

    Args:
        algorithm: composed algorithm.
        without: the algorithm without each part, see `composed_without`.
        participation, local, server: values of the file that the algorithm was composed from.
    """
    phases = list(algorithm.phases)
    if _is_same(algorithm, without.get("server")) and not any(type(each.server) is type(server) for each in phases):
        return "server.rule", OWN_STEP
    if _is_same(algorithm, without.get("participation")):
        drawing = [phase.schedule.participation for phase in phases]
        is_derived = any(each.reporting is participation.reporting for each in drawing)
        keys = _changed_keys(participation)
        if not is_derived and not any(_changed_keys(each).get(key) == keys[key] for each in drawing for key in keys):
            return f"algorithm.{next(iter(keys))}", OWN_COHORTS
    if _is_same(algorithm, without.get("local")):
        training = [phase.local for phase in phases]
        is_derived = any(each.compute is local.compute or each.loss is local.loss for each in training)
        keys = _changed_keys(local)
        if not is_derived and not any(_changed_keys(each).get(key) == keys[key] for each in training for key in keys):
            return f"local.{next(iter(keys))}", OWN_UPDATES
    return None


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
