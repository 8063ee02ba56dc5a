"""FedAsync: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2020."""

from dataclasses import fields
from typing import Any, Literal

from algorithms.core.errors import InputError, require
from algorithms.fedprox import with_proximal
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals, Concurrent, Delay, Drawn
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Server, WeightedMix
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal, Hinge, Polynomial, Weighting
from algorithms.training.local import Local

Staleness = Literal["constant", "polynomial", "hinge"]
"""Names of the functions that weight a client update by its staleness."""


def fedasync(
    participation: Participation,
    local: Local,
    server: Server = WeightedMix(0.6),
    *,
    staleness: Staleness = "polynomial",
    a: float | None = None,
    b: float | None = None,
    proximal: float = 0.01,
    concurrency: int | None = None,
    max_staleness: int | Literal["matched"] | None = None,
) -> Algorithm:
    """Mix each arriving model into the global one at once, the less, the staler it is.

        w <- (1 - alpha_t) w + alpha_t w_k,  alpha_t = alpha f(t - s),  w_k started from w_s and meets w_t
        min_w F_k(w) + proximal / 2 ||w - w_s||^2,  started from w_s

        f: "constant" 1,  "polynomial" (t - s + 1)^-a,  "hinge" 1 if t - s <= b, else 1 / (a (t - s - b) + 1)

    Args:
        participation: number of arrivals a round, which makes algorithms comparable at equal work.
        local: content of a client update; its learning rate is that of the round in which it started.
        server: rule `weighted-mix` with its alpha, in (0, 1]; another one only if f is "constant", because it takes
            the one model's mean, which has no weight.
        staleness: function f.
        a: parameter of "polynomial" (default 0.5) and "hinge" (default 10), >= 0.
        b: parameter of "hinge" (default 4), >= 0.
        proximal: the paper's rho, >= 0.
        concurrency: number of clients that train at a time, each at the speed of its device; by default the number of
            arrivals a round. See `Concurrent`.
        max_staleness: largest staleness of a uniform draw for each arrival, instead of devices; "matched" gives the
            average parallelism of a synchronous round. See `Drawn`.

    Raises:
        InputError: a number is out of range, both kinds of delay are given, f has no such parameter, or the rule would
            leave f out.

    Paper: Algorithm 1; a, b, the tuned values of alpha (0.3, 0.6, 0.9) and rho (1e-2 to 1e-12), and the comparison at
    equal parallelism: RADFed, section IV-E.

    Deviations: all floating entries are mixed, batch-norm statistics included; a counter becomes the largest. A client
    without a step arrives with weight 0, so its version equals the one before. The defaults of f, alpha and rho are
    our choice.
    """
    weighting = staleness_weighting(staleness, a=a, b=b)
    schedule = Arrivals(participation, _delay(concurrency, max_staleness))
    local = with_proximal(local, proximal)
    return Algorithm(schedule, local, Sharing(), weighting, server, own_round=asynchronous_round)


def asynchronous_round(*arguments: Any, **keys: Any) -> Any:
    """Run a round of arrivals; see `algorithms.rounds.asynchronous.start_arrivals`."""
    from algorithms.rounds.asynchronous import start_arrivals

    return start_arrivals(*arguments, **keys)


STALENESS_FUNCTIONS: dict[str, type[Equal | Polynomial | Hinge]] = {
    "constant": Equal,
    "polynomial": Polynomial,
    "hinge": Hinge,
}


def staleness_weighting(staleness: str, **parameters: float | None) -> Weighting:
    """Return the weighting by a function of the staleness; a parameter that is None has its default."""
    known = staleness in STALENESS_FUNCTIONS
    require(known, "algorithm.staleness", staleness, " or ".join(map(repr, STALENESS_FUNCTIONS)), "use one")
    function, given = STALENESS_FUNCTIONS[staleness], {name: n for name, n in parameters.items() if n is not None}
    for name, value in given.items():
        if name not in {field.name for field in fields(function)}:
            raise InputError(
                f'algorithm.{name} = {value} with algorithm.staleness = "{staleness}": must be left out, because '
                "that function has no such parameter; remove it"
            )
    return function(**given)


def _delay(concurrency: int | None, max_staleness: int | Literal["matched"] | None) -> Delay:
    if max_staleness is None:
        return Concurrent(concurrency)
    both = (concurrency, max_staleness)
    one = concurrency is None
    require(one, "algorithm.concurrency, algorithm.max_staleness", both, "one of them", "remove the other")
    return Drawn(None if max_staleness == "matched" else max_staleness)
