"""Statistics of a population: client sizes and class mixes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Floats, Integers
from partitioning.common.errors import InputError

_PIECE = 2**17  # entries of a table turned into shares at once, 1 MiB


@dataclass(frozen=True)
class Statistics:
    """Row of RADFed's Table I: client sizes, and distance of class mixes from the global one."""

    clients: int
    samples: int
    classes: int
    min: int
    max: int
    mean: float
    std: float
    c_score: float


@dataclass(frozen=True)
class Heterogeneity:
    """Label and size skew of clients; means over the clients with samples, except the global and the Gini number.

    Args:
        label_entropy: entropy of a client's class mix in bits: 0 for one class, log2 C for equal shares.
        global_entropy: entropy of the class mix of all data in bits, for comparison.
        js_divergence: Jensen-Shannon divergence to the mix of all data in bits: 0 to 1.
        earth_movers: earth mover's distance to the mix of all data: 0 to 1.
        size_gini: Gini coefficient of the sizes: 0 for equal sizes, near 1 if one client has all samples.
        labels: number of classes on a client.
    """

    label_entropy: float
    global_entropy: float
    js_divergence: float
    earth_movers: float
    size_gini: float
    labels: float


def summarise(class_counts: Integers) -> Statistics:
    """Summarise the sizes and class mixes of all clients (RADFed, section V-C and Table I).

        C-score = 1/K sum_k sum_c |r_kc - R_c|   with r a client's class shares and R those of all data: 0 to 2

    Clients without samples are left out of the C-score. The standard deviation is divided by K, not K - 1.

    Args:
        class_counts: samples per client and class [K, C].
    """
    sizes = class_counts.sum(axis=1)
    return Statistics(
        clients=sizes.size,
        samples=int(sizes.sum()),
        classes=class_counts.shape[1],
        min=int(sizes.min()),
        max=int(sizes.max()),
        mean=float(sizes.mean()),
        std=float(sizes.std()),
        c_score=c_score(class_counts),
    )


def c_score(counts: Integers) -> float:
    """Return the C-score (see `summarise`) of samples per client and class or category [K, C]."""
    mix = _mix(counts)
    return _mean(counts, lambda shares: 2 * earth_movers(shares, mix))


def feature_scores(feature_counts: Mapping[str, Integers]) -> dict[str, float]:
    """Return the C-score of each feature, from samples per client and category [K, d]."""
    return {name: c_score(counts) for name, counts in feature_counts.items()}


def measure_skew(class_counts: Integers) -> Heterogeneity:
    """Measure the skew of the clients' class mixes and sizes; clients without samples are left out.

    Args:
        class_counts: samples per client and class [K, C].
    """
    mix, sizes = _mix(class_counts), class_counts.sum(axis=1)
    return Heterogeneity(
        label_entropy=_mean(class_counts, entropy),
        global_entropy=float(entropy(mix)),
        js_divergence=_mean(class_counts, lambda shares: js_divergence(shares, mix)),
        earth_movers=_mean(class_counts, lambda shares: earth_movers(shares, mix)),
        size_gini=gini(sizes[sizes > 0]),
        labels=_mean(class_counts, lambda shares: (shares > 0).sum(axis=-1)),
    )


def entropy(shares: Floats) -> Floats:
    """Return the entropy in bits of each mix [..., C]: -sum_c r_c log2 r_c."""
    from scipy.special import entr

    bits: Floats = entr(shares).sum(axis=-1) / np.log(2)
    return bits


def js_divergence(shares: Floats, mix: Floats) -> Floats:
    """Return the Jensen-Shannon divergence in bits of mixes [..., C] to one mix [C].

        JS(r, R) = KL(r, m) / 2 + KL(R, m) / 2   with m = (r + R) / 2: 0 to 1

    Its square root is the Jensen-Shannon distance.
    """
    from scipy.special import rel_entr

    middle = (shares + mix) / 2
    nats = (rel_entr(shares, middle) + rel_entr(mix, middle)).sum(axis=-1) / 2
    bits: Floats = np.clip(nats / np.log(2), 0.0, 1.0)  # equal mixes may come out at -1e-17
    return bits


def earth_movers(shares: Floats, mix: Floats) -> Floats:
    """Return the earth mover's distance of mixes [..., C] to one mix [C].

        EMD(r, R) = 1/2 sum_c |r_c - R_c|: 0 to 1

    Labels have no order, hence every move costs 1 and this is also the total variation distance. Zhao et al. 2018
    ("Federated Learning with Non-IID Data") define EMD as its double, which has the C-score as its mean over clients.
    """
    distances: Floats = np.abs(shares - mix).sum(axis=-1) / 2
    return distances


def gini(sizes: Integers) -> float:
    """Return the Gini coefficient of sizes [K]; 0 without any.

    G = sum_ij |n_i - n_j| / (2 K^2 mean n) = sum_i (2 i - K - 1) n_i / (K sum n)   with n ascending, i from 1
    """
    ranks = 2.0 * np.arange(1, sizes.size + 1) - sizes.size - 1
    return float(ranks @ np.sort(sizes)) / max(sizes.size * float(sizes.sum()), 1.0)


def fit(class_counts: Integers, asked: npt.ArrayLike) -> tuple[float, float]:
    """Measure the distance of the clients' class shares from wanted ones; clients without samples are left out.

        d_k = 1/2 sum_c |r_kc - asked_kc|, the total variation distance

    Args:
        class_counts: samples per client and class [K, C].
        asked: wanted class shares of each client [K, C]; each row sums to 1.

    Returns:
        Mean and largest distance over the clients, 0 to 1.

    Raises:
        InputError: the shapes differ.
    """
    wished = _check_shape("shares", asked, class_counts)
    parts = [earth_movers(shares, wished[rows]) for rows, shares in _pieces(class_counts)]
    return _mean_and_max(np.concatenate(parts))


def fit_sizes(sizes: Integers, asked: npt.ArrayLike) -> tuple[float, float]:
    """Measure the distance of the clients' sizes from wanted ones.

        d_k = |n_k - asked_k| / N   with N = sum n

    Args:
        sizes: samples per client [K].
        asked: wanted samples of each client [K]; fractions are allowed.

    Returns:
        Mean and largest distance over the clients, 0 to 1.

    Raises:
        InputError: the shapes differ.
    """
    return _mean_and_max(np.abs(sizes - _check_shape("sizes", asked, sizes)) / max(int(sizes.sum()), 1))


def _check_shape(title: str, asked: npt.ArrayLike, found: Integers) -> Floats:
    wished = np.asarray(asked, dtype=np.float64)
    if wished.shape != found.shape:
        raise InputError(
            f"asked {title} have the shape {list(wished.shape)} and the clients' {list(found.shape)}: give equal shapes"
        )
    return wished


def _mean_and_max(deviations: Floats) -> tuple[float, float]:
    return (float(deviations.mean()), float(deviations.max())) if deviations.size else (0.0, 0.0)


def _mix(counts: Integers) -> Floats:
    totals = counts.sum(axis=0)
    mix: Floats = totals / max(int(totals.sum()), 1)
    return mix


def _mean(counts: Integers, measure: Callable[[Floats], npt.NDArray[np.number]]) -> float:
    # Mean of `measure` (shares [k, C] -> [k]) over the clients with samples; 0 without any.
    clients, total = 0, 0.0
    for _, shares in _pieces(counts):
        clients += len(shares)
        total += float(measure(shares).sum())
    return total / max(clients, 1)


def _pieces(counts: Integers) -> Iterator[tuple[Integers, Floats]]:
    # Row numbers [k] and shares [k, C] of clients with samples, a bounded number at a time.
    step = max(1, _PIECE // counts.shape[1])
    for start in range(0, len(counts), step):
        piece = counts[start : start + step]
        sizes = piece.sum(axis=1)
        rows = np.flatnonzero(sizes)
        yield start + rows, piece[rows] / sizes[rows, None]
