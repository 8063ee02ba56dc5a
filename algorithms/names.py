"""Algorithms, server rules and stages of the uplink by their names in experiment files, and all conflicts."""

from collections.abc import Callable, Mapping

import algorithms
from algorithms.apfl import apfl
from algorithms.centralized import centralized
from algorithms.ditto import ditto
from algorithms.fedasync import fedasync
from algorithms.fedavg import fedavg
from algorithms.fedavgm import fedavgm
from algorithms.fedbabu import fedbabu
from algorithms.fedbn import fedbn, singleset
from algorithms.fedbs import fedbs
from algorithms.fedbuff import fedbuff
from algorithms.feddyn import feddyn
from algorithms.fedmmb import fedmmb, fedsmb
from algorithms.fednova import fednova
from algorithms.fedopt import fedadagrad, fedadam, fedyogi
from algorithms.fedper import fedper
from algorithms.fedprox import fedprox
from algorithms.fedrep import fedrep
from algorithms.fedtan import fedtan
from algorithms.fixbn import fixbn
from algorithms.ifca import ifca
from algorithms.lgfedavg import lg_fedavg
from algorithms.moon import moon
from algorithms.options.stages import Clip, Noise, Quantise, RandomK, Sign, Stage, TopK
from algorithms.parts.adaptive import Adagrad, Adam, Yogi
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.conflicts import conflicts_of
from algorithms.parts.option import Conflict, Option
from algorithms.parts.server import Assign, Mix, Momentum, Server
from algorithms.parts.staleness import WeightedMix
from algorithms.perfedavg import per_fedavg
from algorithms.pfedme import pfedme
from algorithms.qfedavg import q_fedavg
from algorithms.radfed import radfed, radfeda, radfedi, radfedm, radfedp
from algorithms.scaffold import scaffold
from algorithms.silobn import silobn
from algorithms.staticbn import static_bn

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedprox": fedprox,
    "fedasync": fedasync,
    "fedbuff": fedbuff,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "fedbn": fedbn,
    "silobn": silobn,
    "singleset": singleset,
    "fedper": fedper,
    "fedrep": fedrep,
    "lg-fedavg": lg_fedavg,
    "fedbabu": fedbabu,
    "ditto": ditto,
    "apfl": apfl,
    "ifca": ifca,
    "pfedme": pfedme,
    "per-fedavg": per_fedavg,
    "fedbs": fedbs,
    "fixbn": fixbn,
    "static-bn": static_bn,
    "fedtan": fedtan,
    "centralized": centralized,
    "radfed": radfed,
    "radfedp": radfedp,
    "radfedm": radfedm,
    "radfeda": radfeda,
    "radfedi": radfedi,
    "fedsmb": fedsmb,
    "fedmmb": fedmmb,
    "scaffold": scaffold,
    "fednova": fednova,
    "feddyn": feddyn,
    "q-fedavg": q_fedavg,
    "moon": moon,
}

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
