"""What the package says when the user's input is wrong."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The user's input is wrong; the message is one line: what, the value, what is allowed, the remedy."""

    def __init__(self, message: str) -> None:
        """Keep the message to one line, also where it quotes another library's."""
        super().__init__(" ".join(message.split()))


class ElsewhereError(InputError):
    """Samples are not here, for they are to stay at their site."""


def listing(allowed: Iterable[str]) -> str:
    """Join names for a message: `'a', 'b'`; `nothing` where there are none."""
    return ", ".join(repr(name) for name in allowed) or "nothing"


def suggestion(word: str, allowed: Iterable[str]) -> str:
    """Name the nearest allowed word, ready to end a message; empty where none is near."""
    near = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
