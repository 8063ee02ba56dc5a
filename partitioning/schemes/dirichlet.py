"""The two schemes called "Dirichlet": class mixes of clients, and client shares of classes."""

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Floats, Integers, encode, positive, read_seed, whole
from partitioning.common.streams import Purpose, generator
from partitioning.common.threads import one_thread
from partitioning.measures.statistics import fit
from partitioning.qp.rounding import round_table
from partitioning.qp.transport import project
from partitioning.schemes.parts import Parts, deal_by_table, even, report_of, require
from partitioning.schemes.priors import draw_shares
from partitioning.schemes.sizes import apportion, raise_to


def dirichlet(labels: npt.ArrayLike, *, clients: int, label_alpha: float = 1.0, seed: int = 0) -> Parts:
    """Draw each client's class mix around the global one, and fill clients of equal size one after the other.

        q_t ~ Dir(label_alpha p),   n_t = N / K,   each sample of client t ~ q_t without replacement

    An exhausted class is left out of q_t; the last clients take the remaining samples. Hsu et al. 2019, section 3;
    FixBN, section 4.1. Most libraries call another scheme by this name: `dirichlet_per_class`. Deviation: sizes differ
    by 1 if K does not divide N.

    Args:
        labels: one label per sample [N].
        clients: number of clients K, at most N.
        label_alpha: Dirichlet prior of class mixes: small is uneven.
        seed: key of every draw.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: a value is out of range.
    """
    codes, columns = encode(labels)
    clients, seed = whole("clients", clients, least=1), read_seed(seed)
    alpha = positive("label_alpha", label_alpha)
    require(codes.size, clients, 1)
    random = generator(seed, Purpose.MIXES)
    mixes = _draw_log_mixes(random, np.clip(alpha * columns / codes.size, 1e-300, 1e18), clients)
    left = columns.copy()
    sizes = even(codes.size, clients)
    table = np.stack([_fill(size, mix, left, random) for size, mix in zip(sizes, mixes, strict=True)])
    asked = np.exp(mixes - mixes.max(axis=1, keepdims=True))
    report = report_of({"classes": fit(table, asked / asked.sum(axis=1, keepdims=True))})
    return Parts(deal_by_table(codes, table, generator(seed, Purpose.DEAL)), report=report)


def _draw_log_mixes(random: np.random.Generator, prior: Floats, clients: int) -> Floats:
    # log q up to a constant per client. Once a class is exhausted, the order of shares too small for a float decides.
    # A gamma variate of shape a is one of shape a + 1 times a uniform variate to the power 1 / a.
    shape = (clients, prior.size)
    mixes: Floats = np.log(random.gamma(prior + 1, size=shape)) - random.exponential(size=shape) / prior
    return mixes


def _fill(size: int, log_mix: Floats, left: Integers, random: np.random.Generator) -> Integers:
    # One client's samples per class, taken out of `left`. Each pass fills the client or exhausts a class.
    taken = np.zeros_like(left)
    while (missing := int(size - taken.sum())) > 0:
        remaining = np.where(left > 0, log_mix, -np.inf)
        weights = np.exp(remaining - remaining.max())
        drawn = np.minimum(random.multinomial(missing, weights / weights.sum()), left)
        taken += drawn
        left -= drawn
    return taken


@one_thread
def dirichlet_per_class(
    labels: npt.ArrayLike, *, clients: int, label_alpha: float = 1.0, min_size: int = 1, seed: int = 0
) -> Parts:
    """Divide each class among the clients by shares of its own; client sizes follow.

        p_k ~ Dir(label_alpha 1_K),   A_tk = p_kt C_k, rounded by the largest remainder

    Clients below `min_size` are raised to it: the nearest table with these sizes replaces A. Other libraries draw again
    until all clients are large enough, possibly for ever. Yurochkin et al. 2019; Li et al. 2022 (NIID-Bench). Most
    libraries call this the "Dirichlet" partition. Deviation: `min_size`.

    Args:
        labels: one label per sample [N].
        clients: number of clients K.
        label_alpha: Dirichlet prior of class mixes: small is uneven.
        min_size: smallest number of samples per client; clients x min_size must not exceed N.
        seed: key of every draw.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: a value is out of range.
    """
    codes, columns = encode(labels)
    clients, seed = whole("clients", clients, least=1), read_seed(seed)
    alpha, least = positive("label_alpha", label_alpha), whole("min_size", min_size, least=0)
    require(codes.size, clients, least)
    shares = draw_shares(generator(seed, Purpose.MIXES), alpha, clients=columns.size, parts=clients)
    table = np.stack([apportion(share, int(total)) for share, total in zip(shares, columns, strict=True)], axis=1)
    sizes = raise_to(table.sum(axis=1), least)
    if not np.array_equal(sizes, table.sum(axis=1)):
        table = round_table(project(table.astype(np.float64), sizes, columns), sizes, columns)
    report = report_of({"classes": fit(table.T, shares)})  # shares of the clients in each class
    return Parts(deal_by_table(codes, table, generator(seed, Purpose.DEAL)), report=report)
