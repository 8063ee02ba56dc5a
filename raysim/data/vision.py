"""MNIST, Fashion-MNIST and CIFAR-10: torchvision's files, downloaded where they are not there."""

import contextlib
import io
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from torchvision import datasets
from torchvision.datasets.mnist import read_image_file, read_label_file
from torchvision.datasets.utils import check_integrity

from raysim.data.arrays import nested
from raysim.errors import InputError

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
    _fetch(kind, root, list(sums), archives=[kind.filename])
    for name, md5 in sums.items():
        if not check_integrity(str(root / name), md5):
            raise _damaged(root / name, "its MD5 sum differs")
    return _cifar10_table(kind, root, train=True), _cifar10_table(kind, root, train=False)


def _cifar10_table(kind: type[datasets.CIFAR10], root: Path, *, train: bool) -> pa.Table:
    with warnings.catch_warnings():
        # The files are pickles of an old NumPy; a new one warns of how they spell a dtype.
        warnings.simplefilter("ignore")
        part = kind(root, train=train)
    # torchvision shows the files' [n, 3, 32, 32] as a transposed view; transposed back it is contiguous.
    return _table(part.data.transpose(0, 3, 1, 2), np.asarray(part.targets))


def _read_idx(kind: type[datasets.MNIST], root: Path) -> Tables:
    folder = f"{kind.__name__}/raw"
    archives = [f"{folder}/{name}" for name, _ in kind.resources]
    _fetch(kind, root, [name.removesuffix(".gz") for name in archives], archives=archives)
    return _idx_table(root / folder, "train"), _idx_table(root / folder, "t10k")


def _idx_table(folder: Path, part: str) -> pa.Table:
    # The files, not the class: given an old "processed" folder, the class would read its pickles instead.
    images = _idx(folder / f"{part}-images-idx3-ubyte", read_image_file)
    labels = _idx(folder / f"{part}-labels-idx1-ubyte", read_label_file)
    if len(images) != len(labels):
        raise _damaged(folder / f"{part}-labels-idx1-ubyte", f"{len(labels)} labels of {len(images)} images")
    return _table(images[:, np.newaxis], labels)


def _idx(path: Path, read: Any) -> npt.NDArray[Any]:
    try:
        values: npt.NDArray[Any] = read(str(path)).numpy()
    except (AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError, OSError) as error:
        raise _damaged(path, str(error).partition("\n")[0] or "its header is wrong") from error
    return values


def _table(images: npt.NDArray[Any], labels: npt.NDArray[Any]) -> pa.Table:
    return pa.table({"image": nested(images), "label": labels.astype(np.int64, copy=False)})


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} is damaged ({reason}): delete it and run again to download it, or copy a good one there")


def _fetch(kind: Any, root: Path, files: list[str], *, archives: list[str]) -> None:
    """Download the data set unless its files are there; nothing stays behind if that fails."""
    missing = [name for name in files if not (root / name).is_file()]
    if not missing:
        return
    base = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".raysim-download-", dir=base) as stage:
            for name in archives:  # torchvision unpacks an archive that is there instead of downloading it
                if (root / name).is_file():
                    (Path(stage) / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(root / name, Path(stage) / name)
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind(stage, train=False, download=True)
            for name in missing:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(stage) / name).replace(root / name)
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().rpartition("\n")[2]
        packed = archives[0] if len(archives) == 1 else "the same as .gz"
        raise InputError(
            f"{', '.join(missing)} not found in {root}, and not downloaded ({reason}): "
            f"put the files, or {packed}, there, or set data.root to the folder that holds them"
        ) from error
