"""Schemes without label skew: equal sizes, or sizes alone."""

import numpy.typing as npt

from partitioning.common.checks import encode, positive, read_seed, whole
from partitioning.common.streams import Purpose, generator
from partitioning.measures.statistics import fit_sizes
from partitioning.schemes.parts import Parts, deal_by_size, digits, even, require
from partitioning.schemes.sizes import draw_sizes


def iid(labels: npt.ArrayLike, *, clients: int, seed: int = 0) -> Parts:
    """Deal all samples at random into parts of nearly equal size.

        n_t = floor(N / K) or ceil(N / K), sum n = N

    McMahan et al. 2017 (FedAvg), section 3, for N a multiple of K.

    Args:
        labels: one label per sample [N]; only their number matters.
        clients: number of clients K, at most N.
        seed: key of the shuffle.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: a value is out of range.
    """
    codes, _ = encode(labels)
    clients, seed = whole("clients", clients, least=1), read_seed(seed)
    require(codes.size, clients, 1)
    return Parts(deal_by_size(even(codes.size, clients), codes.size, generator(seed, Purpose.DEAL)))


def quantity(
    labels: npt.ArrayLike, *, clients: int, size_alpha: float = 1.0, min_size: int = 1, seed: int = 0
) -> Parts:
    """Skew only the sizes: every client's samples are drawn at random from all.

        n ~ Dir(size_alpha 1_K) N

    FedBS, section III-A ("unbalancedness"); sizes are drawn as in RADFed, section IV-A.

    Args:
        labels: one label per sample [N]; only their number matters.
        clients: number of clients K.
        size_alpha: Dirichlet prior of client sizes: small is uneven.
        min_size: smallest number of samples per client; clients x min_size must not exceed N.
        seed: key of every draw.

    Returns:
        K ascending int64 arrays of indices into `labels`.

    Raises:
        InputError: a value is out of range.
    """
    codes, _ = encode(labels)
    clients, seed = whole("clients", clients, least=1), read_seed(seed)
    alpha, least = positive("size_alpha", size_alpha), whole("min_size", min_size, least=0)
    require(codes.size, clients, least)
    sizes, asked = draw_sizes(
        generator(seed, Purpose.SIZES), samples=codes.size, clients=clients, alpha=alpha, least=least
    )
    report = {"sizes_to_asked": digits(fit_sizes(sizes, asked)[1])}
    return Parts(deal_by_size(sizes, codes.size, generator(seed, Purpose.DEAL)), report=report)
