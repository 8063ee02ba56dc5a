"""Small images: scikit-learn's digits, MNIST, Fashion-MNIST and CIFAR-10.

torchvision downloads missing files of the last three. It takes seconds to import, so a download and CIFAR-10's pickles
import it, and nothing else does.
"""

import gzip
import math
import struct
import warnings
import zlib
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from partitioning.common.columns import check_rows
from partitioning.common.paths import open_regular, regular
from partitioning.sources.arrays import nested
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.data.reading import check_labels, damaged, fetch, missing

MNIST_SIDE = 28
"""Height and width of MNIST's images."""

DIGITS_SIDE = 8
"""Height and width of scikit-learn's digits."""

DIGITS_FILE = "sklearn/datasets/data/digits.csv.gz"
"""File of the digits in scikit-learn's distribution: 64 pixels, 0 to 16, and the label in each row."""

DIGITS_CELLS = csv.ConvertOptions(
    column_types={f"f{column}": pa.float64() for column in range(DIGITS_SIDE**2 + 1)}, null_values=[]
)
"""Numbers alone, by pyarrow's names of columns: by itself it reads an empty cell as NaN, and dates and truth values."""

MOST_DIGITS = 2**20
"""Largest number of images in a file of digits; SVHN's largest part has 531,131."""

IDX_PARTS = ("train", "t10k")
"""Names of the training and the test part in MNIST's files."""

Bytes = npt.NDArray[np.uint8]


def read_digits(root: Path) -> Tables:
    """Return the table of scikit-learn's digits: `image`, 1x8x8 float32 in [0, 1], and `label`, int64.

    Args:
        root: unused, because the files are part of scikit-learn.

    Raises:
        InputError: scikit-learn's file is missing or damaged.

    Paper: Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
    """
    path = _digits_path()
    try:
        # The file alone: importing scikit-learn takes a second.
        table = csv.read_csv(
            regular(path),
            csv.ReadOptions(use_threads=False, autogenerate_column_names=True),
            convert_options=DIGITS_CELLS,
        )
    except (OSError, ValueError) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error
    if table.num_columns != DIGITS_SIDE**2 + 1:
        raise damaged(path, f"{table.num_columns} values in a row, and not {DIGITS_SIDE**2} pixels and a label")
    rows = np.column_stack([column.to_numpy() for column in table.columns])
    images = (rows[:, :-1] / 16).astype(np.float32).reshape(-1, 1, DIGITS_SIDE, DIGITS_SIDE)
    return pa.table({"image": nested(images), "label": rows[:, -1].astype(np.int64)}), None


def read_mnist(root: Path) -> Tables:
    """Return MNIST's train and test tables: `image`, 1x28x28 uint8, and `label`, int64.

    Args:
        root: folder of torchvision's `MNIST/raw/`.

    Raises:
        InputError: a file is damaged, or missing and cannot be downloaded.

    Paper: LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998.
    """
    return _download_idx("MNIST", root)


def read_fashion_mnist(root: Path) -> Tables:
    """Return Fashion-MNIST's train and test tables: `image`, 1x28x28 uint8, and `label`, int64.

    Args:
        root: folder of torchvision's `FashionMNIST/raw/`.

    Raises:
        InputError: a file is damaged, or missing and cannot be downloaded.

    Paper: Xiao, Rasul and Vollgraf, arXiv:1708.07747.
    """
    return _download_idx("FashionMNIST", root)


def read_cifar10(root: Path) -> Tables:
    """Return CIFAR-10's train and test tables: `image`, 3x32x32 uint8, and `label`, int64.

    Args:
        root: folder of torchvision's `cifar-10-batches-py/`.

    Raises:
        InputError: a file is damaged, or missing and cannot be downloaded.

    Paper: Krizhevsky, "Learning multiple layers of features from tiny images", 2009, chapter 3.
    """
    from raysim.common.vision import torchvision

    kind = torchvision.datasets.CIFAR10
    sums = {f"{kind.base_folder}/{name}": md5 for name, md5 in [*kind.train_list, *kind.test_list]}
    sums[f"{kind.base_folder}/{kind.meta['filename']}"] = kind.meta["md5"]
    fetch(partial(kind, train=False, download=True), root, list(sums), archives=[kind.filename])
    for name, md5 in sums.items():
        if not torchvision.datasets.utils.check_integrity(str(regular(root / name)), md5):
            raise damaged(root / name, "its MD5 sum differs")
    return _cifar10_table(kind, root, train=True), _cifar10_table(kind, root, train=False)


def read_idx(folder: Path, part: str, source: str) -> pa.Table:
    """Return a table of MNIST's IDX files: `image`, 1x28x28 uint8, and `label`, int64, 0 to 9.

    Args:
        folder: folder of `PART-images-idx3-ubyte` and `PART-labels-idx1-ubyte`, plain or packed (.gz).
        part: "train" or "t10k".
        source: origin of the files, for the error message.

    Raises:
        InputError: a file is missing or damaged, or the two do not match.
    """
    images = _idx_values(folder / f"{part}-images-idx3-ubyte", (MNIST_SIDE, MNIST_SIDE), source)
    path = folder / f"{part}-labels-idx1-ubyte"
    labels = _idx_values(path, (), source)
    if len(images) != len(labels):
        raise damaged(path, f"{len(labels)} labels of {len(images)} images")
    return digits_table(images[:, np.newaxis], labels, path)


def digits_table(images: Bytes, labels: npt.NDArray[Any], path: Path) -> pa.Table:
    """Return a table of images and their labels, and check that the labels are 0 to 9.

    Args:
        images: [n, channels, height, width].
        labels: [n].
        path: file of the images, for the error message.
    """
    table = pa.table({"image": nested(images), "label": np.asarray(labels).astype(np.int64)})
    check_rows(table, name=str(path))
    check_labels(table["label"], path, 0, 9)
    return table


def _digits_path() -> Path:
    """Return the file of the digits in the installed scikit-learn.

    Raises:
        InputError: scikit-learn is not installed, or lacks the file.
    """
    try:
        path = Path(str(distribution("scikit-learn").locate_file(DIGITS_FILE)))
    except PackageNotFoundError:
        path = Path(DIGITS_FILE)
    if not path.is_file():
        raise InputError(
            f"data.dataset = 'digits': {path} must be there, and is not; install scikit-learn again: "
            "pip install --force-reinstall scikit-learn"
        )
    return path


def _download_idx(name: str, root: Path) -> Tables:
    folder = f"{name}/raw"
    files = [f"{folder}/{part}-{values}" for part in IDX_PARTS for values in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    # `read_idx` reads packed files itself, in bounds.
    lacking = [file for file in files if not (root / f"{file}.gz").is_file()]
    fetch(partial(_download, name), root, lacking)
    # torchvision's class would prefer the pickles of an old "processed" folder, so read the files themselves.
    train, test = (read_idx(root / folder, part, "downloaded by torchvision") for part in IDX_PARTS)
    return train, test


def _download(name: str, root: str) -> None:
    from raysim.common.vision import torchvision

    getattr(torchvision.datasets, name)(root, train=False, download=True)


def _idx_values(path: Path, shape: tuple[int, ...], source: str) -> Bytes:
    """Read a file: 0, 0, 8 for bytes, the number of dimensions, the dimensions as big-endian numbers, the values."""
    packed = path.with_name(f"{path.name}.gz")
    if not (path.is_file() or packed.is_file()):
        raise missing(path.parent, packed.name, source)
    path = path if path.is_file() else packed
    try:
        with open_regular(path) as file, gzip.open(file) if path == packed else file as content:
            head = content.read(8 + 4 * len(shape))
            sizes = struct.unpack_from(f">{1 + len(shape)}I", head, 4)
            if head[:4] != bytes([0, 0, 8, len(sizes)]) or sizes[1:] != shape or sizes[0] > MOST_DIGITS:
                raise damaged(path, f"its header is {head.hex()}, and not that of at most {MOST_DIGITS} x {shape}")
            data = content.read(math.prod(sizes) + 1)
    except (EOFError, OSError, struct.error, zlib.error) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error
    if len(data) != math.prod(sizes):
        raise damaged(path, f"{'more' if len(data) > math.prod(sizes) else 'fewer'} values than {sizes[0]} x {shape}")
    return np.frombuffer(data, np.uint8).reshape(sizes)


def _cifar10_table(kind: Any, root: Path, *, train: bool) -> pa.Table:
    with warnings.catch_warnings():
        # The files are pickles of an old NumPy, whose spelling of a dtype causes a warning.
        warnings.simplefilter("ignore")
        part = kind(root, train=train)
    # torchvision shows the files' [n, 3, 32, 32] as a transposed view. Transposed back, it is contiguous.
    return digits_table(part.data.transpose(0, 3, 1, 2), np.asarray(part.targets), root / kind.base_folder)
