"""The protocol of a logger, the run that it logs, and the loggers by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from raysim.common.distribution import install
from raysim.common.errors import InputError
from raysim.config import own
from raysim.config.tables import WatchTable
from raysim.measures.columns import MEASURES, columns_of

TRAINING = ("train_loss", "aggregated", "phase", "updates", "nonfinite", *columns_of(MEASURES))
TRAFFIC = ("bytes_up", "bytes_down", "exchanges")

METHODS = ("begin", "algorithm", "round", "end", "close")

LOGGERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tensorboard": ("raysim.watching.loggers.tensorboard:TensorBoard", ("tensorboard",)),
    "mlflow": ("raysim.watching.loggers.mlflow:MLflow", ("mlflow", "sqlalchemy", "alembic")),
    "wandb": ("raysim.watching.loggers.wandb:WandB", ("wandb",)),
}
"""Class and required packages of each logger; raysim's extra of the same name installs the packages."""


@dataclass(frozen=True)
class LoggedRun:
    """A run as loggers see it.

    Args:
        name: name of its folder.
        folder: folder for loggers' files; the logger creates it.
        table: `[watch]`.
    """

    name: str
    folder: Path
    table: WatchTable

    @property
    def project(self) -> str:
        """Name that groups the results of several runs."""
        return self.table.project or self.name


class Logger(Protocol):
    """Receiver of a run's results, in a process of its own; its errors end the logger and not the run.

    The logger is made in the run's process and copied, so what it changes there stays there: files, and no variables of
    the caller.
    """

    def begin(self, run: LoggedRun) -> None:
        """Receive a run that begins or continues."""

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Receive an algorithm that begins or continues.

        Args:
            name: folder name of the algorithm.
            settings: settings by dotted key, such as `local.lr`.
            done: number of finished rounds. The logger receives them again, because a crash may have lost some. It may
                also receive later rounds again, with equal values apart from `seconds*` and `machine_*`.
        """

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Receive a round: its row of `metrics.parquet` without null values."""

    def end(self, summary: Mapping[str, float]) -> None:
        """Receive the final metrics and totals of the algorithm."""

    def close(self) -> None:
        """End, because the run is over or has failed; this is always the last call."""


def metric_path(column: str) -> str:
    """Return a column's title with its section before a slash."""
    if column in TRAINING:
        return f"training/{column}"
    if column in TRAFFIC or column.startswith("machine_bytes"):
        return f"traffic/{column}"
    if column.startswith(("seconds", "simulated_seconds")):
        return f"time/{column}"
    return f"evaluation/{column}"


def loggers_of(table: WatchTable) -> dict[str, Logger]:
    """Return the loggers of `[watch]` by name; their packages are not imported yet.

    Raises:
        InputError: an unknown logger, a missing package, or a user's class that is no logger.
    """
    return {name: _logger(name) for name in table.loggers}


def _logger(name: str) -> Logger:
    entry = own.resolve("watch.loggers", name, LOGGERS)
    kind = _installed(name) if name in LOGGERS else entry
    lacking = [each for each in METHODS if not callable(getattr(kind, each, None))]
    if lacking or not isinstance(kind, type):
        raise InputError(
            f"watch.loggers = {name!r}: must be a class with {', '.join(METHODS)}, like "
            "raysim.watching.loggers.logger.Logger" + (f", and has no {lacking[0]}" if lacking else "") + "; name one"
        )
    try:
        with own.secluded(name):
            logger: Logger = kind()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # The user's class may raise anything.
        what = f"{type(error).__name__}: {error}"
        raise InputError(
            f"watch.loggers = {name!r}: must be callable without arguments ({what}); correct it"
        ) from error
    return logger


def _installed(name: str) -> object:
    kind, packages = LOGGERS[name]
    for package in packages:
        if find_spec(package) is None:
            raise InputError(f"watch.loggers = {name!r}: must be installed, and {package} is not; {install(name)}")
    return resolve_name(kind)
