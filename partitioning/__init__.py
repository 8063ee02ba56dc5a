"""Partition a labelled data set into clients with controlled sizes and class mixes.

`iid` and `dirichlet_qp` turn labels into index arrays. `make` writes a population from a table, or from a source that
`open_source` opens, to disk; `Population.open` reads it. Wrong input raises `InputError`.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from partitioning.common.errors import InputError

if TYPE_CHECKING:
    from partitioning.making.make import make
    from partitioning.making.options import PartitionOptions
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
    "PartitionOptions",
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

# Numpy and pyarrow take a third of a second to import; errors and help texts need neither.
_PLACES = {
    "concept": "partitioning.schemes.shifts:concept",
    "counts": "partitioning.schemes.tables:counts",
    "dirichlet": "partitioning.schemes.dirichlet:dirichlet",
    "dirichlet_per_class": "partitioning.schemes.dirichlet:dirichlet_per_class",
    "dirichlet_qp": "partitioning.schemes.dirichlet_qp:dirichlet_qp",
    "domains": "partitioning.schemes.natural:domains",
    "feature_noise": "partitioning.schemes.shifts:feature_noise",
    "fetch": "partitioning.store.fetching:fetch",
    "iid": "partitioning.schemes.even:iid",
    "labels_per_client": "partitioning.schemes.tables:labels_per_client",
    "make": "partitioning.making.make:make",
    "natural": "partitioning.schemes.natural:natural",
    "open_source": "partitioning.sources.opening:open_source",
    "partition": "partitioning.schemes.registry:partition",
    "PartitionOptions": "partitioning.making.options:PartitionOptions",
    "Parts": "partitioning.schemes.parts:Parts",
    "plot": "partitioning.pictures.plot",
    "Population": "partitioning.store.population:Population",
    "quantity": "partitioning.schemes.even:quantity",
    "rewrite": "partitioning.store.rewriting:rewrite",
    "SCHEMES": "partitioning.schemes.registry:SCHEMES",
    "shards": "partitioning.schemes.shards:shards",
    "shards_unbalanced": "partitioning.schemes.shards:shards_unbalanced",
    "statistics": "partitioning.measures.statistics",
    "verify": "partitioning.store.verification:verify",
}


def _resolve(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'partitioning' has no attribute {name!r}")
    globals()[name] = found = resolve_name(_PLACES[name])
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})


if not TYPE_CHECKING:  # A type checker reads the imports above, and refuses other names.
    __getattr__ = _resolve
