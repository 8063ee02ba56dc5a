"""FedProx's 1,000 clients of two digits: who has what, and how uneven it is."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raysim.common.errors import InputError
from raysim.data.arrays import flat
from raysim.data.catalogue import DATASETS
from raysim.data.sets.fedprox_mnist import CLIENTS, LEAST, _sizes

MNIST_COUNTS = np.array([6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])
"""Images of each digit among all 70,000."""


def test_the_sizes_are_log_normal_and_fill_the_digits() -> None:
    sizes = _sizes(MNIST_COUNTS, seed=1)
    assert sizes.shape == (CLIENTS, 2) and sizes.min() == LEAST
    digits = (np.arange(CLIENTS)[:, None] + np.arange(2)) % 10
    used = np.bincount(digits.ravel(), sizes.ravel(), 10)
    assert np.all(used <= MNIST_COUNTS) and np.all(used > MNIST_COUNTS - 200)  # each part is rounded down
    # FedProx's table 1: 69,035 samples, 69 in the mean, deviation 106; a few of ours are rounded away.
    each = sizes.sum(axis=1)
    assert 68_500 < each.sum() < 70_000 and 80 < each.std() < 220
    assert not np.array_equal(sizes, _sizes(MNIST_COUNTS, seed=2))


def test_too_few_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"999 images of the digit 3: must have 1000"):
        _sizes(np.where(np.arange(10) == 3, 999, MNIST_COUNTS), seed=1)


def test_every_client_has_its_two_digits(real: Callable[[str], Path]) -> None:
    table, test = DATASETS["fedprox-mnist"].read(real("MNIST/raw").parents[1], seed=1)
    assert test is None and table.schema.names == ["x", "label", "client"]
    owners, labels = table["client"].to_numpy(), table["label"].to_numpy()
    assert np.array_equal(np.unique(owners), np.arange(CLIENTS))
    assert set(map(tuple, np.unique(np.stack([owners, labels]), axis=1).T)) == {
        (user, (user + j) % 10) for user in range(CLIENTS) for j in range(2)
    }
    pixels = np.concatenate([flat(chunk).to_numpy() for chunk in table["x"].chunks]).reshape(-1, 784)
    # No image is dealt twice: pixels and label name an image of MNIST, apart from a few that are equal in it.
    assert len({hash(row.tobytes()) for row in pixels}) > 0.999 * len(pixels)
