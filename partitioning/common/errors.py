"""Errors about wrong input, and helpers for their messages."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong input of the user; the message is one line with the value, the allowed values and the remedy."""

    def __init__(self, message: str) -> None:
        """Join the lines of the message, which may quote another library."""
        super().__init__(" ".join(message.split()))


class ElsewhereError(InputError):
    """Samples that are absent because they must not leave their site."""


def listing(allowed: Iterable[str]) -> str:
    """Join names for a message: `'a', 'b'`, or `nothing` without names."""
    return ", ".join(repr(name) for name in allowed) or "nothing"


def suggestion(word: str, allowed: Iterable[str]) -> str:
    """Return the end of a message with the nearest allowed word; empty if none is near."""
    near = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
