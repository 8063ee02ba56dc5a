"""Columns of the clients that an algorithm's options read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from partitioning import Population
from raysim.common.errors import InputError


def client_facts_of(population: Population, names: Collection[str]) -> Mapping[str, NDArray[np.int64]]:
    """Return columns of the training clients by name, int64 [K] each.

    Args:
        population: the clients.
        names: wanted columns: "domain", the number of the domain in alphabetical order, or "label", the client's most
            frequent class.

    Raises:
        InputError: the population has no domains, or its labels are no classes.
    """
    found, clients = dict[str, NDArray[np.int64]](), population.train_clients
    if "domain" in names:
        if population.domains is None:
            raise InputError(
                "the clients have no domains, which an option needs: must have some; use a data set of domains"
            )
        domains = np.array([str(each) for each in population.domains.to_pylist()])[clients]
        found["domain"] = np.unique(domains, return_inverse=True)[1].astype(np.int64)
    if "label" in names:
        counts = population.class_counts[clients]
        if not counts.shape[1]:
            raise InputError("the labels are no classes, which an option needs: must be classes; use other labels")
        found["label"] = counts.argmax(1).astype(np.int64)
    return found
