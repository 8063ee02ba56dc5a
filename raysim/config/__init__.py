"""The experiment file: read, changed by `--set`, checked, resolved, and composed into an algorithm."""

from raysim.config.algorithm import AlgorithmTable
from raysim.config.check import flat
from raysim.config.experiment import Experiment, WatchTable
from raysim.config.read import changed, read

__all__ = ["AlgorithmTable", "Experiment", "WatchTable", "changed", "flat", "read"]
