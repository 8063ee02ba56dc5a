"""Errors with a message of one line: wrong input, and runs that cannot go on."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from partitioning.common.errors import InputError, suggestion

__all__ = [
    "DivergedError",
    "InputError",
    "ModelsLostError",
    "OutOfMemoryError",
    "OwnCodeError",
    "RetriesSpentError",
    "StoppedError",
    "of_algorithm",
    "one_input_error",
    "unknown",
]

MAX_NAMES = 12
"""Names that a message lists. A table may have thousands of columns."""


class OutOfMemoryError(RuntimeError):
    """Lack of memory: the run has failed, and its output so far stays."""


class OwnCodeError(RuntimeError):
    """Error in a user's own part: the run has failed, and its output so far stays."""


class DivergedError(RuntimeError):
    """NaN or infinity in training: the run has stopped, and its output so far stays, with its report."""


class ModelsLostError(RuntimeError):
    """Loss of values, with their node, that a call needs; the fleet has dropped all work in progress."""


class RetriesSpentError(RuntimeError):
    """Client actors, or nodes with models, that died or failed to start too often."""


class StoppedError(KeyboardInterrupt):
    """Stop on the user's request; `raysim resume` continues the run."""


@contextmanager
def of_algorithm(name: str) -> Iterator[None]:
    """Name the algorithm in errors of the context about memory, actors or divergence."""
    # Late, because it imports torch, which `raysim --help` does not need.
    from algorithms import DivergedError as AlgorithmDivergedError

    try:
        yield
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"{name}: {error}") from None
    except RetriesSpentError as error:
        raise RetriesSpentError(f"{name}: {error}") from error
    except AlgorithmDivergedError as error:
        raise DivergedError(f"{name}: {error}") from None


def unknown(what: str, name: str, allowed: Collection[str], most: int = MAX_NAMES) -> InputError:
    """Return the error for an unknown name, with the nearest known one.

    Args:
        what: kind of the name, and the name as the user gave it.
        name: the name alone.
        allowed: known names.
        most: number of known names to list.
    """
    names = list(allowed)
    listed = names if len(names) <= most else [*names[: most - 2], "...", names[-1]]
    remedy = suggestion(name, names) or "; use one of them"
    return InputError(f"unknown {what}: must be one of {', '.join(listed)}{remedy}")


@contextmanager
def one_input_error() -> Iterator[None]:
    """Turn an InputError of `algorithms` in the context into this package's, to let callers catch one class."""
    # Late, because it imports torch, which `raysim --help` does not need.
    from algorithms import InputError as AlgorithmInputError

    try:
        yield
    except AlgorithmInputError as error:
        raise InputError(str(error)) from None
