"""The run's log, for a person to read: what was run, on what, what happened when, and how it ended."""

from __future__ import annotations

import logging
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partitioning import Population
from partitioning.common.disk import DiskFullError
from raysim.common.errors import DivergedError, InputError, OutOfMemoryError

if TYPE_CHECKING:
    from algorithms import Algorithm
    from raysim.fleet.worker_plan import ModelPlan

LOG = logging.getLogger("raysim")

PACKAGES = ("torch", "numpy", "ray")
"""Those whose versions the log names beside raysim's own."""

ALWAYS = ("lr", "batch_size")
"""Fields that people look for, also where they are as they always are."""


class Seldom:
    """Says yes, and then no until so many seconds have passed: for what happens too often to log each time."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0

    def __call__(self) -> bool:
        """Whether it is time again."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


class _Log(logging.FileHandler):
    """A log that a full disk ends in silence: whoever writes results there tells of it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def run_log(path: Path, log: logging.Logger = LOG) -> Iterator[logging.Logger]:
    """Within, a run is logged, from what runs where to how it ended."""
    handler = _Log(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    level, log.level = log.level, logging.INFO
    log.addHandler(handler)
    started = time.monotonic()
    try:
        _begin(log)
        yield log
        log.info("ended after %.1f s; see %s", time.monotonic() - started, path.parent / "report.html")
    except (InputError, OutOfMemoryError, DivergedError, DiskFullError) as error:
        log.error("%s", error)
        raise
    except KeyboardInterrupt as error:
        log.warning("%s, %.1f s after it began", str(error) or "interrupted", time.monotonic() - started)
        raise
    except Exception:
        log.exception("the run failed, %.1f s after it began", time.monotonic() - started)
        raise
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        handler.close()


def logged(tell: Callable[[str], object]) -> Callable[[str], None]:
    """What tells a person, and the log."""

    def both(text: str) -> None:
        LOG.info("%s", text)
        tell(text)

    return both


def log_population(population: Population) -> None:
    """Log what is trained and tested on."""
    sizes = sorted(population.sizes.tolist())
    parts = (population.train_clients, population.validation_clients, population.test_clients)
    split = ", ".join(f"{len(part)} {what}" for part, what in zip(parts, ("train", "validate", "test"), strict=True))
    LOG.info(
        "population %s: %d clients (%s), %d samples, %d to %d a client, median %d; %d classes",
        *(population.path, len(population), split, sum(sizes), sizes[0], sizes[-1], sizes[len(sizes) // 2]),
        len(population.manifest.classes),
    )


def log_model(plan: ModelPlan) -> None:
    """Log what is trained."""
    keys = ", ".join(f"{key}={value!r}" for key, value in plan.parameters.items())
    LOG.info("model %s(%s) for samples %s and %d classes", plan.name, keys, plan.shape, plan.classes)


def log_algorithm(name: str, algorithm: Algorithm) -> None:
    """Log an algorithm's five parts, and what it has beside them."""
    for part in fields(algorithm):
        value = getattr(algorithm, part.name)
        if part.name in ("schedule", "local", "sharing", "weighting", "server") or value != part.default:
            LOG.info("%s: %s: %s", name, part.name, brief(value))


def brief(value: Any) -> str:
    """A part in words, without those of its fields that are as they always are."""
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    shown = [each.name for each in fields(value) if each.name in ALWAYS or not _is_default(value, each)]
    return f"{type(value).__name__}({', '.join(f'{name}={brief(getattr(value, name))}' for name in shown)})"


def _is_default(value: Any, field: Any) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default is not MISSING and bool(getattr(value, field.name) == default)


def _begin(log: logging.Logger) -> None:
    """Log what runs where."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    log.info(
        "raysim %s on %s, %d CPUs: Python %s, %s",
        *(version("raysim"), platform.node(), os.cpu_count() or 1, platform.python_version(), versions),
    )
    log.info("command: %s, in %s", shlex.join(sys.argv), Path.cwd())
