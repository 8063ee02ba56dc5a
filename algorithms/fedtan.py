"""FedTAN: Wang, Shi and Chang, "Why Batch Normalization Damages Federated Learning on Non-IID Data?", 2023."""

from algorithms.core.errors import require
from algorithms.fedavg import fedavg
from algorithms.options.common_step import CommonStep
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.training.local import Local, require_defaults
from algorithms.training.loss import CrossEntropy


def fedtan(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    """Run FedAvg with common batch statistics of all clients in the first local step of each round.

        mu_l = 1/m sum_k mean(h_kl),   var_l = 1/m sum_k mean((h_kl - mu_l)^2)          layer by layer
        A_l, B_l = the derivatives of 1/m sum_k F_k by mu_l and var_l                    and back
        g_k = grad_w [F_k(w; mu, var) + sum_l <A_l, mean(h_kl)> + <B_l, mean((h_kl - mu_l)^2)>],  mu, var, A, B constant

    The mean of the g_k is the gradient of the mean loss, through the statistics. All further local steps are
    ordinary; then models and statistics are averaged.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.

    Raises:
        InputError: `local` has momentum, another loss or optimizer, a schedule, a `method`, rotating batches,
            bf16, or other statistics than the batch's; `participation` draws by scores; or the model has dropout or no
            batch norm (when they meet).

    Paper: Algorithm 1; a baseline in FixBN, Table 5. A round counts as 3 L + 1 exchanges for L batch-norm layers: the
    means, the variances and the gradients by both for each layer, and the models. With one local step and batches of
    one size it is centralised training on the union of the batches.

    Deviations: the exchanges are computed in one place, on all first batches at once. Clients count equally, whatever
    the sizes of their batches, as in the paper's average. The running variance tracks var_l n / (n - 1), as batch norm
    does; n is the number of values a channel in all first batches. A client without a batch takes no part. Subclasses
    of batch norm, such as batch renormalisation, take the common step like batch norm.
    """
    keys = "momentum", "method", "statistics", "optimizer", "lr_schedule", "batches"
    require_defaults(local, "fedtan, which takes its own first step", *keys)
    plain_loss = local.loss == CrossEntropy()
    require(plain_loss, "local.loss", local.loss.title, "plain cross-entropy for fedtan", "leave it out")
    drawn = participation.by in ("uniform", "size")
    require(drawn, "algorithm.sampling", participation.by, "'uniform' or 'size' for fedtan", "leave it out")
    precision = local.compute.precision
    require(
        precision != "bf16", "local.precision", precision, "fp32 or fp64 for fedtan", 'set local.precision = "fp32"'
    )
    return fedavg(participation, local, server, weighting="equal").having(CommonStep())
