"""Schemes: functions from labels to one array of sample indices a client."""

from partitioning.schemes.dirichlet import dirichlet, dirichlet_per_class
from partitioning.schemes.dirichlet_qp import dirichlet_qp
from partitioning.schemes.even import iid, quantity
from partitioning.schemes.natural import domains, natural
from partitioning.schemes.parts import Change, ClassTable, Column, Parts, Shift
from partitioning.schemes.registry import (
    SCHEMES,
    UNLABELLED,
    Parameter,
    Scheme,
    check_clients,
    is_complete,
    parameters,
    partition,
    resolve,
    takes,
)
from partitioning.schemes.shards import shards, shards_unbalanced
from partitioning.schemes.shifts import concept, feature_noise
from partitioning.schemes.tables import counts, labels_per_client, read_counts

__all__ = [
    "SCHEMES",
    "UNLABELLED",
    "Change",
    "ClassTable",
    "Column",
    "Parameter",
    "Parts",
    "Scheme",
    "Shift",
    "check_clients",
    "concept",
    "counts",
    "dirichlet",
    "dirichlet_per_class",
    "dirichlet_qp",
    "domains",
    "feature_noise",
    "iid",
    "is_complete",
    "labels_per_client",
    "natural",
    "parameters",
    "partition",
    "quantity",
    "read_counts",
    "resolve",
    "shards",
    "shards_unbalanced",
    "takes",
]
