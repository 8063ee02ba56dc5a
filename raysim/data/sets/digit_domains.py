"""Other domains of the ten digits: SVHN, USPS, MNIST-M, SynthDigits and Morpho-MNIST."""

import bz2
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.io import loadmat, whosmat

from partitioning.common.paths import open_regular, regular
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.common.vision import torchvision
from raysim.data.folders import ImageRow, image_table, read_folder
from raysim.data.reading import check_columns, check_labels, damaged, fetch, missing, named_in, table_of, text_of
from raysim.data.sets.small_images import MOST_DIGITS, digits_table, read_idx

LARGEST_LABEL = 10
"""Largest label of files that count from 1: digit 0 in SVHN, digit 9 in USPS."""

IMAGE_VALUES = 32 * 32 * 3
"""Values of an image of SVHN."""

MOST_LINES, LONGEST_LINE = 20_000, 10_000
"""Largest number of lines of a file of USPS, which has 7,291, and of characters in one, which has 3,500 or so."""

DIGITS = tuple("0123456789")


def read_svhn(root: Path) -> Tables:
    """Return SVHN's train and test tables: `image`, 3x32x32 uint8, and `label`, int64. Label 10 means digit 0.

    Args:
        root: folder of `train_32x32.mat` and `test_32x32.mat`.

    Raises:
        InputError: a file is damaged, or missing and cannot be downloaded.

    Paper: Netzer et al., "Reading digits in natural images with unsupervised feature learning", 2011.
    """

    def download(stage: str) -> None:
        for split in ("train", "test"):
            torchvision.datasets.SVHN(stage, split=split, download=True)

    files = [f"{split}_32x32.mat" for split in ("train", "test")]
    fetch(download, root, files)
    train, test = (_matlab(root / name) for name in files)
    return train, test


def read_usps(root: Path) -> Tables:
    """Return USPS's train and test tables: `image`, 1x16x16 uint8, and `label`, int64, the files' label - 1.

        pixel = floor(255 (x + 1) / 2),   x in [-1, 1] in the files

    Args:
        root: folder of `usps.bz2` and `usps.t.bz2`.

    Raises:
        InputError: a file is damaged, or missing and cannot be downloaded.

    Paper: Hull, "A database for handwritten text recognition research", 1994.
    """

    def download(stage: str) -> None:
        for train in (True, False):
            torchvision.datasets.USPS(stage, train=train, download=True)

    fetch(download, root, ["usps.bz2", "usps.t.bz2"])
    return _libsvm(root / "usps.bz2"), _libsvm(root / "usps.t.bz2")


def read_mnist_m(root: Path) -> Tables:
    """Return MNIST-M's train and test tables: encoded `image`, 32x32 in colour, and `label`, int64.

    Args:
        root: folder of `mnist_m/`, which has `mnist_m_train/`, `mnist_m_train_labels.txt` (lines of a file's name
            and its digit), and likewise for `test`; or of `mnist-m-train.parquet` and `mnist-m-test.parquet`.

    Raises:
        InputError: files are missing or damaged.

    Paper: Ganin and Lempitsky, arXiv:1409.7495.
    """
    folder = root / "mnist_m"
    if folder.is_dir():
        return _listed(folder, "train"), _listed(folder, "test")
    return _tables_or_folder(root, "mnist-m", "mnist_m/mnist_m_train_labels.txt, mnist-m-train.parquet")


def read_synth_digits(root: Path) -> Tables:
    """Return SynthDigits' train and test tables: `image`, 3x32x32 uint8, or encoded, and `label`, int64.

    Args:
        root: folder of `synth_train_32x32.mat` and `synth_test_32x32.mat`; or of `synth-digits-train.parquet` and
            `synth-digits-test.parquet`; or of `synth-digits/` with `train/` and `test/`, and a folder per digit.

    Raises:
        InputError: files are missing or damaged.

    Paper: Ganin and Lempitsky, arXiv:1409.7495.
    """
    files = [root / f"synth_{part}_32x32.mat" for part in ("train", "test")]
    if files[0].is_file():
        return _matlab(files[0]), _matlab(files[1])
    return _tables_or_folder(root, "synth-digits", "synth_train_32x32.mat, synth-digits-train.parquet")


def read_morpho_mnist(root: Path) -> Tables:
    """Return Morpho-MNIST's train and test tables: `image`, 1x28x28 uint8, `label`, int64, and `domain`.

    Args:
        root: folder of `morpho-mnist/`, which has one or more of `plain/`, `global/` (thinned and thickened) and
            `local/` (swollen and fractured). Each is a domain, with MNIST's four files, plain or packed (.gz).

    Raises:
        InputError: files are missing or damaged.

    Paper: Castro et al., "Morpho-MNIST", JMLR 20(178), 2019.
    """
    folder = root / "morpho-mnist"
    found = [name for name in ("plain", "global", "local") if (folder / name).is_dir()]
    if not found:
        raise missing(root, "morpho-mnist/global/train-images-idx3-ubyte.gz", "github.com/dccastro/Morpho-MNIST, MIT")
    parts = [[_morpho(folder / name, part) for name in found] for part in ("train", "t10k")]
    train, test = (pa.concat_tables(tables) for tables in parts)
    return train, test


def _matlab(path: Path) -> pa.Table:
    if not path.is_file():
        raise missing(path.parent, path.name, "beside the other part's file")
    try:
        shapes = {name: shape for name, shape, _ in whosmat(str(regular(path)))}
        if max(prod(shapes["X"]) / IMAGE_VALUES, prod(shapes["y"])) > MOST_DIGITS:
            raise ValueError(f"X is {shapes['X']} and y is {shapes['y']}, more than {MOST_DIGITS} images")
        content = loadmat(str(regular(path)), variable_names=["X", "y"])
        images, labels = content["X"].transpose(3, 2, 0, 1), content["y"].reshape(-1)
        whole = labels.astype(np.int64)
    except Exception as error:  # SciPy may raise anything
        raise damaged(path, str(error).partition("\n")[0] or type(error).__name__) from error
    if images.dtype != np.uint8 or images.shape[1:] != (3, 32, 32) or len(images) != len(labels):
        raise damaged(path, f"X is {images.dtype} {images.shape} and y has {len(labels)} labels")
    if not (np.array_equal(whole, labels) and whole.min(initial=0) >= 0 and whole.max(initial=0) <= LARGEST_LABEL):
        raise damaged(path, "y has other labels than 0 to 10")
    return digits_table(images, whole % LARGEST_LABEL, path)


def _libsvm(path: Path) -> pa.Table:
    try:
        lines = [line.split() for line in _packed_lines(path) if line.strip()]
        labels = np.array([line[0] for line in lines]).astype(np.float64)
        pairs = np.array([[pair.split(":") for pair in line[1:]] for line in lines]).astype(np.float64)
        places, values = pairs.reshape(-1, 256, 2).transpose(2, 0, 1)
    except (EOFError, OSError, ValueError, IndexError) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error
    if not ((places == np.arange(1, 257)).all() and (np.abs(values) <= 1).all()):
        raise damaged(path, "a line has other numbers than 256 in [-1, 1], numbered from 1")
    if not np.isin(labels, np.arange(1, LARGEST_LABEL + 1)).all():
        raise damaged(path, "a line has another label than 1 to 10")
    images = ((values.astype(np.float32).reshape(-1, 1, 16, 16) + 1) / 2 * 255).astype(np.uint8)
    return digits_table(images, labels.astype(np.int64) - 1, path)


def _packed_lines(path: Path) -> Iterator[str]:
    """Yield the lines of USPS's text; raise ValueError if it has more or longer ones than the data set."""
    with open_regular(path) as packed, bz2.open(packed, "rt", encoding="utf-8") as file:
        for number in range(MOST_LINES + 1):
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                return
            if len(line) > LONGEST_LINE or number == MOST_LINES:
                raise ValueError(f"more than {MOST_LINES} lines, or one of more than {LONGEST_LINE} characters")
            yield line


def _listed(folder: Path, part: str) -> pa.Table:
    names = folder / f"mnist_m_{part}_labels.txt"
    if not names.is_file():
        raise missing(folder.parent, f"{folder.name}/{names.name}", "it is part of mnist_m.tar.gz")
    rows: dict[str, ImageRow] = {}
    for number, line in enumerate(text_of(names).splitlines(), start=1):
        name, _, digit = line.strip().rpartition(" ")
        if not line.strip():
            continue
        if not name or name in rows or digit not in DIGITS:
            raise InputError(
                f"{names}, line {number}, is {line[:40]!r}: must be a file's name that no other line has, a space and "
                "a digit; correct it"
            )
        rows[name] = (named_in(folder / f"mnist_m_{part}", name, names), (int(digit),))
    if not rows:
        raise InputError(f"{names} has no lines: must name each file and its digit; unpack mnist_m.tar.gz again")
    return image_table(folder, list(rows.values()), {"label": pa.int64()})


def _tables_or_folder(root: Path, name: str, files: str) -> Tables:
    tables = [root / f"{name}-{part}.parquet" for part in ("train", "test")]
    if all(path.is_file() for path in tables):
        train, test = (_digits_of(table_of(path), path) for path in tables)
        return train, test
    if (root / name / "train").is_dir():
        train, test = read_folder(root / name)
        return _digits_of(train, root / name), None if test is None else _digits_of(test, root / name)
    raise missing(root, f"{files} or {name}/train/", "sites.skoltech.ru/compvision/projects/grl, research use")


def _digits_of(table: pa.Table, path: Path) -> pa.Table:
    check_columns(table, ["image", "label"], path)
    try:
        labels = table["label"].cast(pa.int64())
    except pa.ArrowException as error:
        raise InputError(f"column 'label' of {path} has values that are not digits ({error}): correct them") from error
    check_labels(labels, path, 0, 9)
    return table.select(["image", "label"]).set_column(1, "label", labels)


def _morpho(folder: Path, part: str) -> pa.Table:
    table = read_idx(folder, part, "github.com/dccastro/Morpho-MNIST, MIT")
    return table.append_column("domain", pa.array([folder.name] * table.num_rows, pa.string()))
