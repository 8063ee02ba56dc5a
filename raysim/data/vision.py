"""MNIST, Fashion-MNIST and CIFAR-10: torchvision's files, downloaded where they are not there."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from torchvision import datasets
from torchvision.datasets.utils import check_integrity

from raysim.data.fetching import damaged, fetch
from raysim.data.idx import digits_table, read_idx

Tables: TypeAlias = tuple[pa.Table, pa.Table]


def read_mnist(root: Path) -> Tables:
    """Return MNIST's train and test tables: `image`, 1x28x28 uint8, and `label`, int64.

    Args:
        root: the folder of torchvision's `MNIST/raw/`.

    Raises:
        InputError: a file is missing and cannot be downloaded, or is damaged.

    LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998.
    """
    return _read_idx(datasets.MNIST, root)


def read_fashion_mnist(root: Path) -> Tables:
    """Return Fashion-MNIST's train and test tables: `image`, 1x28x28 uint8, and `label`, int64.

    Args:
        root: the folder of torchvision's `FashionMNIST/raw/`.

    Raises:
        InputError: a file is missing and cannot be downloaded, or is damaged.

    Xiao, Rasul and Vollgraf, arXiv:1708.07747.
    """
    return _read_idx(datasets.FashionMNIST, root)


def read_cifar10(root: Path) -> Tables:
    """Return CIFAR-10's train and test tables: `image`, 3x32x32 uint8, and `label`, int64.

    Args:
        root: the folder of torchvision's `cifar-10-batches-py/`.

    Raises:
        InputError: a file is missing and cannot be downloaded, or is damaged.

    Krizhevsky, "Learning multiple layers of features from tiny images", 2009, chapter 3.
    """
    kind = datasets.CIFAR10
    sums = {f"{kind.base_folder}/{name}": md5 for name, md5 in [*kind.train_list, *kind.test_list]}
    sums[f"{kind.base_folder}/{kind.meta['filename']}"] = kind.meta["md5"]
    fetch(partial(kind, train=False, download=True), root, list(sums), archives=[kind.filename])
    for name, md5 in sums.items():
        if not check_integrity(str(root / name), md5):
            raise damaged(root / name, "its MD5 sum differs")
    return _cifar10_table(kind, root, train=True), _cifar10_table(kind, root, train=False)


def _cifar10_table(kind: type[datasets.CIFAR10], root: Path, *, train: bool) -> pa.Table:
    with warnings.catch_warnings():
        # The files are pickles of an old NumPy; a new one warns of how they spell a dtype.
        warnings.simplefilter("ignore")
        part = kind(root, train=train)
    # torchvision shows the files' [n, 3, 32, 32] as a transposed view; transposed back it is contiguous.
    return digits_table(part.data.transpose(0, 3, 1, 2), np.asarray(part.targets), root / kind.base_folder)


def _read_idx(kind: Any, root: Path) -> Tables:
    folder = f"{kind.__name__}/raw"
    archives = [f"{folder}/{name}" for name, _ in kind.resources]
    files = [name.removesuffix(".gz") for name in archives]
    fetch(partial(kind, train=False, download=True), root, files, archives=archives)
    # The files, not the class: given an old "processed" folder, the class would read its pickles instead.
    train, test = (read_idx(root / folder, part, "downloaded by torchvision") for part in ("train", "t10k"))
    return train, test
