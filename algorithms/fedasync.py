"""FedAsync: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2020."""

from dataclasses import fields, replace
from typing import Literal

from algorithms.engine.asynchronous import arrive
from algorithms.engine.errors import InputError, require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals, Concurrent, Delay, Drawn
from algorithms.parts.local import Local
from algorithms.parts.schedule import Sample
from algorithms.parts.server import Server, WeightedMix
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal, Hinge, Polynomial, Weighting


def fedasync(
    sample: Sample,
    local: Local,
    server: Server = WeightedMix(0.6),
    *,
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial",
    a: float | None = None,
    b: float | None = None,
    proximal: float = 0.01,
    concurrency: int | None = None,
    max_staleness: int | Literal["matched"] | None = None,
) -> Algorithm:
    """Every model that arrives is mixed into the global one at once, the less, the staler it is.

        w <- (1 - alpha_t) w + alpha_t w_k,  alpha_t = alpha f(t - s),  where w_k began with w_s and meets w_t
        min_w F_k(w) + proximal / 2 ||w - w_s||^2,  started from w_s

        f: "constant" 1,  "polynomial" (t - s + 1)^-a,  "hinge" 1 if t - s <= b, else 1 / (a (t - s - b) + 1)

    Args:
        sample: how many arrivals make a round, so that algorithms compare at equal work.
        local: what a visit does; its learning rate is that of the round in which the client was sent.
        server: the rule `weighted-mix` with its alpha, in (0, 1].
        staleness: the function f.
        a: of "polynomial" (by default 0.5) and "hinge" (by default 10), >= 0.
        b: of "hinge" (by default 4), >= 0.
        proximal: the paper's rho, >= 0.
        concurrency: clients that are under way at a time, each for as long as its device takes; by default as many
            as a round has arrivals. See `Concurrent`.
        max_staleness: draw each arrival's staleness instead, uniformly up to this one; "matched" for the largest with
            the average parallelism of a synchronous round. See `Drawn`.

    Raises:
        InputError: out of range, both kinds of delay, or a key that the function f does not have.

    Paper: Algorithm 1; a, b, the tuned values of alpha (0.3, 0.6, 0.9) and rho (1e-2 to 1e-12), and the comparison at
    equal parallelism: RADFed, section IV-E.

    Deviations: the mixed entries are all floating ones, batch-norm statistics included, and a counter is the largest.
    A client without a step to take arrives with weight 0: it makes a version that equals the one before. Which f,
    alpha and rho are the defaults is our choice.
    """
    weighting = _weighting(staleness, {name: value for name, value in (("a", a), ("b", b)) if value is not None})
    local = replace(local, proximal=proximal)
    return Algorithm(
        Arrivals(sample, _delay(concurrency, max_staleness)), local, Sharing(), weighting, server, own_round=arrive
    )


FUNCTIONS: dict[str, type[Weighting]] = {"constant": Equal, "polynomial": Polynomial, "hinge": Hinge}


def _weighting(staleness: str, given: dict[str, float]) -> Weighting:
    known = staleness in FUNCTIONS
    require(known, "algorithm.staleness", staleness, " or ".join(map(repr, FUNCTIONS)), "use one")
    function = FUNCTIONS[staleness]
    for name, value in given.items():
        if name not in {field.name for field in fields(function)}:  # type: ignore[arg-type]
            raise InputError(
                f'algorithm.{name} = {value} with algorithm.staleness = "{staleness}": must be left out, for that '
                "function has no such number; remove it"
            )
    return function(**given)


def _delay(concurrency: int | None, max_staleness: int | Literal["matched"] | None) -> Delay:
    if max_staleness is None:
        return Concurrent(concurrency)
    both = (concurrency, max_staleness)
    one = concurrency is None
    require(one, "algorithm.concurrency, algorithm.max_staleness", both, "one of them", "remove the other")
    return Drawn(None if max_staleness == "matched" else max_staleness)
