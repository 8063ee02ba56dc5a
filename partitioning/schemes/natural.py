"""Schemes by columns of the data: a column names the client or the domain."""

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Integers, encode, floor_share, positive, read_seed, whole
from partitioning.common.errors import InputError
from partitioning.common.streams import Purpose, generator
from partitioning.schemes.parts import ColumnValues, Parts, even, group


def natural(labels: npt.ArrayLike, *, column: ColumnValues, min_size: int = 1, seed: int = 0) -> Parts:
    """Make one client of each value of a column: a speaking role, a hospital, a city.

    RADFed, section IV-B (Shakespeare: speaking roles; eICU: hospitals with more than 100 admissions).

    Args:
        labels: one label per sample [N]; only their number matters.
        column: column with each sample's client [N], whole numbers or strings.
        min_size: smallest number of samples per client; samples of smaller clients are left out.
        seed: unused; nothing is drawn.

    Returns:
        Ascending int64 arrays of indices, one per value in sorted order, named by the values.

    Raises:
        InputError: the labels or values are no vectors of equal length, or no client is large enough.
    """
    least = whole("min_size", min_size, least=1)
    codes, sizes = _per_sample("column", column, len(encode(labels)[0]))
    names = np.unique(np.asarray(column))
    large = np.flatnonzero(sizes >= least)
    if not large.size:
        raise InputError(f"min_size is {least} and the largest client has {sizes.max()} samples: lower it")
    numbers = np.full(sizes.size, -1, np.int64)
    numbers[large] = np.arange(large.size)
    return Parts(
        group(numbers[codes], large.size),
        names=[str(name) for name in names[large]],
        report={"clients_left_out": int(sizes.size - large.size)},
    )


def domains(
    labels: npt.ArrayLike,
    *,
    domain: ColumnValues,
    clients_per_domain: int = 1,
    fraction: float | None = None,
    equal_sizes: bool = False,
    seed: int = 0,
) -> Parts:
    """Cut each domain into clients with its label mix; no client has samples of two domains.

        n_t = floor(fraction N_d), each class of the domain in proportion

    FedBN, section 5.1 and appendix D.2 (five digit data sets of 7438 samples, 1 to 10 clients with 10 % each, 1 % to
    100 % on one).

    Args:
        labels: one label per sample [N].
        domain: column with each sample's domain [N]; by default each of several sources is a domain.
        clients_per_domain: clients per domain.
        fraction: share of its domain's samples on each client; by default all samples are dealt.
        equal_sizes: whether every domain is first cut to the size of the smallest, at random within each class.
        seed: key of every draw.

    Returns:
        Ascending int64 arrays of indices, domain after domain in sorted order.

    Raises:
        InputError: a value is out of range, or the fraction is too large for the number of clients or leaves one
            without samples.
    """
    codes, _ = encode(labels)
    each, seed = whole("clients_per_domain", clients_per_domain, least=1), read_seed(seed)
    kinds, sizes = _per_sample("domain", domain, codes.size)
    if not isinstance(equal_sizes, bool | np.bool_):
        raise InputError(f"equal_sizes is {equal_sizes!r:.80}: give True or False")
    names = [str(name) for name in np.unique(np.asarray(domain))]
    bases = np.full_like(sizes, sizes.min()) if equal_sizes else sizes
    dealt = [_parcels(int(base), each, fraction, name) for base, name in zip(bases, names, strict=True)]
    random = generator(seed, Purpose.DEAL)
    parts: list[Integers] = []
    for place, parcels in enumerate(dealt):
        rows = random.permutation(np.flatnonzero(kinds == place))
        rows = rows[np.argsort(codes[rows], kind="stable")]
        # Deal evenly spaced rows, sorted by class, in turn: each class is in proportion, within one sample.
        chosen = rows[np.arange(parcels.sum()) * rows.size // parcels.sum()]
        parts += [np.sort(chosen[client::each]) for client in range(each)]
    return Parts(parts, domains=[name for name in names for _ in range(each)])


def _per_sample(name: str, values: npt.ArrayLike, samples: int) -> tuple[Integers, Integers]:
    codes, sizes = encode(values, name=name)
    if codes.size != samples:
        raise InputError(f"{name} has {codes.size} values for {samples} samples: give one per sample")
    return codes, sizes


def _parcels(base: int, clients: int, fraction: float | None, name: str) -> Integers:
    # Samples of each client of a domain, out of `base`.
    if fraction is None:
        parcels = even(base, clients)
    else:
        if not positive("fraction", fraction) * clients <= 1 + 1e-9:
            raise InputError(
                f"fraction is {fraction!r} for each of {clients} clients of a domain: give {1 / clients:.6g} or less"
            )
        parcels = np.full(clients, floor_share(fraction, base))
    if parcels.min() < 1:
        raise InputError(
            f"domain {name!r} has {base} samples to deal, too few for {clients} clients"
            + (f" with a fraction of {fraction!r} each" if fraction is not None else "")
            + ": ask for fewer clients or more of the data"
        )
    return parcels
