"""Errors of one line: wrong input (what, the value, what is allowed, the remedy), and runs that cannot go on."""

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

MOST = 12
"""Names that a message lists: a table may have thousands of columns."""


class OutOfMemoryError(RuntimeError):
    """The memory does not suffice: the run has failed, and what it wrote so far stays."""


class OwnCodeError(RuntimeError):
    """A user's own part raised something: the run has failed, and what it wrote so far stays."""


class DivergedError(RuntimeError):
    """Training gave NaN or infinity: the run has stopped, and what it wrote so far stays, its report too."""


class ModelsLostError(RuntimeError):
    """Values that a call needs were lost with their node; the fleet has forgotten all that was under way."""


class RetriesSpentError(RuntimeError):
    """Client actors died, or did not start, too often, or nodes with models on them."""


class StoppedError(KeyboardInterrupt):
    """Somebody stopped the run, which can go on from what is on disk."""


@contextmanager
def of_algorithm(name: str) -> Iterator[None]:
    """Within, a lack of memory or of actors, and training that diverges, are told with the algorithm's name."""
    # Imported late: it brings torch, which `raysim --help` does not need.
    from algorithms import DivergedError as AlgorithmDivergedError

    try:
        yield
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"{name}: {error}") from None
    except RetriesSpentError as error:
        raise RetriesSpentError(f"{name}: {error}") from error
    except AlgorithmDivergedError as error:
        raise DivergedError(f"{name}: {error}") from None


def unknown(what: str, name: str, allowed: Collection[str], most: int = MOST) -> InputError:
    """The error for a name that does not exist; the nearest that does is named.

    Args:
        what: kind of thing, and the name as the user gave it.
        name: the name alone.
        allowed: the names that exist.
        most: of them that are listed.
    """
    names = list(allowed)
    listed = names if len(names) <= most else [*names[: most - 2], "...", names[-1]]
    remedy = suggestion(name, names) or "; use one of them"
    return InputError(f"unknown {what}: must be one of {', '.join(listed)}{remedy}")


@contextmanager
def one_input_error() -> Iterator[None]:
    """Within, wrong input that `algorithms` refuses is this package's error, so that callers catch one."""
    # Imported late: it brings torch, which `raysim --help` does not need.
    from algorithms import InputError as AlgorithmInputError

    try:
        yield
    except AlgorithmInputError as error:
        raise InputError(str(error)) from None
