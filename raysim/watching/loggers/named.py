"""Loggers by name, and the user's own."""

from collections.abc import Mapping
from importlib.util import find_spec
from pkgutil import resolve_name

from raysim.common.distribution import install
from raysim.common.errors import InputError
from raysim.config import own
from raysim.config.tables import WatchTable
from raysim.watching.loggers.logger import Logger

METHODS = ("begin", "algorithm", "round", "end", "close")

LOGGERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tensorboard": ("raysim.watching.loggers.tensorboard:TensorBoard", ("tensorboard",)),
    "mlflow": ("raysim.watching.loggers.mlflow:MLflow", ("mlflow", "sqlalchemy", "alembic")),
    "wandb": ("raysim.watching.loggers.wandb:WandB", ("wandb",)),
}
"""Class and required packages of each logger; raysim's extra of the same name installs the packages."""


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
