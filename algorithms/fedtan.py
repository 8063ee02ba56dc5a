"""FedTAN: Wang, Shi and Chang, "Why Batch Normalization Damages Federated Learning on Non-IID Data?", 2023."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from algorithms.core.errors import require
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import Equal
from algorithms.training.local import Local, require_defaults
from algorithms.training.loss import CrossEntropy

if TYPE_CHECKING:
    from algorithms.core.fleet import Fleet
    from algorithms.core.state import State
    from algorithms.options.exchange import Common

DROPOUT = (
    "algorithm.name = 'fedtan' on a model with dropout: must be one without, because the cohort's first batches "
    "pass it together; use another model, or another algorithm"
)
"""Error for a model with dropout."""


def common_first_step(
    state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool, meanwhile: Callable[[], None]
) -> State:
    """Run one round with first local steps that normalise by common statistics; arguments as in `next_round`."""
    from algorithms.core.blocks import block_over
    from algorithms.options.exchange import AfterCommonStep, Exchange
    from algorithms.rounds.round import client_updates, sample_cohort
    from algorithms.rounds.watched import watched_round

    started, cohort = time.perf_counter(), sample_cohort(state, algorithm, fleet)
    exchange = Exchange(client_updates(state, algorithm, fleet, aggregate=True), algorithm.refuses_dropout)
    (outcome,) = fleet.map(exchange, [block_over(cohort, fleet)], [fleet.put((state.model, state.average))])
    common: tuple[Common, ...] = outcome.value
    taken = time.perf_counter() - started

    wrap = partial(AfterCommonStep, common=common)
    state = watched_round(state, algorithm, fleet, last=last, meanwhile=meanwhile, wrap=wrap)
    report = state.report
    if report is None:
        raise RuntimeError("the round left no report")
    # Updates that are left out later, because their result is not finite, took part as well.
    took_part = int((report.updates.column("used") > 0).sum())
    sent = took_part * sum(layer.nbytes for layer in common)
    measures = dict(report.measures)
    devices = fleet.census.devices
    if devices is not None and took_part:
        each = sent / took_part
        slowest = max(devices.wire(client, each, each, 3 * len(common)) for client in cohort.tolist())
        measures["simulated_seconds"] += slowest
    report = replace(
        report,
        measures=measures,
        bytes_up=report.bytes_up + sent,
        bytes_down=report.bytes_down + sent,
        exchanges=3 * len(common) + 1,
        seconds={**report.seconds, "train": report.seconds["train"] + taken},
    )
    return replace(state, report=report)


def fedtan(sample: Sample, local: Local, server: Server = Assign()) -> Algorithm:
    """Run FedAvg with common batch statistics of all clients in the first local step of each round.

        mu_l = 1/m sum_k mean(h_kl),   var_l = 1/m sum_k mean((h_kl - mu_l)^2)          layer by layer
        A_l, B_l = the derivatives of 1/m sum_k F_k by mu_l and var_l                    and back
        g_k = grad_w [F_k(w; mu, var) + sum_l <A_l, mean(h_kl)> + <B_l, mean((h_kl - mu_l)^2)>],  mu, var, A, B constant

    The mean of the g_k is the gradient of the mean loss, through the statistics. All further local steps are
    ordinary; then models and statistics are averaged.

    Args:
        sample: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.

    Raises:
        InputError: `local` has momentum, another loss or optimizer, a schedule, a proximal term, rotating batches,
            bf16, or other statistics than the batch's; `sample` draws by importance; or the model has dropout or no
            batch norm (when they meet).

    Paper: Algorithm 1; a baseline in FixBN, Table 5. A round counts as 3 L + 1 exchanges for L batch-norm layers: the
    means, the variances and the gradients by both for each layer, and the models. With one local step and batches of
    one size it is centralised training on the union of the batches.

    Deviations: the exchanges are computed in one place, on all first batches at once. Clients count equally, whatever
    the sizes of their batches, as in the paper's average. The running variance tracks var_l n / (n - 1), as batch norm
    does; n is the number of values a channel in all first batches. A client without a batch takes no part. Subclasses
    of batch norm, such as batch renormalisation, take the common step like batch norm.
    """
    keys = "momentum", "proximal", "statistics", "optimizer", "lr_schedule", "batches"
    require_defaults(local, "fedtan, which takes its own first step", *keys)
    plain_loss = local.loss == CrossEntropy()
    require(plain_loss, "local.loss", local.loss.title, "plain cross-entropy for fedtan", "leave it out")
    drawn = sample.by in ("uniform", "size")
    require(drawn, "algorithm.sampling", sample.by, "'uniform' or 'size' for fedtan", "leave it out")
    precision = local.compute.precision
    require(
        precision != "bf16", "local.precision", precision, "fp32 or fp64 for fedtan", 'set local.precision = "fp32"'
    )
    plain = replace(fedavg(sample, local, server), weighting=Equal())
    return replace(plain, own_round=common_first_step, needs_batch_norm=True, refuses_dropout=DROPOUT)
