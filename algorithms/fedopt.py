"""FedAdam, FedYogi, FedAdagrad: Reddi et al., "Adaptive Federated Optimization", 2021; "FedAdapt" in RADFed."""

from algorithms.fedavg import fedavg
from algorithms.parts.adaptive import Adagrad, Adam, Adaptive, Yogi
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_rule
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local


def fedadam(
    participation: Participation, local: Local, server: Server = Adam(), *, weighting: WeightingName = "equal"
) -> Algorithm:
    """Run FedAvg with an Adam step of the server along the mean of the clients' changes.

        delta = mean_k (w_k - w),   m <- beta1 m + (1 - beta1) delta,   v <- beta2 v + (1 - beta2) delta^2
        w     <- w + eta m / (sqrt(v) + tau)

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: rule `adam` with its parameters.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".

    Raises:
        InputError: the server has another rule.

    Paper: Algorithm 2, FedAdam. RADFed, section IV-E: beta1 0.9, beta2 0.99; eta, tau and v_-1 are tuned.

    Deviations: all entries other than parameters take the mean; see `Adaptive`.
    """
    return _adaptive(participation, local, server, weighting, Adam)


def fedyogi(
    participation: Participation, local: Local, server: Server = Yogi(), *, weighting: WeightingName = "equal"
) -> Algorithm:
    """Run FedAdam with a second moment moved by its distance's sign: v <- v - (1 - beta2) delta^2 sign(v - delta^2).

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: rule `yogi` with its parameters.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".

    Errors, paper and deviations as for `fedadam`.
    """
    return _adaptive(participation, local, server, weighting, Yogi)


def fedadagrad(
    participation: Participation, local: Local, server: Server = Adagrad(), *, weighting: WeightingName = "equal"
) -> Algorithm:
    """Run FedAdam with a second moment that only grows: v <- v + delta^2.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: rule `adagrad` with its parameters.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".

    Errors, paper and deviations as for `fedadam`.
    """
    return _adaptive(participation, local, server, weighting, Adagrad)


def _adaptive(
    participation: Participation, local: Local, server: Server, weighting: WeightingName, rule: type[Adaptive]
) -> Algorithm:
    name = rule.__name__.lower()
    require_rule(server, rule, name, f"fed{name}")
    return fedavg(participation, local, server, weighting=weighting)
