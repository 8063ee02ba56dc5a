"""Facts about the training clients of a population: columns that options read, and the rounds in which they join."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partitioning import Population
from raysim.common.errors import InputError, unknown


def client_facts_of(population: Population, names: Collection[str]) -> Mapping[str, NDArray[np.int64]]:
    """Return the wanted columns of the training clients that the population has, by name, int64 [K] each.

    "domain" is the number of the domain in alphabetical order, and "label" the client's most frequent class.
    """
    found, clients = dict[str, NDArray[np.int64]](), population.train_clients
    if "domain" in names and population.domains is not None:
        domains = np.array([str(each) for each in population.domains.to_pylist()])[clients]
        found["domain"] = np.unique(domains, return_inverse=True)[1].astype(np.int64)
    if "label" in names and population.class_counts.shape[1]:
        found["label"] = population.class_counts[clients].argmax(1).astype(np.int64)
    return found


def joining(population: Population, joins: Mapping[str, int]) -> NDArray[np.int64] | None:
    """Return the first round in which each training client may be drawn; None if it is round 1 for all.

    `joins` has first rounds by the name of a domain or client, or by a client's number if nothing has it as a name.

    Raises:
        InputError: there is no such domain or training client, or no client joins in round 1.
    """
    if not joins:
        return None
    clients = population.train_clients
    known: dict[str, list[int]] = {}
    for column in (population.names, population.domains):
        names = [] if column is None else column.take(pa.array(clients)).to_pylist()
        for place, name in enumerate(names):
            known.setdefault(str(name), []).append(place)
    for place, client in enumerate(clients):
        known.setdefault(str(client), [place])
    rounds = np.ones(len(clients), np.int64)
    for name, first in joins.items():
        if name not in known:
            raise unknown(f"algorithm.joins = {name!r}", name, list(known))
        rounds[known[name]] = first
    if rounds.min() > 1:
        raise InputError("algorithm.joins: must leave a client for round 1; remove one entry")
    return rounds
