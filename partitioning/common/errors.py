"""Errors about wrong input, and helpers for their messages."""

import difflib
from collections.abc import Iterable

MOST_NAMES = 12
"""Most columns, sites or domains that a message lists. A table may have thousands of columns."""

LONGEST_WORD = 100
"""Most characters of a name that is compared with others."""

LEAST_BEGUN = 3
"""Fewest letters of an abbreviation."""

BEGUN = 0.9
"""Least likeness of a name to an abbreviation of it."""


class ShortError:
    """Mixin of errors whose message says all: notebooks show it without a traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows."""
        return [f"{type(self).__name__}: {self}"]


class InputError(ShortError, ValueError):
    """Wrong input of the user; the message is one line with the value, the allowed values and the remedy."""

    def __init__(self, message: str) -> None:
        """Join the lines of the message, which may quote another library."""
        super().__init__(" ".join(message.split()))


class ElsewhereError(InputError):
    """Samples that are absent because they must not leave their site."""


def listing(allowed: Iterable[str]) -> str:
    """Join names for a message: `'a', 'b'`, or `nothing` without names."""
    return ", ".join(repr(name) for name in allowed) or "nothing"


def excerpt(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Join names as `listing` does; of more than `most`, the first ones and the number of all."""
    every = list(names)
    return listing(every) if len(every) <= most else f"{listing(every[:most])}, ... ({len(every)} in all)"


def suggestion(word: str, allowed: Iterable[str]) -> str:
    """Return the end of a message with the nearest allowed word; empty if none is near."""
    near = nearest(word, allowed)
    return f"; did you mean {near[0][0]!r}?" if near else ""


def nearest(word: str, allowed: Iterable[str], least: float = 0.6) -> list[tuple[str, float]]:
    """Return allowed words that are near a word, the nearest first, each with a likeness from `least` to 1.

    Capital letters, and hyphens instead of underscores, make no difference. A name that begins with the word comes
    before names with other letters.
    """
    # The time grows with the square of the length.
    known = [name for name in allowed if len(name) <= LONGEST_WORD] if len(word) <= LONGEST_WORD else []
    begun = folded(word)
    matcher = difflib.SequenceMatcher(b=begun)
    found = []
    for name in known:
        matcher.set_seq1(folded(name))
        if len(begun) >= LEAST_BEGUN and folded(name).startswith(begun):
            found.append((name, BEGUN + (1 - BEGUN) * matcher.ratio()))
        elif matcher.real_quick_ratio() >= least and (likeness := matcher.ratio()) >= least:
            found.append((name, likeness))
    return sorted(found, key=lambda each: -each[1])


def folded(word: str) -> str:
    """Return a word as it is compared with others."""
    return word.casefold().replace("_", "-")
