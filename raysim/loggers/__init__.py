"""Loggers: who else is told of a run's rounds, beside its own files."""

from raysim.loggers.logger import Logger, Watched, titled
from raysim.loggers.named import LOGGERS, made
from raysim.loggers.telling import Telling

__all__ = ["LOGGERS", "Logger", "Telling", "Watched", "made", "titled"]
