"""Keys of former versions, refused with the key that replaces them."""

from __future__ import annotations

from collections.abc import Mapping

from raysim.common.errors import InputError

RENAMED: Mapping[str, str] = {"merge_every": "aggregate_every", "weigh": "weighting", "place": "sharing"}
"""New names by old name, in any table."""

REMOVED: Mapping[str, str] = {"fleet.transport": "models always travel through host memory"}
"""Reasons by path of a removed key."""


def refuse_old_key(path: str, value: object = None) -> None:
    """Raise InputError if a former version had this key.

    Args:
        path: dotted path of an unknown key.
        value: value of the key; None leaves it out of the message.
    """
    given = path if value is None else f"{path} = {value!r}"
    above, dot, key = path.rpartition(".")
    if key in RENAMED:
        raise InputError(f"{given}: is now {above}{dot}{RENAMED[key]}; rename the key")
    if reason := REMOVED.get(path):
        raise InputError(f"{given}: no longer exists, because {reason}; remove it")
