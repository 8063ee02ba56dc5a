"""RADFed's scheme: draw sizes, class mixes and feature mixes, and take the nearest feasible partition."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from partitioning.common.checks import Floats, Integers, encode, positive, read_seed, whole
from partitioning.common.errors import InputError, listing
from partitioning.common.streams import Purpose, generator
from partitioning.common.text import described
from partitioning.common.threads import one_thread
from partitioning.measures.statistics import fit, fit_sizes
from partitioning.qp.problem import Problem
from partitioning.qp.randomise import Walk, WalkResult
from partitioning.qp.randomise import randomise as randomise_table
from partitioning.qp.rounding import round_table
from partitioning.qp.solve import Solution, solve
from partitioning.schemes.parts import ColumnValues, Parts, deal_by_table, digits, report_of, require
from partitioning.schemes.priors import Prior, draw_shares
from partitioning.schemes.sizes import draw_sizes


@one_thread
def dirichlet_qp(
    labels: npt.ArrayLike,
    *,
    clients: int,
    size_alpha: float = 1.0,
    label_alpha: Prior = 1.0,
    min_size: int = 1,
    features: Mapping[str, ColumnValues] | None = None,
    feature_alpha: Prior | Mapping[str, Prior] | None = None,
    buckets: int = 4,
    solver: str = "auto",
    randomise: Literal["none", "algorithm-3"] = "none",
    burn_in: int = 100_000,
    search: int = 500_000,
    step: float = 0.002,
    burn_in_ratio: float = 1.1,
    seed: int = 0,
) -> Parts:
    """Draw client sizes and class mixes independently, and take the nearest feasible partition.

        n ~ Dir(size_alpha 1_K) N,   c_t ~ Dir(label_alpha_t 1_C),   f_t^j ~ Dir(feature_alpha_t 1_d)
        min_{A >= 0} sum_tk (A_tk - c_tk n_t)^2   subject to   sum_k A_tk = n_t,   sum_t A_tk = C_k           (1)

    With features, problem (2) minimises the squared deviations of all categories together, over the configurations
    (class and category of each feature) in the data. Then A is rounded to whole samples with exact sums. Each class or
    configuration is shuffled and cut by A.

    RADFed, section IV-A, problems (1) and (2) and Algorithm 3. The paper's mu is `size_alpha`, lambda_t is
    `label_alpha` and theta_t is `feature_alpha`. Deviations: `min_size` (the authors' own, see `raise_to`), the
    rounding (see `round_table`), and the walk (see `Walk`).

    Args:
        labels: one label per sample [N], whole numbers or strings.
        clients: number of clients K.
        size_alpha: Dirichlet prior of client sizes: small is uneven.
        label_alpha: Dirichlet prior of class mixes: small is uneven; [0.1, 1, ...] gives each client
            its own, and K lists give each client one number per class.
        min_size: smallest number of samples per client; clients x min_size must not exceed N.
        features: categorical features by name [N]; numbers with many values are cut into quantile buckets.
        feature_alpha: Dirichlet prior of feature mixes; a table gives each feature its own. By default features are
            not sampled.
        buckets: number of buckets of a numeric feature.
        solver: auto, structured, or a solver of cvxpy such as clarabel.
        randomise: "none" for the optimum, "algorithm-3" for a random table near it.
        burn_in: largest number of moves in Algorithm 3's first phase.
        search: number of moves in Algorithm 3's second phase.
        step: largest share of an entry in a move of Algorithm 3.
        burn_in_ratio: ratio of the loss's square root to the optimum's that ends Algorithm 3's first phase.
        seed: key of every draw.

    Returns:
        K ascending int64 arrays of indices into `labels`, disjoint and complete; `report` describes the solution.

    Raises:
        InputError: a value is out of range.
        RuntimeError: the solver fails.
    """
    codes, classes = encode(labels)
    clients, seed = whole("clients", clients, least=1), read_seed(seed)
    size_alpha, min_size = positive("size_alpha", size_alpha), whole("min_size", min_size, least=0)
    walk = _walk(randomise, Walk(burn_in, search, step, burn_in_ratio))
    require(codes.size, clients, min_size)
    sizes, sizes_asked = draw_sizes(
        generator(seed, Purpose.SIZES), samples=codes.size, clients=clients, alpha=size_alpha, least=min_size
    )
    mixes = {"classes": draw_shares(generator(seed, Purpose.MIXES), label_alpha, clients=clients, parts=classes.size)}
    coded: dict[str, Integers] = {}
    if feature_alpha is not None:
        coded = _code(features or {}, buckets, codes.size)
        mixes |= _draw_features(generator(seed, Purpose.FEATURES), feature_alpha, coded, clients)
    configurations, places = _observe([codes, *coded.values()])
    problem = Problem(np.hstack(list(mixes.values())) * sizes[:, None], sizes, np.bincount(configurations), places)
    solution = solve(problem, solver)
    walked = randomise_table(problem, solution.table, walk, generator(seed, Purpose.RANDOMISE)) if walk else None
    table = round_table(walked.table if walked else solution.table, problem.rows, problem.columns)
    parts = deal_by_table(configurations, table, generator(seed, Purpose.DEAL))
    return Parts(parts, report=_report(problem, solution, walked, table, mixes, sizes_asked))


def _observe(kinds: Sequence[Integers]) -> tuple[Integers, Integers]:
    # The configuration of each sample [N]; and for each configuration in the data, the index of its class and
    # categories among those of all kinds side by side [U, 1 + M].
    codes, places, width = np.zeros_like(kinds[0]), np.zeros((1, 0), np.int64), 0
    for kind in kinds:
        size = int(kind.max()) + 1
        pairs, codes = np.unique(codes * size + kind, return_inverse=True)
        places = np.column_stack([places[pairs // size], width + pairs % size])
        width += size
    return codes, places


def _code(features: Mapping[str, Any], buckets: int, samples: int) -> dict[str, Integers]:
    if not features:
        raise InputError("feature_alpha is given without features: name the columns to sample, or leave it out")
    if not isinstance(features, Mapping):
        raise InputError(f"features is {type(features).__name__}: give a mapping from names to values, one per sample")
    import pyarrow as pa

    from partitioning.measures.features import describe_features

    columns: dict[str, pa.ChunkedArray] = {}
    for name, values in features.items():
        try:
            column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([np.asarray(values)])
        except (pa.ArrowException, TypeError, ValueError):
            raise InputError(f"feature {name!r} is {described(values)}: give one number or text per sample") from None
        if len(column) != samples:
            raise InputError(f"feature {name!r} has {len(column)} values for {samples} samples: give one per sample")
        if column.null_count:
            raise InputError(f"feature {name!r} has missing values: fill them in, or drop those samples")
        columns[name] = column
    _, codes = describe_features(columns, list(columns), buckets)
    return dict(zip(columns, codes, strict=True))


def _draw_features(
    random: np.random.Generator, prior: Prior | Mapping[str, Prior], coded: Mapping[str, Integers], clients: int
) -> dict[str, Floats]:
    priors = prior if isinstance(prior, Mapping) else dict.fromkeys(coded, prior)
    if priors.keys() != coded.keys():
        raise InputError(
            f"feature_alpha is for {listing(priors)} and the features are {listing(coded)}: give each its own, or one "
            "number for all"
        )
    return {
        f"feature {name}": draw_shares(
            random, priors[name], clients=clients, parts=int(codes.max()) + 1, name=f"feature_alpha.{name}"
        )
        for name, codes in coded.items()
    }


def _walk(randomise: str, walk: Walk) -> Walk | None:
    if randomise not in ("none", "algorithm-3"):
        raise InputError(f"randomise is {randomise!r}: give 'none' or 'algorithm-3'")
    return walk if randomise == "algorithm-3" else None


def _report(
    problem: Problem,
    solution: Solution,
    walked: WalkResult | None,
    table: Integers,
    mixes: Mapping[str, Floats],
    sizes_asked: Floats,
) -> dict[str, Any]:
    fits, start = {}, 0
    for (name, mix), place in zip(mixes.items(), problem.places.T, strict=True):
        counts = np.zeros((problem.rows.size, mix.shape[1]), np.int64)
        np.add.at(counts.T, place - start, table.T)
        fits[name], start = fit(counts, mix), start + mix.shape[1]
    report: dict[str, Any] = {
        "problem": 2 if problem.has_features else 1,
        "solver": solution.solver,
        "configurations": problem.columns.size,
        "objective": digits(solution.loss),
        "objective_rounded": digits(problem.loss(table)),
        "residual": digits(solution.residual),
        "sizes_to_asked": digits(fit_sizes(problem.rows, sizes_asked)[1]),
        **report_of(fits),
    }
    if walked:
        report["algorithm_3"] = {"burned_in": walked.burned_in, "objective": digits(walked.loss)}
    return report
