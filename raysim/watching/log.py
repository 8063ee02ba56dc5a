"""The run's log: command, machine, settings, events and end of a run."""

import logging
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from textwrap import indent
from typing import Any

from algorithms import Algorithm
from partitioning import Population
from partitioning.common.disk import DiskFullError
from partitioning.common.text import PARAGRAPH, printable, printable_lines
from raysim.common.distribution import VERSION
from raysim.common.errors import DivergedError, InputError, OutOfMemoryError
from raysim.common.log import LOG
from raysim.watching.stopwatch import StageTime

PACKAGES = ("torch", "numpy", "ray")
"""Packages with their versions in the log."""

ALWAYS = ("lr", "batch_size")
"""Fields that the log shows even with their default value."""


def at_most_every(seconds: float, first: float = 0.0) -> Callable[[], bool]:
    """Return a function that returns True at most once per period.

    Args:
        seconds: length of the period.
        first: seconds before the first True.
    """
    due = time.monotonic() + first

    def is_due() -> bool:
        nonlocal due
        now = time.monotonic()
        if now < due:
            return False
        due = now + seconds
        return True

    return is_due


class LineFormatter(logging.Formatter):
    """Formatter of one printable line for each message; lines of a traceback are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        record.message = printable(record.message, PARAGRAPH)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name in logging
        return indent(printable_lines(super().formatException(ei)), "  ")


@contextmanager
def run_log(path: Path, log: logging.Logger = LOG) -> Iterator[logging.Logger]:
    """Log a run to a file, from its command to its end."""
    started = time.monotonic()
    with _handled(path, log):
        try:
            _log_machine(log)
            yield log
            log.info("ended after %.1f s; see %s", time.monotonic() - started, path.parent / "report.html")
        except (InputError, OutOfMemoryError, DivergedError, DiskFullError) as error:
            log.error("%s", error)
            raise
        except KeyboardInterrupt as error:
            log.warning("%s, %.1f s after the start", str(error) or "interrupted", time.monotonic() - started)
            raise
        except Exception:
            log.exception("the run failed %.1f s after the start", time.monotonic() - started)
            raise


@contextmanager
def _handled(path: Path, log: logging.Logger) -> Iterator[None]:
    handler = logging.FileHandler(path, encoding="utf-8")
    # A full disk also stops the writer of the results, which reports it.
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        with suppress(OSError):
            handler.close()


def log_command_time(path: Path, command: str, stages: Sequence[StageTime]) -> None:
    """Append the breakdown of a command to the log of its run: its stages, and those of each algorithm."""
    with _handled(path, LOG):
        LOG.info("raysim %s took %.1f s", command, sum(each.seconds for each in stages))
        for name, own in groupby(stages, key=lambda each: each.algorithm):
            parts = ", ".join(f"{each.stage} {each.seconds:.2f} s" for each in own)
            LOG.info("of these: %s", f"{name}: {parts}" if name else parts)


def log_population(population: Population) -> None:
    """Log the numbers of clients, samples and classes."""
    sizes = sorted(population.sizes.tolist())
    parts = (population.train_clients, population.validation_clients, population.test_clients)
    split = ", ".join(f"{len(part)} {what}" for part, what in zip(parts, ("train", "validate", "test"), strict=True))
    LOG.info(
        "population %s: %d clients (%s), %d samples, %d to %d per client, median %d; %d classes",
        *(population.path, len(population), split, sum(sizes), sizes[0], sizes[-1], sizes[len(sizes) // 2]),
        len(population.manifest.classes),
    )


def log_model(name: str, parameters: Mapping[str, Any], shape: tuple[int, ...], classes: int) -> None:
    """Log a model, its arguments, the shape of a sample and the number of classes."""
    keys = ", ".join(f"{key}={value!r}" for key, value in parameters.items())
    LOG.info("model %s(%s) for samples %s and %d classes", name, keys, shape, classes)


def log_algorithm(name: str, algorithm: Algorithm) -> None:
    """Log an algorithm's main parts, and its other fields without their defaults."""
    for part in fields(algorithm):
        value = getattr(algorithm, part.name)
        if part.name in ("schedule", "local", "sharing", "weighting", "server") or value != part.default:
            LOG.info("%s: %s: %s", name, part.name, brief(value))


def brief(value: Any) -> str:
    """Return a part as text without the fields that have their defaults."""
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    shown = [each.name for each in fields(value) if each.name in ALWAYS or not _is_default(value, each)]
    return f"{type(value).__name__}({', '.join(f'{name}={brief(getattr(value, name))}' for name in shown)})"


def _is_default(value: Any, field: Any) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default is not MISSING and bool(getattr(value, field.name) == default)


@cache
def _versions() -> str:
    """Return the versions of `PACKAGES`, whose metadata take milliseconds to parse: a study runs hundreds of trials."""
    return ", ".join(f"{name} {version(name)}" for name in PACKAGES)


def _log_machine(log: logging.Logger) -> None:
    log.info(
        "raysim %s on %s, %d CPUs: Python %s, %s",
        *(VERSION, platform.node(), os.cpu_count() or 1, platform.python_version(), _versions()),
    )
    log.info("command: %s, in %s", shlex.join(sys.argv), Path.cwd())
