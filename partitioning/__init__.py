"""Partition a labelled data set into clients with controlled sizes and class mixes.

`iid` and `dirichlet_qp` turn labels into index arrays; `make` writes a population to disk and
`Population.open` reads it.
"""

from partitioning import plot, statistics
from partitioning.errors import InputError
from partitioning.making import make
from partitioning.population import Population
from partitioning.rewriting import rewrite
from partitioning.schemes import SCHEMES, dirichlet_qp, iid, partition
from partitioning.verification import verify

__all__ = [
    "SCHEMES",
    "InputError",
    "Population",
    "dirichlet_qp",
    "iid",
    "make",
    "partition",
    "plot",
    "rewrite",
    "statistics",
    "verify",
]
