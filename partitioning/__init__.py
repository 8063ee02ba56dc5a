"""Partition a labelled data set into clients with controlled sizes and class mixes.

`iid` and `dirichlet_qp` turn labels into index arrays; `make` writes a population of a table, or of what
`open_source` opens, to disk and `Population.open` reads it.
"""

from partitioning import plot, statistics
from partitioning.errors import InputError
from partitioning.fetching import fetch
from partitioning.making import make
from partitioning.population import Population
from partitioning.rewriting import rewrite
from partitioning.schemes import (
    SCHEMES,
    Parts,
    concept,
    counts,
    dirichlet,
    dirichlet_per_class,
    dirichlet_qp,
    domains,
    feature_noise,
    iid,
    labels_per_client,
    natural,
    partition,
    quantity,
    shards,
    shards_unbalanced,
)
from partitioning.sources import open_source
from partitioning.verification import verify

__all__ = [
    "SCHEMES",
    "InputError",
    "Parts",
    "Population",
    "concept",
    "counts",
    "dirichlet",
    "dirichlet_per_class",
    "dirichlet_qp",
    "domains",
    "feature_noise",
    "fetch",
    "iid",
    "labels_per_client",
    "make",
    "natural",
    "open_source",
    "partition",
    "plot",
    "quantity",
    "rewrite",
    "shards",
    "shards_unbalanced",
    "statistics",
    "verify",
]
