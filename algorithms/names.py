"""Algorithms, server rules and stages of the uplink by their names in experiment files, and all conflicts."""

from collections.abc import Callable, Mapping
from inspect import isfunction

import algorithms
from algorithms.options.stages import Clip, Noise, Quantise, RandomK, Sign, Stage, TopK
from algorithms.parts.adaptive import Adagrad, Adam, Yogi
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.conflicts import conflicts_of
from algorithms.parts.option import Conflict, Option
from algorithms.parts.server import Assign, Mix, Momentum, Server, WeightedMix

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    name.replace("_", "-"): each
    for name, each in sorted(vars(algorithms).items())
    if isfunction(each) and each.__module__.rpartition(".")[0] == algorithms.__name__
}
"""Methods: the functions that `algorithms` exports from the files that lie beside this one."""

SERVERS: Mapping[str, type[Server]] = {
    "assign": Assign,
    "mix": Mix,
    "momentum": Momentum,
    "weighted-mix": WeightedMix,
    "adam": Adam,
    "yogi": Yogi,
    "adagrad": Adagrad,
}

STAGES: Mapping[str, type[Stage]] = {
    "clip": Clip,
    "noise": Noise,
    "top-k": TopK,
    "random-k": RandomK,
    "quantise": Quantise,
    "sign": Sign,
}

CONFLICTS: tuple[Conflict, ...] = conflicts_of(
    each for each in vars(algorithms).values() if isinstance(each, type) and issubclass(each, Option)
)
"""Pairs of settings that are refused, with the options that `algorithms` exports, in the order of the checks."""
