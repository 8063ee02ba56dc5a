"""Splits by client: which clients are held out for test."""

import numpy as np
import numpy.typing as npt

from partitioning.checks import share_or_count
from partitioning.errors import InputError
from partitioning.streams import Purpose, generator

TRAIN, TEST = "train", "test"


def draw_held_out(clients: int, test_clients: float, *, seed: int) -> npt.NDArray[np.bool_]:
    """Return which clients [K] are held out for test; they are drawn without regard to their data.

    A share holds out max(1, floor(share K)) clients, a whole number that many, 0 none.
    Raises InputError where no training client would be left. RADFed, section IV-C.
    """
    count = share_or_count("test_clients", test_clients, total=clients)
    if count >= clients:
        raise InputError(
            f"test_clients is {test_clients!r}, which holds out {count} of {clients} clients: "
            "leave at least one client for training"
        )
    held_out = np.zeros(clients, np.bool_)
    held_out[generator(seed, Purpose.TEST_CLIENTS).permutation(clients)[:count]] = True
    return held_out
