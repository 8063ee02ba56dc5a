"""Partition a labelled data set into clients with controlled sizes and class mixes.

`iid` and `dirichlet_qp` turn labels into index arrays. `make` writes a population from a table, or from a source that
`open_source` opens, to disk; `Population.open` reads it.
"""

from partitioning.common.errors import InputError
from partitioning.making.make import make
from partitioning.measures import statistics
from partitioning.pictures import plot
from partitioning.schemes.dirichlet import dirichlet, dirichlet_per_class
from partitioning.schemes.dirichlet_qp import dirichlet_qp
from partitioning.schemes.even import iid, quantity
from partitioning.schemes.natural import domains, natural
from partitioning.schemes.parts import Parts
from partitioning.schemes.registry import SCHEMES, partition
from partitioning.schemes.shards import shards, shards_unbalanced
from partitioning.schemes.shifts import concept, feature_noise
from partitioning.schemes.tables import counts, labels_per_client
from partitioning.sources.opening import open_source
from partitioning.store.fetching import fetch
from partitioning.store.population import Population
from partitioning.store.rewriting import rewrite
from partitioning.store.verification import verify

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
