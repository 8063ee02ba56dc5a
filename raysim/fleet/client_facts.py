"""Columns of the clients that an algorithm's options read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from partitioning import Population


def client_facts_of(population: Population, names: Collection[str]) -> Mapping[str, NDArray[np.int64]]:
    """Return the wanted columns of the training clients that the population has, by name, int64 [K] each.

    Args:
        population: the clients.
        names: wanted columns: "domain", the number of the domain in alphabetical order, or "label", the client's most
            frequent class.
    """
    found, clients = dict[str, NDArray[np.int64]](), population.train_clients
    if "domain" in names and population.domains is not None:
        domains = np.array([str(each) for each in population.domains.to_pylist()])[clients]
        found["domain"] = np.unique(domains, return_inverse=True)[1].astype(np.int64)
    if "label" in names and population.class_counts.shape[1]:
        found["label"] = population.class_counts[clients].argmax(1).astype(np.int64)
    return found
