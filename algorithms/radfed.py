"""RADFed: Xue, Klabjan, Luo, "Aggregation Delayed Federated Learning"."""

from dataclasses import replace
from typing import Literal

from algorithms.engine.errors import require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.importance import Importance, Scored
from algorithms.parts.local import Local
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Adam, Assign, Mix, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal

Fewer = Literal["wait", "drop"]


def radfed(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    aggregate_every: int = 15,
    fewer: Fewer = "wait",
) -> Algorithm:
    """Randomised aggregation-delayed federated learning: models are redistributed S - 1 times, then merged.

        w^i_(s+1) <- ClientUpdate(U_i, w^i_s),  U: m clients drawn anew in each s = 1..S
        w_(t+1)   <- 1/m sum_i w^i_(S+1)

    Args:
        sample: how each round's cohort U is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        merge_every: the paper's S, >= 1 (Table II: 15 to 80); with 1 it is FedAvg with equal weights.
        fewer: where `algorithm.active` leaves fewer clients than models: the models that have made most visits "wait",
            or those without a client are "dropped"; see `Rounds`.

    Paper: section III-A, Algorithm 1; fewer active clients: its last paragraph.

    Deviations: `rounds` counts local training rounds (the paper's T x S, the x-axis of its figures), and the last
    one merges even when it is not an S-th. Which model goes to which client of U is a permutation of its own.
    """
    return Algorithm(Rounds(sample, aggregate_every, fewer), local, Sharing(), Equal(), server)


def radfedp(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    aggregate_every: int = 15,
    fewer: Fewer = "wait",
    proximal: float = 0.01,
) -> Algorithm:
    """RADFed whose clients are held near the model that they received.

        min_w F_k(w) + proximal / 2 ||w - w'||^2,  started from the w' that was redistributed

    Args:
        sample: how each round's cohort is drawn.
        local: what a visit does.
        server: how the mean becomes the next model; another rule makes a combination, such as RADFedp with Adam.
        merge_every: the paper's S, >= 1.
        fewer: as `radfed`.
        proximal: the paper's rho, >= 0; with 0 it is RADFed.

    Paper: section III-C, Algorithm 2 without its lines 11 and 14 to 17. Deviations: as `radfed`.
    """
    return radfed(sample, replace(local, proximal=proximal), server, aggregate_every=aggregate_every, fewer=fewer)


def radfedm(
    sample: Sample, local: Local, server: Server = Mix(0.6), *, aggregate_every: int = 15, fewer: Fewer = "wait"
) -> Algorithm:
    """RADFed whose global model goes only part of the way: w <- (1 - alpha) w + alpha mean.

    Args:
        sample: how each round's cohort is drawn.
        local: what a visit does.
        server: the rule `mix` with its alpha; alpha = 1 is RADFed.
        merge_every: the paper's S, >= 1.
        fewer: as `radfed`.

    Paper: section III-C ("RADFed+Momentum"), Algorithm 2, line 14; alpha is FedAsync's, of 0.3, 0.6 and 0.9.
    Deviations: as `radfed`.
    """
    return radfed(sample, local, server, aggregate_every=aggregate_every, fewer=fewer)


def radfeda(
    sample: Sample, local: Local, server: Server = Adam(), *, aggregate_every: int = 15, fewer: Fewer = "wait"
) -> Algorithm:
    """RADFed whose server takes an adaptive step: delta = mean - w, w <- w + eta m / (sqrt(v) + tau).

    Args:
        sample: how each round's cohort is drawn.
        local: what a visit does.
        server: the rule `adam`, `yogi` or `adagrad` with its parameters.
        merge_every: the paper's S, >= 1.
        fewer: as `radfed`.

    Paper: section III-C, Algorithm 2, lines 15 to 17. Deviations: as `radfed`; line 17 prints v without the square root
    that [21], which it cites, takes.
    """
    return radfed(sample, local, server, aggregate_every=aggregate_every, fewer=fewer)


def radfedi(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    aggregate_every: int = 15,
    fewer: Fewer = "wait",
    gamma: float = 0.5,
    per: Scored = "batches",
    start: Literal["score", "equal"] = "score",
    proximal: float = 0.0,
) -> Algorithm:
    """RADFed that draws clients in proportion to how large their gradients have been.

        U ~ p,   p_k <- (1 - gamma) p_k + gamma mean_b |grad F_k,b(w*)|^2,   w* where the visit has ended

    Args:
        sample: how large each round's cohort is.
        local: what a visit does.
        server: how the mean becomes the next model; with another rule it is RADFedi with RADFedm or RADFeda.
        merge_every: the paper's S, >= 1.
        fewer: as `radfed`.
        gamma: in (0, 1].
        per: what the mean is over: the mini-"batches" of the visit's last pass, or the client's "samples".
        start: p_k before the first round: each client's "score" under w_1, or "equal" ones.
        proximal: RADFedp's rho, >= 0.

    Raises:
        InputError: a number is out of range, or `sample` draws in another way.

    Paper: section III-B, Algorithm 2. Deviations: as `radfed`, and `Importance`; Algorithm 2 prints the mean over
    samples where the text and its authors have mini-batches.
    """
    uniform = sample.by == "uniform"
    require(uniform, "algorithm.sampling", sample.by, "left out for radfedi, which draws by importance", "remove it")
    by_importance = replace(sample, by=Importance(gamma, per, start))
    return radfed(
        by_importance, replace(local, proximal=proximal), server, aggregate_every=aggregate_every, fewer=fewer
    )
