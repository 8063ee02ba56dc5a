"""Checks of the values that a user's own code returns."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from algorithms.core.errors import InputError
from algorithms.core.held import changed, held

Kind = TypeVar("Kind")

CELL = r"[/\\]ipykernel_\d+[/\\]|^<ipython-input-"
"""Pattern of the files that stand for the cells of a notebook."""


def name_of(thing: object) -> str:
    """Return the name of an object's class, or of a function, as an experiment file has it: `module:name`."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def place_of(thing: object) -> str:
    """Return the file, or a notebook's cell, and the line of a function, or of an object's calls, in brackets.

    The calls of a torch module are its `forward`. Return "" if the place is unknown, or if the calls are inherited from
    a class in another file.
    """
    called: Any = thing
    module = None
    if callable(thing) and not hasattr(thing, "__code__"):
        kind: Any = thing if isinstance(thing, type) else type(thing)
        called, module = getattr(kind, "forward", kind.__call__), sys.modules.get(kind.__module__)
    code = getattr(unwrap(called), "__code__", None)
    if code is None:
        return ""
    file = getattr(module, "__file__", None) or code.co_filename
    if Path(file).resolve() != Path(code.co_filename).resolve():
        return ""
    return f" ({cell_of(code.co_filename) or Path(code.co_filename).name}, line {code.co_firstlineno})"


def cell_of(file: str) -> str:
    """Return the name of a notebook's cell by the file that stands for it, such as `Cell In[2]`; "" for other files.

    Only the process of the notebook knows the number of a cell.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # IPython has had names of cells since version 8.
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    return " ".join((named and named(file)) or ()) or ("a cell" if re.search(CELL, file) else "")


def is_own(thing: object) -> bool:
    """Return whether the class of an object is a user's own."""
    return type(thing).__module__.partition(".")[0] != "algorithms"


def encodes(name: object) -> bool:
    """Return whether a name is a text that files can hold: lone surrogates have no UTF-8."""
    try:
        return isinstance(name, str) and name.encode() is not None
    except UnicodeEncodeError:
        return False


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of an array that a user's own code cannot change."""
    copied = values.copy()
    copied.flags.writeable = False
    return copied


def names_of(thing: object, what: str) -> tuple[str, ...]:
    """Return the names in an attribute of an object, none without it; raise InputError if it holds no names."""
    names = getattr(thing, what, ())
    if not isinstance(names, tuple | list) or not all(map(encodes, names)):
        raise InputError(
            f"{name_of(thing)}: its `{what}` must be a tuple of names such as ('loss_after',), and is {names!r:.80}; "
            "correct it"
        )
    return tuple(names)


def _is_real(value: object) -> bool:
    """Return whether a value may be a real number: `float` takes texts, and drops an imaginary part of numpy's."""
    dtype = getattr(value, "dtype", None)
    is_other = getattr(dtype, "is_complex", False) or getattr(dtype, "kind", "") in ("c", "S", "U")
    return not (is_other or isinstance(value, str | bytes | bytearray | complex))


@dataclass(frozen=True)
class Returned:
    """Value of a user's own code.

    Args:
        code: key of the file and name of the code, such as `local.update = 'mine:train'`.
        thing: the code, a function or an object that is called; None if it has no place in a file.
    """

    code: str
    thing: object = None

    def number(self, what: str, value: object) -> float:
        """Return a number as a float.

        Args:
            what: name of the value.
            value: number, or tensor of one number.

        Raises:
            InputError: it is no real number, or beyond the range of floats.
        """
        if not _is_real(value):
            raise self._no_number(what, value)
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise self.fault(f"return numbers up to 1.8e308, and {what} is larger") from None
        except (TypeError, ValueError, RuntimeError):
            raise self._no_number(what, value) from None

    def _no_number(self, what: str, value: object) -> InputError:
        return self.fault(f"return numbers, and {what} is a {type(value).__name__}")

    def tried(self, call: Callable[[], object], remedy: str) -> None:
        """Call the code twice before a run; raise InputError if the second call changes an attribute of it.

        The first call may fill a cache. During a run such a check would take longer than the calls.

        Args:
            call: call of the code.
            remedy: place for a value that the code keeps.
        """
        call()
        with self.keeping_nothing(remedy):
            call()

    @contextmanager
    def keeping_nothing(self, remedy: str) -> Iterator[None]:
        """Raise InputError if the code has changed an attribute of itself when the context ends.

        Args:
            remedy: place for such a value.
        """
        before = held(self.thing)
        yield
        for name in changed(self.thing, before):
            raise self.fault(f"keep nothing on itself, and sets {name!r}", remedy)

    def name(self, name: object) -> str:
        """Return a name as text; raise InputError if files cannot hold it."""
        if not encodes(text := str(name)):
            raise self.fault(f"return names that UTF-8 can encode, and {text!a} has a lone surrogate")
        return text

    def fault(self, duty: str, remedy: str = "correct it") -> InputError:
        """Return the error for a value that does not fulfil a duty; it names the place of the code."""
        return InputError(f"{self.code}: must {duty}{place_of(self.thing)}; {remedy}")


def called(option: Any, hook: str, kind: type[Kind], *given: Any) -> Kind:
    """Call a hook of an option, and return its value.

    Raises:
        InputError: the value is of another kind, or an option of a user's own keeps something on itself.
    """
    call = getattr(option, hook)
    if is_own(option) and option.overrides(hook):
        remedy = (
            "keep it by `state.keeping(self.name, ...)` in `publish`; what is computed once belongs into a "
            "`functools.cached_property`, or before the run"
        )
        with Returned(f"option {option} with `{hook}`", option).keeping_nothing(remedy):
            value = call(*given)
    else:
        value = call(*given)
    if not isinstance(value, kind):
        raise InputError(
            f"option {option}: `{hook}` must return a {kind.__name__}, and returns a {type(value).__name__}; return "
            "the one that it was given, or a changed one"
        )
    return value
