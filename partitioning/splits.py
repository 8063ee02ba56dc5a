"""Splits by client: which clients are held out for test."""

import numpy as np
import numpy.typing as npt

from partitioning.checks import share_or_count
from partitioning.errors import InputError
from partitioning.streams import Purpose, generator

TRAIN, TEST = "train", "test"


def draw_splits(clients: int, test_clients: float, *, seed: int) -> npt.NDArray[np.str_]:
    """Return "train" or "test" for each client [K]; the test clients are drawn without regard to their data.

    A share holds out max(1, floor(share K)) clients, a whole number that many, 0 none.
    Raises InputError where no training client would be left. RADFed, section IV-C.
    """
    held_out = share_or_count("test_clients", test_clients, total=clients)
    if held_out >= clients:
        raise InputError(
            f"test_clients is {test_clients!r}, which holds out {held_out} of {clients} clients: "
            "leave at least one client for training"
        )
    splits = np.full(clients, TRAIN, dtype=f"<U{max(len(TRAIN), len(TEST))}")
    splits[generator(seed, Purpose.TEST_CLIENTS).permutation(clients)[:held_out]] = TEST
    return splits
