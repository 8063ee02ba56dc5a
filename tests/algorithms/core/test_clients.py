"""Clients by their ids."""

import numpy as np
import pytest

from algorithms.core.clients import among


@pytest.mark.parametrize("clients", [[], [0], [2, 3, 7, 11]])
@pytest.mark.parametrize("ids", [[], [-1, 0, 2, 3, 4, 11, 12], [11, 2, 2]])
def test_ids_are_found_among_clients(ids: list[int], clients: list[int]) -> None:
    found = among(np.array(ids, np.int64), np.array(clients, np.int64))
    assert found.tolist() == [each in clients for each in ids]
