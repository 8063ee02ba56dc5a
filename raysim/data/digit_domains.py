"""Other domains of the ten digits: SVHN, USPS, MNIST-M, SynthDigits and Morpho-MNIST."""

import bz2
import gzip
import math
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.io import loadmat
from torchvision import datasets

from raysim.data.arrays import nested
from raysim.data.fetching import damaged, fetch, missing
from raysim.data.folders import Picture, Tables, image_table, read_folder
from raysim.errors import InputError


def read_svhn(root: Path) -> Tables:
    """Return SVHN's train and test tables: `image`, 3x32x32 uint8, and `label`, int64; a 10 of the files is digit 0.

    Args:
        root: the folder of `train_32x32.mat` and `test_32x32.mat`.

    Raises:
        InputError: a file is missing and cannot be downloaded, or is damaged.

    Netzer et al., "Reading digits in natural images with unsupervised feature learning", 2011.
    """

    def download(stage: str) -> None:
        for split in ("train", "test"):
            datasets.SVHN(stage, split=split, download=True)

    files = [f"{split}_32x32.mat" for split in ("train", "test")]
    fetch(download, root, files)
    train, test = (_matlab(root / name) for name in files)
    return train, test


def read_usps(root: Path) -> Tables:
    """Return USPS's train and test tables: `image`, 1x16x16 uint8, and `label`, int64, one below the files'.

        pixel = floor(255 (x + 1) / 2)   with x in [-1, 1] as the files have it

    Args:
        root: the folder of `usps.bz2` and `usps.t.bz2`.

    Raises:
        InputError: a file is missing and cannot be downloaded, or is damaged.

    Hull, "A database for handwritten text recognition research", 1994.
    """

    def download(stage: str) -> None:
        for train in (True, False):
            datasets.USPS(stage, train=train, download=True)

    fetch(download, root, ["usps.bz2", "usps.t.bz2"])
    return _libsvm(root / "usps.bz2"), _libsvm(root / "usps.t.bz2")


def read_mnist_m(root: Path) -> Tables:
    """Return MNIST-M's train and test tables: encoded `image`, 32x32 in colour, and `label`, int64.

    Args:
        root: the folder of `mnist_m/`, which has `mnist_m_train/`, `mnist_m_train_labels.txt` (lines of a file's name
            and its digit) and the same of `test`; or of `mnist-m-train.parquet` and `mnist-m-test.parquet`.

    Raises:
        InputError: files are missing or damaged.

    Ganin and Lempitsky, arXiv:1409.7495.
    """
    folder = root / "mnist_m"
    if folder.is_dir():
        return _listed(folder, "train"), _listed(folder, "test")
    return _tables_or_folder(root, "mnist-m", "mnist_m/mnist_m_train_labels.txt, mnist-m-train.parquet")


def read_synth_digits(root: Path) -> Tables:
    """Return SynthDigits' train and test tables: `image`, 3x32x32 uint8, or encoded, and `label`, int64.

    Args:
        root: the folder of `synth_train_32x32.mat` and `synth_test_32x32.mat`; or of `synth-digits-train.parquet` and
            `synth-digits-test.parquet`; or of `synth-digits/` with `train/` and `test/`, and a folder a digit.

    Raises:
        InputError: files are missing or damaged.

    Ganin and Lempitsky, arXiv:1409.7495.
    """
    files = [root / f"synth_{part}_32x32.mat" for part in ("train", "test")]
    if files[0].is_file():
        return _matlab(files[0]), _matlab(files[1])
    return _tables_or_folder(root, "synth-digits", "synth_train_32x32.mat, synth-digits-train.parquet")


def read_morpho_mnist(root: Path) -> Tables:
    """Return Morpho-MNIST's train and test tables: `image`, 1x28x28 uint8, `label`, int64, and `domain`.

    Args:
        root: the folder of `morpho-mnist/`, which has one or more of `plain/`, `global/` (thinned and thickened) and
            `local/` (swollen and fractured), a domain each, with MNIST's four files, packed (.gz) or not.

    Raises:
        InputError: files are missing or damaged.

    Castro et al., "Morpho-MNIST", JMLR 20(178), 2019.
    """
    folder = root / "morpho-mnist"
    found = [name for name in ("plain", "global", "local") if (folder / name).is_dir()]
    if not found:
        raise missing(root, "morpho-mnist/global/train-images-idx3-ubyte.gz", "github.com/dccastro/Morpho-MNIST, MIT")
    parts = [[_morpho(folder / name, part) for name in found] for part in ("train", "t10k")]
    train, test = (pa.concat_tables(tables) for tables in parts)
    return train, test


def digits_table(images: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> pa.Table:
    """A table of images [n, channels, height, width] and their labels [n]."""
    return pa.table({"image": nested(images), "label": np.asarray(labels).astype(np.int64)})


def _matlab(path: Path) -> pa.Table:
    if not path.is_file():
        raise missing(path.parent, path.name, "beside the other part's file")
    try:
        content = loadmat(str(path))
        images, labels = content["X"].transpose(3, 2, 0, 1), content["y"].reshape(-1).astype(np.int64)
    except Exception as error:
        # Of any class: SciPy raises what it trips over.
        raise damaged(path, str(error).partition("\n")[0] or type(error).__name__) from error
    if images.dtype != np.uint8 or images.shape[1] != 3 or len(images) != len(labels):
        raise damaged(path, f"X is {images.dtype} {images.shape} and y has {len(labels)} labels")
    return digits_table(images, labels % 10)


def _libsvm(path: Path) -> pa.Table:
    try:
        with bz2.open(path, "rt") as file:
            lines = [line.split() for line in file if line.strip()]
        pixels = np.array([[pair.partition(":")[2] for pair in line[1:]] for line in lines], dtype=np.float32)
        labels = np.array([line[0] for line in lines]).astype(np.float64).astype(np.int64) - 1
        images = ((pixels.reshape(-1, 1, 16, 16) + 1) / 2 * 255).astype(np.uint8)
    except (EOFError, OSError, ValueError, IndexError) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error
    return digits_table(images, labels)


def _listed(folder: Path, part: str) -> pa.Table:
    names = folder / f"mnist_m_{part}_labels.txt"
    if not names.is_file():
        raise missing(folder.parent, f"{folder.name}/{names.name}", "it is part of mnist_m.tar.gz")
    pictures = []
    for number, line in enumerate(names.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, digit = line.strip().rpartition(" ")
        if not name or not digit.isdecimal():
            raise InputError(f"{names}, line {number}, is {line[:40]!r}: must be a file's name, a space and a digit")
        pictures.append(Picture(folder / f"mnist_m_{part}" / name, (int(digit),)))
    absent = next((picture.path for picture in pictures if not picture.path.is_file()), None)
    if absent is not None:
        raise InputError(f"{absent} is missing, and {names.name} names it: unpack mnist_m.tar.gz again")
    return image_table(folder, pictures, {"label": pa.int64()})


def _tables_or_folder(root: Path, name: str, files: str) -> Tables:
    tables = [root / f"{name}-{part}.parquet" for part in ("train", "test")]
    if all(path.is_file() for path in tables):
        train, test = (_digits_of(pq.ParquetFile(path).read(), path) for path in tables)
        return train, test
    if (root / name / "train").is_dir():
        train, tested = read_folder(root / name)
        return _digits_of(train, root / name), None if tested is None else _digits_of(tested, root / name)
    raise missing(root, f"{files} or {name}/train/", "sites.skoltech.ru/compvision/projects/grl, research use")


def _digits_of(table: pa.Table, path: Path) -> pa.Table:
    try:
        return table.select(["image", "label"]).set_column(1, "label", table["label"].cast(pa.int64()))
    except (pa.ArrowException, KeyError) as error:
        raise InputError(f"{path} has no columns image and label with digits ({error}): write it anew") from error


def _morpho(folder: Path, part: str) -> pa.Table:
    images, labels = (_idx(folder / f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    if len(images) != len(labels):
        raise damaged(folder / f"{part}-labels-idx1-ubyte", f"{len(labels)} labels of {len(images)} images")
    table = digits_table(images[:, np.newaxis], labels)
    return table.append_column("domain", pa.array([folder.name] * len(labels), pa.string()))


def _idx(path: Path) -> npt.NDArray[np.uint8]:
    """MNIST's form: 0, 0, 8 for bytes, the number of dimensions, these as big-endian numbers, the values."""
    packed = path.with_name(f"{path.name}.gz")
    if not (path.is_file() or packed.is_file()):
        raise missing(path.parent, packed.name, "github.com/dccastro/Morpho-MNIST, MIT")
    path, read = (path, partial(Path.read_bytes, path)) if path.is_file() else (packed, partial(_unpacked, packed))
    try:
        data = read()
        sizes = struct.unpack_from(f">{data[3]}I", data, 4)
        values = np.frombuffer(data, np.uint8, math.prod(sizes), 4 + 4 * len(sizes))
        return values.reshape(sizes)
    except (EOFError, OSError, IndexError, ValueError, struct.error, zlib.error) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error


def _unpacked(path: Path) -> bytes:
    with gzip.open(path) as file:
        return file.read()
