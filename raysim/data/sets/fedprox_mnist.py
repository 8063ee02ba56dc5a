"""FedProx's federation of MNIST, "LR-MNIST": 1,000 clients of two digits each, with log-normal sizes."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from algorithms import Purpose, generator
from partitioning.sources.arrays import nested
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.data.domains import image_array
from raysim.data.sets.small_images import MNIST_SIDE, read_mnist

CLIENTS, CLASSES = 1000, 10

LEAST = 5
"""Images that every client has of each of its two digits."""

SIGMA = 2.0
"""Standard deviation of the logarithm of a client's further images of a digit, before they are scaled."""

SIZES_DRAW = 4
"""Counter of the draw of the sizes."""


def read_fedprox_mnist(root: Path, seed: int) -> Tables:
    """Return MNIST's 70,000 images as 784 numbers each, dealt to 1,000 clients; images beyond the draw are left out.

        Client u has the digits u mod 10 and (u + 1) mod 10: 5 images of each, and floor(n_l s / sum s) more,
        s ~ LogNormal(0, 2),  n_l the images of digit l less 1,000,  the sum over the 200 parts of digit l

    Args:
        root: folder of torchvision's `MNIST/raw/`.
        seed: key of the sizes.

    Returns:
        `x`, uint8 [784], `label`, int64, and `client`, int64.

    Raises:
        InputError: as `read_mnist`, or a digit has too few images for its clients.

    Paper: Li et al., "Federated Optimization in Heterogeneous Networks", 2020, section 5.1 and its code.

    Deviations:
        The code takes MNIST in another order, and standardises each pixel by all images; `data.standardise` does so by
        the training parts. It draws sizes anew whenever it runs.
    """
    whole = pa.concat_tables([part for part in read_mnist(root) if part is not None])
    labels = whole["label"].to_numpy()
    sizes = _sizes(np.bincount(labels, minlength=CLASSES), seed)
    left = [np.flatnonzero(labels == digit) for digit in range(CLASSES)]
    rows: list[npt.NDArray[np.int64]] = []
    for user, places in enumerate(_digits()):
        for digit, size in zip(places, sizes[user], strict=True):
            rows.append(left[digit][:size])
            left[digit] = left[digit][size:]
    owners = np.repeat(np.arange(CLIENTS), sizes.sum(axis=1))
    taken = np.concatenate(rows)
    pixels = image_array(whole["image"], [MNIST_SIDE**2])
    return pa.table({"x": nested(pixels[taken]), "label": labels[taken], "client": owners}), None


def _digits() -> npt.NDArray[np.int64]:
    """Return the two digits of each client, [clients, 2]."""
    return (np.arange(CLIENTS)[:, None] + np.arange(2)) % CLASSES


def _sizes(counts: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    """Return the number of images of each client's two digits, [clients, 2].

    Args:
        counts: images of each digit, [10].
        seed: key of the draw.

    Raises:
        InputError: a digit has too few images.
    """
    digits = _digits()
    drawn = generator(seed, Purpose.SYNTHETIC, SIZES_DRAW).lognormal(0, SIGMA, digits.shape)
    sums = np.bincount(digits.ravel(), drawn.ravel(), CLASSES)
    least = LEAST * np.bincount(digits.ravel(), minlength=CLASSES)
    if (short := np.flatnonzero(counts < least)).size:
        digit = int(short[0])
        raise InputError(
            f"fedprox-mnist: MNIST's files have {counts[digit]} images of the digit {digit}: must have {least[digit]} "
            "at least, for 200 clients; put the whole files into data.root"
        )
    shares: npt.NDArray[np.int64] = np.floor((counts - least)[digits] * drawn / sums[digits]).astype(np.int64)
    return LEAST + shares
