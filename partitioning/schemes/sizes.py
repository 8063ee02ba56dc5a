"""Client sizes: Dirichlet shares turned into whole numbers with an exact sum."""

import numpy as np

from partitioning.common.checks import Floats, Integers
from partitioning.schemes.priors import draw_shares


def apportion(shares: Floats, total: int) -> Integers:
    """Cut `total` into whole parts [K] by the largest remainder.

    n_t = floor(total s_t / sum s); the parts with the largest fractions get one more until sum n = total.
    """
    quotas = shares / shares.sum() * total
    parts: Integers = np.floor(quotas).astype(np.int64)
    by_remainder = np.argsort(parts - quotas, kind="stable")
    parts[by_remainder[: total - int(parts.sum())]] += 1
    return parts


def raise_to(sizes: Integers, least: int) -> Integers:
    """Raise every client to at least `least` samples and keep the sum; sufficient sizes are unchanged.

        n_t <- m + (N - K m) (n_t - m)^+ / sum_s (n_s - m)^+, rounded by the largest remainder

    Clients above m pay in proportion to their surplus, hence the order of the sizes stays. Requires K m <= N.
    """
    if sizes.min() >= least:
        return sizes
    spare = int(sizes.sum()) - sizes.size * least
    surplus = np.maximum(sizes - least, 0).astype(np.float64)
    return least + (apportion(surplus, spare) if spare else np.zeros_like(sizes))


def draw_sizes(
    random: np.random.Generator, *, samples: int, clients: int, alpha: float, least: int
) -> tuple[Integers, Floats]:
    """Draw client sizes, n ~ Dir(alpha 1_K), with sum n = samples and n_t >= least (RADFed, section IV-A).

    Deviation: `least`, which the paper does not mention, is enforced by `raise_to`.

    Returns:
        The sizes [K], and the drawn real sizes [K].
    """
    shares = draw_shares(random, alpha, clients=1, parts=clients, name="size_alpha")[0]
    return raise_to(apportion(shares, samples), least), shares * samples
