"""The loggers by their names, and one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from raysim.common.errors import InputError
from raysim.config import own
from raysim.config.experiment import WatchTable
from raysim.watching.loggers.logger import Logger

TAKES = ("begin", "algorithm", "round", "end", "close")


@dataclass(frozen=True)
class Extra:
    """A logger that an extra of raysim's brings, which has its name.

    Args:
        module: where its class is.
        kind: its class.
        needs: the packages of the extra.
    """

    module: str
    kind: str
    needs: tuple[str, ...]


LOGGERS: Mapping[str, Extra] = {
    "tensorboard": Extra("raysim.watching.loggers.tensorboard", "TensorBoard", ("tensorboard",)),
    "mlflow": Extra("raysim.watching.loggers.mlflow", "MLflow", ("mlflow", "sqlalchemy", "alembic")),
    "wandb": Extra("raysim.watching.loggers.wandb", "WandB", ("wandb",)),
}


def made(table: WatchTable) -> dict[str, Logger]:
    """The loggers of `[watch]`, each by its name; the packages that they need are not imported yet.

    Raises:
        InputError: there is no such logger, its extra is not installed, or a class of one's own is no logger.
    """
    return {name: _made(name, own.found("watch.loggers", name, LOGGERS)) for name in table.loggers}


def _made(name: str, kind: Extra | object) -> Logger:
    if isinstance(kind, Extra):
        for each in kind.needs:
            if find_spec(each) is None:
                raise InputError(
                    f'watch.loggers = {name!r}: must be installed, and {each} is not; pip install "raysim[{name}]"'
                )
        kind = getattr(import_module(kind.module), kind.kind)
    lacking = [each for each in TAKES if not callable(getattr(kind, each, None))]
    if lacking or not isinstance(kind, type):
        raise InputError(
            f"watch.loggers = {name!r}: must be a class with {', '.join(TAKES)}, as raysim.watching.loggers.Logger has them"
            + (f", and has no {lacking[0]}" if lacking else "")
            + "; name one"
        )
    try:
        logger: Logger = kind()
    except Exception as error:  # whatever the user's class does
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"watch.loggers = {name!r}: must be made without arguments ({what}); correct it") from error
    return logger
