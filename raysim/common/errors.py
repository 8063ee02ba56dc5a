"""Errors with a message of one line: wrong input, and runs that cannot go on."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from partitioning.common.errors import InputError as InputError  # noqa: PLC0414 - others import it from here
from partitioning.common.errors import ShortError, suggestion

MAX_NAMES = 12
"""Names that a message lists. A table may have thousands of columns."""


class MistakesError(InputError):
    """Several mistakes of the user's input, a line each."""

    def __init__(self, *errors: InputError) -> None:
        super().__init__("")
        # Tables that several algorithms share are checked for each of them.
        self.args = tuple({str(each): each for error in errors for each in each_error(error)}.values())

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


LISTED = {
    "algorithm.name": "algorithms",
    "data.dataset": "datasets",
    "evaluate.metrics": "metrics",
    "local.loss": "losses",
    "local.optimizer": "optimisers",
    "model.name": "models",
    "partition.scheme": "schemes",
    "recipe": "recipes",
    "reproduction": "reproductions",
    "uplink.chain": "uplink",
}
"""Kinds of `raysim list`, by the key whose names it lists."""


OF_ONES_OWN = {
    "partition.scheme": "for a division of your own, write each row's client to a column, and set partition.scheme = "
    '"natural" and partition.column',
    "data.dataset": "for a function of your own, pass its result from Python, or write it to a file, file:PATH.npz",
}
"""Remedies for `module:function` in keys that take none, by key."""


class UnknownError(InputError):
    """Unknown name or key.

    Args:
        what: kind of the name, and the name as the user gave it.
        name: the name alone.
        allowed: known names.
        nearest: question that names the nearest known name; by default about the nearest of `allowed`, if one is near.
        most: number of known names to list.
        more: remedy where no known name is near, such as a command that describes all names; by default that of
            `OF_ONES_OWN` or `LISTED`, or to use one of them.
    """

    def __init__(
        self,
        what: str,
        name: str,
        allowed: Collection[str],
        nearest: str = "",
        most: int = MAX_NAMES,
        more: str = "",
    ) -> None:
        self.what, self.name, self.allowed = what, name, list(allowed)
        names = list(dict.fromkeys(self.allowed))
        listed = names if len(names) <= most else [*names[: most - 2], "...", f"{names[-1]} ({len(names)} in all)"]
        question = nearest or suggestion(name, names).removeprefix("; ")
        key = what.partition(" ")[0]
        kind = LISTED.get(key)
        own = OF_ONES_OWN.get(key, "") if ":" in name and not question else ""
        more = more or own or (f"see `raysim list {kind}`" if kind else "use one of them")
        must = f"must be one of {', '.join(listed)}; {more}"
        super().__init__(f"unknown {what}: {question} It {must}" if question else f"unknown {what}: {must}")

    def __reduce__(self) -> tuple[Any, ...]:
        return InputError, (str(self),)


class OutOfMemoryError(ShortError, RuntimeError):
    """Lack of memory: the run has failed, and its output so far stays."""


class OwnCodeError(ShortError, RuntimeError):
    """Error in a user's own part: the run has failed, and its output so far stays."""


class DamagedError(ShortError, RuntimeError):
    """Damage to a file of the run: it has failed, and its output up to an earlier checkpoint stays."""


class DivergedError(ShortError, RuntimeError):
    """NaN or infinity in training: the run has stopped, and its output so far stays, with its report."""


class ModelsLostError(ShortError, RuntimeError):
    """Loss of values, with their node, that a call needs; the fleet has dropped all work in progress."""


class RetriesSpentError(ShortError, RuntimeError):
    """Client actors, or nodes with models, that died or failed to start too often."""


class RayStartError(ShortError, RuntimeError):
    """Failure of Ray to start, or to connect to a cluster, in a run that needs it; the output so far stays."""


class StoppedError(ShortError, KeyboardInterrupt):
    """Stop on the user's request, its parts joined by semicolons; `raysim resume` continues the run."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


@contextmanager
def of_algorithm(name: str) -> Iterator[None]:
    """Name the algorithm in errors of the context about memory, actors, divergence or damage."""
    # Late, because it imports torch, which `raysim --help` does not need.
    from algorithms import DamagedError as PersonalDamagedError
    from algorithms import DivergedError as AlgorithmDivergedError

    try:
        yield
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"{name}: {error}") from None
    except RetriesSpentError as error:
        raise RetriesSpentError(f"{name}: {error}") from error
    except AlgorithmDivergedError as error:
        raise DivergedError(f"{name}: {error}") from None
    except (DamagedError, PersonalDamagedError) as error:
        raise DamagedError(f"{name}: {error}") from None


def unknown(what: str, name: str, allowed: Collection[str], most: int = MAX_NAMES) -> InputError:
    """Return the error for an unknown name, with the nearest known one; see `UnknownError`."""
    return UnknownError(what, name, allowed, most=most)


def check_known(what: str, name: object, allowed: Collection[str]) -> None:
    """Raise InputError if a name is unknown, or no text; see `UnknownError`."""
    if not isinstance(name, str) or name not in allowed:
        raise unknown(what, str(name), allowed)


def joined(errors: Sequence[InputError]) -> InputError:
    """Return one error for all mistakes; a single one stays."""
    return errors[0] if len(errors) == 1 else MistakesError(*errors)


def each_error(error: InputError) -> tuple[InputError, ...]:
    """Return the errors of several mistakes, or the error itself."""
    return error.args if isinstance(error, MistakesError) else (error,)


def every(checks: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Run all checks and return their results.

    Args:
        checks: functions by name; each returns a value, or raises InputError.

    Raises:
        MistakesError: the mistakes that all checks found.
    """
    results, errors = {}, []
    for name, check in checks.items():
        try:
            results[name] = check()
        except InputError as error:
            errors.append(error)
    if errors:
        raise joined(errors)
    return results


@contextmanager
def one_input_error() -> Iterator[None]:
    """Turn an InputError of `algorithms` in the context into this package's, to let callers catch one class.

    Raises:
        MistakesError: it names several mistakes.
    """
    # Late, because it imports torch, which `raysim --help` does not need.
    from algorithms import InputError as AlgorithmInputError

    try:
        yield
    except AlgorithmInputError as error:
        raise joined([InputError(line) for line in (str(error), *error.others)]) from None
