"""Checks of the values that a user's own code returns."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms.core.errors import InputError


def name_of(thing: object) -> str:
    """Return the name of an object's class, or of a function, as an experiment file has it: `module:name`."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def is_own(thing: object) -> bool:
    """Return whether the class of an object is a user's own."""
    return type(thing).__module__.partition(".")[0] != "algorithms"


def encodes(name: object) -> bool:
    """Return whether a name is a text that files can hold: lone surrogates have no UTF-8."""
    try:
        return isinstance(name, str) and name.encode() is not None
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True)
class Returned:
    """Value of a user's own code.

    Args:
        code: key of the file and name of the code, such as `local.update = 'mine:train'`.
    """

    code: str

    def number(self, what: str, value: object) -> float:
        """Return a number as a float.

        Args:
            what: name of the value.
            value: number, or tensor of one number.

        Raises:
            InputError: it is no real number, or beyond the range of floats.
        """
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise self.fault(f"return numbers up to 1.8e308, and {what} is larger") from None
        except (TypeError, ValueError, RuntimeError):
            raise self.fault(f"return numbers, and {what} is a {type(value).__name__}") from None

    def name(self, name: object) -> str:
        """Return a name as text; raise InputError if files cannot hold it."""
        if not encodes(text := str(name)):
            raise self.fault(f"return names that UTF-8 can encode, and {text!a} has a lone surrogate")
        return text

    def fault(self, duty: str) -> InputError:
        """Return the error for a value that does not fulfil a duty."""
        return InputError(f"{self.code}: must {duty}; correct it")
