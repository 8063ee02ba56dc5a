"""Other domains of the digits: small files in the true layout, and the real MNIST-M."""

import bz2
import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from scipy.io import savemat

from partitioning import InputError
from raysim.data.arrays import flat
from raysim.data.sources import load


def _pixels(table: Any) -> bytes:
    return np.concatenate([flat(chunk).to_numpy() for chunk in table["image"].chunks]).tobytes()


def _write_matlab(root: Path, name: str, n: int) -> npt.NDArray[np.uint8]:
    images = np.random.default_rng(n).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    labels = np.array([10, 1, 2, 10, 9][:n], dtype=np.uint8)[:, None]
    savemat(root / f"{name}_32x32.mat", {"X": images.transpose(2, 3, 1, 0), "y": labels})
    return images


@pytest.mark.parametrize(("dataset", "prefix"), [("svhn", ""), ("synth-digits", "synth_")])
def test_layout_of_matlab_files(dataset: str, prefix: str, tmp_path: Path) -> None:
    train, test = _write_matlab(tmp_path, f"{prefix}train", 4), _write_matlab(tmp_path, f"{prefix}test", 2)
    source = load(dataset, root=str(tmp_path))
    assert source.test is not None
    assert _pixels(source.train) == train.tobytes()
    assert _pixels(source.test) == test.tobytes()
    assert source.train["label"].to_pylist() == [0, 1, 2, 0]  # the files call the digit 0 a 10


def _libsvm(rows: list[tuple[int, float]]) -> bytes:
    lines = [f"{label} " + " ".join(f"{i + 1}:{value}" for i in range(256)) for label, value in rows]
    return bz2.compress("\n".join(lines).encode())


def test_layout_of_usps(tmp_path: Path) -> None:
    (tmp_path / "usps.bz2").write_bytes(_libsvm([(7, -1.0), (10, 1.0), (1, 0.0)]))
    (tmp_path / "usps.t.bz2").write_bytes(_libsvm([(1, 1.0)]))
    source = load("usps", root=str(tmp_path))
    assert source.test is not None
    assert source.train["label"].to_pylist() == [6, 9, 0]
    assert _pixels(source.train) == bytes([0] * 256 + [255] * 256 + [127] * 256)
    assert source.train.schema == source.test.schema
    (tmp_path / "usps.bz2").write_bytes(_libsvm([(7, -1.0)])[:-20])
    with pytest.raises(InputError, match=r"usps.bz2 is damaged"):
        load("usps", root=str(tmp_path))


def _write_mnist_m(root: Path) -> None:
    for part, digits in (("train", [3, 5, 3]), ("test", [5])):
        folder = root / "mnist_m" / f"mnist_m_{part}"
        folder.mkdir(parents=True)
        names = [f"{i:08d}.png" for i in range(len(digits))]
        for i, name in enumerate(names):
            Image.new("RGB", (32, 32), (i, 10, 20)).save(folder / name)
        lines = "".join(f"{name} {digit}\n" for name, digit in zip(names, digits, strict=True))
        (root / "mnist_m" / f"mnist_m_{part}_labels.txt").write_text(lines)


def test_layout_of_mnist_m(tmp_path: Path) -> None:
    _write_mnist_m(tmp_path)
    source = load("mnist-m", root=str(tmp_path))
    assert source.test is not None
    assert source.train["label"].to_pylist() == [3, 5, 3]
    assert source.train["image"][1]["path"].as_py() == "mnist_m_train/00000001.png"
    assert source.test["label"].to_pylist() == [5]
    (tmp_path / "mnist_m" / "mnist_m_train" / "00000002.png").unlink()
    with pytest.raises(InputError, match=r"00000002.png is missing, and mnist_m_train_labels.txt names it"):
        load("mnist-m", root=str(tmp_path))


def test_real_mnist_m(real: Callable[[str], Path]) -> None:
    root = real("mnist-m-train.parquet").parent
    source = load("mnist-m", root=str(root))
    assert source.test is not None
    assert (source.train.num_rows, source.test.num_rows) == (4000, 1000)
    digits = load("mnist", root=str(root))
    assert source.train["label"].to_pylist() == digits.train["label"][:4000].to_pylist()


def test_synth_digits_as_folders(tmp_path: Path) -> None:
    for part, digits in (("train", "37"), ("test", "7")):
        for digit in digits:
            folder = tmp_path / "synth-digits" / part / digit
            folder.mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(folder / "a.png")
    source = load("synth-digits", root=str(tmp_path))
    assert source.test is not None
    assert (source.train["label"].to_pylist(), source.test["label"].to_pylist()) == ([3, 7], [7])


def _write_idx(path: Path, values: npt.NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


def test_layout_of_morpho_mnist(tmp_path: Path) -> None:
    images = np.arange(2 * 784, dtype=np.uint16).astype(np.uint8).reshape(2, 28, 28)
    for domain in ("global", "local"):
        for part in ("train", "t10k"):
            folder = tmp_path / "morpho-mnist" / domain
            _write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
            _write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.array([4, 9], dtype=np.uint8))
    source = load("morpho-mnist", root=str(tmp_path), dividing=["domain"])
    assert source.test is not None
    assert _pixels(source.train) == images.tobytes() * 2
    assert source.train["label"].to_pylist() == [4, 9, 4, 9]
    assert source.test["domain"].to_pylist() == ["global", "global", "local", "local"]
    packed = tmp_path / "morpho-mnist" / "local" / "t10k-images-idx3-ubyte.gz"
    packed.write_bytes(packed.read_bytes()[:30])
    with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte.gz is damaged"):
        load("morpho-mnist", root=str(tmp_path))
