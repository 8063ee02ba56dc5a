"""The algorithms, and the server rules, by the names that experiment files use."""

from collections.abc import Callable, Mapping

from algorithms.algorithm import Algorithm
from algorithms.fedavg import fedavg
from algorithms.fedbn import fedbn
from algorithms.fedprox import fedprox
from algorithms.radfed import radfed
from algorithms.server import Assign, Mix, Server

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedbn": fedbn,
    "radfed": radfed,
}

SERVERS: Mapping[str, Callable[..., Server]] = {"assign": Assign, "mix": Mix}
