"""How many samples each client gets: Dirichlet shares turned into whole numbers with an exact sum."""

import numpy as np

from partitioning.common.checks import Floats, Integers
from partitioning.schemes.priors import draw_shares


def apportion(shares: Floats, total: int) -> Integers:
    """Cut `total` into whole parts [K] by the largest remainder.

    n_t = floor(total s_t / sum s), and the parts with the largest fractions get one more until sum n = total.
    """
    quotas = shares / shares.sum() * total
    parts: Integers = np.floor(quotas).astype(np.int64)
    by_remainder = np.argsort(parts - quotas, kind="stable")
    parts[by_remainder[: total - int(parts.sum())]] += 1
    return parts


def raise_to(sizes: Integers, least: int) -> Integers:
    """Give every client at least `least` samples, keeping the sum; sizes that already do are unchanged.

    n_t <- m + (N - K m) (n_t - m)^+ / sum_s (n_s - m)^+

    then the largest remainder again: those above m pay in proportion to what they have above it, so the order
    of the sizes stays. Needs K m <= N.
    """
    if sizes.min() >= least:
        return sizes
    spare = int(sizes.sum()) - sizes.size * least
    surplus = np.maximum(sizes - least, 0).astype(np.float64)
    return least + (apportion(surplus, spare) if spare else np.zeros_like(sizes))


def draw_sizes(
    random: np.random.Generator, *, samples: int, clients: int, alpha: float, least: int
) -> tuple[Integers, Floats]:
    """Draw client sizes [K], n ~ Dir(alpha 1_K), with sum n = samples and n_t >= least; and what was drawn [K].

    RADFed, section IV-A. Deviation: `least`, which the paper does not print, is met by `raise_to`.
    """
    shares = draw_shares(random, alpha, clients=1, parts=clients, name="size_alpha")[0]
    return raise_to(apportion(shares, samples), least), shares * samples
