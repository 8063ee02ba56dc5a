"""Keys of former versions, refused with the key that replaces them."""

from __future__ import annotations

from collections.abc import Mapping

from raysim.common.errors import InputError

RENAMED: Mapping[str, str] = {"merge_every": "aggregate_every", "weigh": "weighting", "place": "sharing"}
"""New names of keys of an algorithm, by old name."""

REMOVED: Mapping[str, str] = {"fleet.transport": "models always travel through host memory"}
"""Reasons by path of a removed key."""


def old_key_error(path: str, value: object = None) -> InputError | None:
    """Return the error if a former version had this key; None if it had not.

    Args:
        path: dotted path of an unknown key.
        value: value of the key; None leaves it out of the message.
    """
    given = path if value is None else f"{path} = {value!r}"
    above, dot, key = path.rpartition(".")
    if key in RENAMED and above in ("", "algorithm"):
        return InputError(f"{given}: is now {above}{dot}{RENAMED[key]}; rename the key")
    if reason := REMOVED.get(path):
        return InputError(f"{given}: no longer exists, because {reason}; remove it")
    return None
