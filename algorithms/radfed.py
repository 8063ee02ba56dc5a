"""RADFed: Xue, Klabjan, Luo, "Aggregation Delayed Federated Learning", 2021."""

from dataclasses import replace
from typing import Literal

from algorithms.core.errors import require
from algorithms.core.returned import is_own
from algorithms.fedprox import with_proximal
from algorithms.options.importance import Importance, ScoredBy
from algorithms.parts.adaptive import Adam, Adaptive
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import FewerClients, Participation, Rounds
from algorithms.parts.server import Assign, Mix, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal
from algorithms.training.local import Local


def radfed(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    aggregate_every: int = 15,
    fewer: FewerClients = "wait",
) -> Algorithm:
    """Redistribute models S - 1 times, then aggregate them (randomised aggregation-delayed federated learning).

        w^i_(s+1) <- ClientUpdate(U_i, w^i_s),  U: m clients drawn anew in each s = 1..S
        w_(t+1)   <- 1/m sum_i w^i_(S+1)

    Args:
        participation: rule that draws each round's cohort U.
        local: content of a client update.
        server: step from the mean to the next global model.
        aggregate_every: the paper's S, >= 1 (Table II: 15 to 80); with 1 it is FedAvg with equal weights.
        fewer: rule if `algorithm.active` leaves fewer clients than models: the models with most client updates "wait",
            or "drop" the models without a client; see `Rounds`.

    Paper: section III-A, Algorithm 1; fewer active clients: its last paragraph.

    Deviations: `rounds` counts local training rounds (the paper's T x S, the x-axis of its figures). The last one
    always aggregates. A separate random permutation deals the models to the clients of U.
    """
    return Algorithm(Rounds(participation, aggregate_every, fewer), local, Sharing(), Equal(), server)


def radfedp(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    aggregate_every: int = 15,
    fewer: FewerClients = "wait",
    proximal: float = 0.01,
) -> Algorithm:
    """Run RADFed with a proximal term that holds clients near the received model.

        min_w F_k(w) + proximal / 2 ||w - w'||^2,  started from the w' that was redistributed

    Args:
        participation: rule that draws each round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model; another rule combines methods, such as RADFedp with Adam.
        aggregate_every: the paper's S, >= 1.
        fewer: as in `radfed`.
        proximal: the paper's rho, >= 0; with 0 it is RADFed.

    Paper: section III-C, Algorithm 2 without its lines 11 and 14 to 17.

    Deviations: as `radfed`.
    """
    return radfed(participation, with_proximal(local, proximal), server, aggregate_every=aggregate_every, fewer=fewer)


def radfedm(
    participation: Participation,
    local: Local,
    server: Server = Mix(0.6),
    *,
    aggregate_every: int = 15,
    fewer: FewerClients = "wait",
) -> Algorithm:
    """Run RADFed with a global model that moves only part of the way: w <- (1 - alpha) w + alpha mean.

    Args:
        participation: rule that draws each round's cohort.
        local: content of a client update.
        server: rule `mix` with its alpha; alpha = 1 is RADFed.
        aggregate_every: the paper's S, >= 1.
        fewer: as in `radfed`.

    Raises:
        InputError: the server has another rule.

    Paper: section III-C ("RADFed+Momentum"), Algorithm 2, line 14; alpha is FedAsync's: 0.3, 0.6 or 0.9.

    Deviations: as `radfed`.
    """
    fits = isinstance(server, Mix) or is_own(server)
    require(fits, "server.rule", server, "'mix' for radfedm", 'set server.rule = "mix"')
    return radfed(participation, local, server, aggregate_every=aggregate_every, fewer=fewer)


def radfeda(
    participation: Participation,
    local: Local,
    server: Server = Adam(),
    *,
    aggregate_every: int = 15,
    fewer: FewerClients = "wait",
) -> Algorithm:
    """Run RADFed with an adaptive step of the server: delta = mean - w, w <- w + eta m / (sqrt(v) + tau).

    Args:
        participation: rule that draws each round's cohort.
        local: content of a client update.
        server: rule `adam`, `yogi` or `adagrad` with its parameters.
        aggregate_every: the paper's S, >= 1.
        fewer: as in `radfed`.

    Raises:
        InputError: the server has another rule.

    Paper: section III-C, Algorithm 2, lines 15 to 17.

    Deviations: as `radfed`. Line 17 prints v without a square root; we take the root, as its reference [21] does.
    """
    fits = isinstance(server, Adaptive) or is_own(server)
    require(fits, "server.rule", server, "'adam', 'yogi' or 'adagrad' for radfeda", 'set server.rule = "adam"')
    return radfed(participation, local, server, aggregate_every=aggregate_every, fewer=fewer)


def radfedi(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    aggregate_every: int = 15,
    fewer: FewerClients = "wait",
    gamma: float = 0.9,
    per: ScoredBy = "batches",
    start: Literal["score", "equal"] = "score",
    proximal: float = 0.0,
) -> Algorithm:
    """Run RADFed that draws clients in proportion to their squared gradient norms.

        U ~ p,   p_k <- (1 - gamma) p_k + gamma mean_b |grad F_k,b(w*)|^2,   w* the model after the client update

    Args:
        participation: size of each round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model; other rules combine RADFedi with RADFedm or RADFeda.
        aggregate_every: the paper's S, >= 1.
        fewer: as in `radfed`.
        gamma: in (0, 1]; the paper tunes 0.6 to 0.95 and takes 0.9 on all data sets but one (Table II).
        per: terms of the mean: mini-"batches" of the client update's last pass, or the client's "samples".
        start: p_k before the first round: each client's "score" under w_1, or "equal" values.
        proximal: RADFedp's rho, >= 0.

    Raises:
        InputError: a number is out of range, or `participation` has another `by`.

    Paper: section III-B, Algorithm 2.

    Deviations: as `radfed` and `Importance`. Algorithm 2 prints the mean over samples; we follow the text and the
    authors, who take mini-batches.
    """
    uniform, allowed = participation.by == "uniform", "left out for radfedi, which draws by importance"
    require(uniform, "algorithm.sampling", participation.by, allowed, "remove it")
    by_importance = replace(participation, by=Importance(gamma, per, start))
    return radfed(by_importance, with_proximal(local, proximal), server, aggregate_every=aggregate_every, fewer=fewer)
