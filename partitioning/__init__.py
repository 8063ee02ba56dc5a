"""Partition a labelled data set into clients with controlled sizes and class mixes.

`iid` and `dirichlet_qp` turn labels into index arrays; `make` writes a population of a table, or of what
`open_source` opens, to disk and `Population.open` reads it.
"""

from partitioning import plot, statistics
from partitioning.errors import InputError
from partitioning.making import make
from partitioning.population import Population
from partitioning.rewriting import rewrite
from partitioning.schemes import SCHEMES, dirichlet_qp, iid, partition
from partitioning.sources import open_source
from partitioning.verification import verify

__all__ = [
    "SCHEMES",
    "InputError",
    "Population",
    "dirichlet_qp",
    "iid",
    "make",
    "open_source",
    "partition",
    "plot",
    "rewrite",
    "statistics",
    "verify",
]
