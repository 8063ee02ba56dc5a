"""Schemes: functions from labels to one array of sample indices a client."""

import inspect
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from partitioning.checks import Integers, encode, positive, whole
from partitioning.errors import InputError, listing, suggestion
from partitioning.projection import project
from partitioning.rounding import round_table
from partitioning.sizes import draw_shares, draw_sizes
from partitioning.streams import Purpose, generator

Scheme = Callable[..., list[Integers]]


def iid(labels: npt.ArrayLike, *, clients: int, seed: int = 0) -> list[Integers]:
    """Deal all samples at random into parts of nearly equal size.

    n_t = floor(N / K) or ceil(N / K), sum n = N

    Args:
        labels: one label a sample [N]; only their number matters.
        clients: number of clients K, at most N.
        seed: keys the shuffle.

    Returns K ascending int64 arrays of indices into `labels`. Raises InputError for values out of range.
    McMahan et al. 2017 (FedAvg), section 3, where N is a multiple of K.
    """
    codes, _ = encode(labels)
    clients, seed = whole("clients", clients, least=1), whole("seed", seed, least=0)
    _require(samples=codes.size, clients=clients, least=1)
    sizes = np.full(clients, codes.size // clients)
    sizes[: codes.size % clients] += 1
    owners = np.empty_like(codes)
    owners[generator(seed, Purpose.DEAL).permutation(codes.size)] = np.repeat(np.arange(clients), sizes)
    return _group(owners, sizes)


def dirichlet_qp(
    labels: npt.ArrayLike,
    *,
    clients: int,
    size_alpha: float = 1.0,
    label_alpha: float = 1.0,
    min_size: int = 1,
    seed: int = 0,
) -> list[Integers]:
    """Draw client sizes and class mixes independently, and take the nearest partition that exists.

    n ~ Dir(size_alpha 1_K) N,   c_t ~ Dir(label_alpha 1_C)
    min_{A >= 0} sum_tk (A_tk - c_tk n_t)^2   subject to   sum_k A_tk = n_t,   sum_t A_tk = C_k

    then A is rounded to whole samples that keep both sums exactly, and each class is shuffled and cut by A.

    Args:
        labels: one label a sample [N], whole numbers or strings.
        clients: number of clients K.
        size_alpha: the paper's mu; small: few large clients, large: equal sizes.
        label_alpha: the paper's lambda; small: one class a client, large: every client has the global mix.
        min_size: the least samples a client gets; clients x min_size must not exceed N.
        seed: keys every draw.

    Returns K ascending int64 arrays of indices into `labels`, disjoint and complete.
    Raises InputError for values out of range, RuntimeError where the solver fails.
    RADFed, section IV-A, problem (1). Deviations: `min_size` (see `sizes.raise_to`), the rounding (see
    `rounding.round_table`), and the optimum itself in place of Algorithm 3's random point near it.
    """
    codes, columns = encode(labels)
    clients, seed = whole("clients", clients, least=1), whole("seed", seed, least=0)
    size_alpha, label_alpha = positive("size_alpha", size_alpha), positive("label_alpha", label_alpha)
    min_size = whole("min_size", min_size, least=0)
    _require(samples=codes.size, clients=clients, least=min_size)
    rows = draw_sizes(
        generator(seed, Purpose.SIZES), samples=codes.size, clients=clients, alpha=size_alpha, least=min_size
    )
    mixes = draw_shares(generator(seed, Purpose.MIXES), label_alpha, parts=columns.size, draws=clients)
    table = round_table(project(mixes * rows[:, None], rows, columns), rows, columns)
    return _deal(codes, table, generator(seed, Purpose.DEAL))


SCHEMES: Mapping[str, Scheme] = MappingProxyType({"iid": iid, "dirichlet-qp": dirichlet_qp})
"""Every scheme by its name on the command line and in files."""


def partition(labels: npt.ArrayLike, scheme: str, *, clients: int, seed: int = 0, **parameters: Any) -> list[Integers]:
    """Partition by the name of a scheme.

    Args:
        labels: one label a sample [N].
        scheme: a name in `SCHEMES`.
        clients: number of clients K.
        seed: keys every draw.
        parameters: what the scheme takes besides; what is missing has the scheme's default.

    Returns K index arrays. Raises InputError for an unknown scheme or parameter, naming the nearest.
    """
    resolved = resolve(scheme, parameters)
    return SCHEMES[scheme](labels, clients=clients, seed=seed, **resolved)


def resolve(scheme: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a scheme, defaults filled in and numbers in the type of their default.

    So 1 and 1.0, or a numpy number, are written to a manifest alike. Raises InputError as `partition` does.
    """
    if scheme not in SCHEMES:
        raise InputError(f"scheme {scheme!r} is unknown: choose {listing(SCHEMES)}{suggestion(str(scheme), SCHEMES)}")
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(SCHEMES[scheme]).parameters.items()
        if name not in ("labels", "clients", "seed")
    }
    for name in parameters:
        if name not in defaults:
            raise InputError(
                f"scheme {scheme!r} does not take {name!r}: it takes {listing(defaults)}" + suggestion(name, defaults)
            )
    read: dict[type, Callable[[str, object], Any]] = {
        float: positive,
        int: lambda name, value: whole(name, value, least=0),
    }
    return {name: read[type(default)](name, parameters.get(name, default)) for name, default in defaults.items()}


def _require(*, samples: int, clients: int, least: int) -> None:
    if clients * least > samples:
        raise InputError(
            f"{clients} clients of at least {least} need {clients * least} samples and there are {samples}: "
            "ask for fewer clients or a smaller min_size"
        )


def _deal(codes: Integers, table: Integers, random: np.random.Generator) -> list[Integers]:
    # Cuts each class's shuffled samples by that class's column of the table [K, C].
    owners = np.empty_like(codes)
    by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(table.sum(axis=0))[:-1])
    for column, members in zip(table.T, by_class, strict=True):
        owners[random.permutation(members)] = np.repeat(np.arange(column.size), column)
    return _group(owners, table.sum(axis=1))


def _group(owners: Integers, sizes: Integers) -> list[Integers]:
    by_owner = np.argsort(owners, kind="stable").astype(np.int64)
    bounds = [0, *np.cumsum(sizes).tolist()]
    return [by_owner[start:end] for start, end in itertools.pairwise(bounds)]
