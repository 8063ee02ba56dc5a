"""Words of the place where a user works: options and commands of a shell, or arguments and calls of Python."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from partitioning.common.text import word

PYTHON_NAMES = {"set": "changes"}
"""Arguments of Python that have another name than the option of the command line."""


class _Surface:
    """State of the process: whether a command of the shell runs."""

    is_shell = False


@contextmanager
def shell() -> Iterator[None]:
    """Word messages for the command line in the context."""
    before, _Surface.is_shell = _Surface.is_shell, True
    try:
        yield
    finally:
        _Surface.is_shell = before


def option(name: str) -> str:
    """Return the name of an option: `--actors`, or `actors`."""
    return f"--{name}" if _Surface.is_shell else PYTHON_NAMES.get(name, name)


def assigned(name: str, value: object) -> str:
    """Return the beginning of a message about an option: `--actors = 0`, or `actors = 0`."""
    return f"{option(name)} = {value!r}"


def given(name: str, value: object = True) -> str:
    """Return an option with its value: `--actors 4`, or `actors=4`; `--inline`, or `inline=True`."""
    if _Surface.is_shell:
        return f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}"
    return f"{option(name)}=[{value!r}]" if name == "set" else f"{name}={value!r}"


def call(command: str, target: object, **options: object) -> str:
    """Return a command with its options: `raysim resume DIR --inline`, or `raysim.resume("DIR", inline=True)`.

    Args:
        command: name of the command.
        target: folder or URI.
        options: values by name; None and False are left out.
    """
    words = [given(name, value) for name, value in options.items() if value not in (None, False)]
    if _Surface.is_shell:
        return " ".join([f"raysim {command} {word(str(target))}", *words])
    quoted = '"' + repr(str(target))[1:-1].replace('"', '\\"') + '"'
    return f"raysim.{command}({', '.join([quoted, *words])})"


def ipython_shell() -> Any:
    """Return the shell of IPython, or of a notebook, that runs this process; None outside of one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
