"""Errors of the user's own code in one line that names the place."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from dataclasses import FrozenInstanceError
from pathlib import Path

from algorithms.core.returned import cell_of
from raysim.config.own import file_of, modules_of

FRAME = re.compile(r'File "(.+?)", line (\d+), in (.+)')
"""A line of a traceback that names a place."""

UNORDERED = re.compile(r"^(?:\w+: )?(.+?) does not have a deterministic implementation", re.MULTILINE)
"""Part of torch's error for an operation whose result depends on the order of threads."""

FROZEN = "; keep values in the memory, or in context.state, and not on the object"
"""Remedy for code that sets an attribute of a frozen dataclass."""


def describe_error(error: BaseException, names: Iterable[str], handled: BaseException | None = None) -> str:
    """Return the error of the user's own code and its place in one line; "" if the error came from elsewhere.

    Args:
        error: error, whose text holds the traceback if it comes from an actor.
        names: names of the user's own objects.
        handled: earlier error, in whose handling raysim was called.
    """
    # The traceback begins with that of the earlier error, which is the context of all later ones.
    before = "".join(traceback.format_exception(handled)) if handled else ""
    files = [file for module in modules_of(names) if (file := file_of(module))]
    frames = [
        (file, place, line, function)
        for file, line, function in FRAME.findall("".join(traceback.format_exception(error)).removeprefix(before))
        if (place := _place(file, files))
    ]
    if not frames:
        return ""
    cause = getattr(error, "cause", None) or error  # Ray wraps the error of an actor.
    file, place, line, function = frames[-1]
    text = describe_unordered(cause) or " ".join(str(cause).split())[:200]
    remedy = _late_import(cause, Path(file)) or (FROZEN if isinstance(cause, FrozenInstanceError) else "")
    return f"{type(cause).__name__}: {text} ({place}, line {line}, in {function}){remedy}"


def describe_unordered(error: BaseException) -> str:
    """Return the error of an operation without a deterministic implementation in one line; "" for other errors.

    A layer's gradient raises it inside autograd, where no frame of the user's own code may be in its traceback.
    """
    if (found := UNORDERED.search(str(error))) is None:
        return ""
    return (
        f"operation {found[1]}: must be deterministic, and has no such implementation here; use another one, such as "
        "raysim.models.networks.WindowMean for an adaptive pool, or, on a GPU, set fleet.gpus_per_actor = 0"
    )


def _place(file: str, files: Iterable[str]) -> str:
    """Return the file of a frame if it is one of these, or lies in one, or the cell of a notebook; else ""."""
    if any(file == own or file.startswith(f"{own}/") for own in files):
        return file
    return cell_of(file)


def _late_import(error: BaseException, file: Path) -> str:
    """Return the remedy if a function of a file imported a module that lies beside the file; else ""."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or not (file.with_name(f"{name}.py").exists() or file.with_name(name).is_dir()):
        return ""
    return f"; import {name} at the top of {file.name}: raysim checks and sends what is imported before the run"
