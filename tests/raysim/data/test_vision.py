"""torchvision's data sets: the real MNIST, and small files in the true layout of the others."""

import gzip
import hashlib
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from partitioning import InputError
from raysim.common.vision import torchvision
from raysim.data.arrays import flat
from raysim.data.sources import load


def _pixels(table: pa.Table) -> npt.NDArray[Any]:
    return np.concatenate([flat(chunk).to_numpy() for chunk in table["image"].chunks])


def _idx(values: npt.NDArray[np.uint8]) -> bytes:
    return struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape) + values.tobytes()


def _write_idx(folder: Path, part: str, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{part}-images-idx3-ubyte").write_bytes(_idx(images))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(_idx(labels))


@pytest.fixture
def fashion(tmp_path: Path) -> Path:
    """A folder that holds a Fashion-MNIST of 5 and 3 images."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 5), ("t10k", 3)):
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        _write_idx(tmp_path / "FashionMNIST" / "raw", part, images, np.arange(n, dtype=np.uint8))
    return tmp_path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no download succeed: nobody listens at the proxy."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_real_mnist(real: Callable[[str], Path]) -> None:
    source = load("mnist", root=str(real("MNIST/raw").parents[1]))
    assert source.test is not None
    image = pa.list_(pa.list_(pa.list_(pa.uint8(), 28), 28), 1)
    assert source.train.schema == source.test.schema == pa.schema({"image": image, "label": pa.int64()})
    assert (source.train.num_rows, source.test.num_rows) == (60_000, 10_000)
    assert source.train["label"][:8].to_pylist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert round(_pixels(source.train).mean() / 255, 4) == 0.1307


def test_layout_of_fashion_mnist(fashion: Path) -> None:
    source = load("fashion-mnist", root=str(fashion))
    assert source.test is not None
    raw = (fashion / "FashionMNIST/raw/train-images-idx3-ubyte").read_bytes()
    assert _pixels(source.train).tobytes() == raw[16:]
    assert source.test["label"].to_pylist() == [0, 1, 2]


def test_files_that_are_there_need_no_torchvision(fashion: Path) -> None:
    code = (
        "import sys, pathlib; from raysim.data.sets.small_images import read_fashion_mnist\n"
        "read_fashion_mnist(pathlib.Path(sys.argv[1])); sys.exit('torchvision' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(fashion)], check=True)


@pytest.mark.parametrize("part", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
@pytest.mark.parametrize("size", [0, 3, 9, -1])
def test_truncated_file_is_named(fashion: Path, part: str, size: int) -> None:
    file = fashion / "FashionMNIST" / "raw" / part
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(InputError) as error:
        load("fashion-mnist", root=str(fashion))
    assert str(file) in str(error.value)
    assert "damaged" in str(error.value)
    assert "\n" not in str(error.value)


def test_labels_of_other_images(fashion: Path) -> None:
    (fashion / "FashionMNIST/raw/train-labels-idx1-ubyte").write_bytes(_idx(np.zeros(4, dtype=np.uint8)))
    with pytest.raises(InputError, match="4 labels of 5 images"):
        load("fashion-mnist", root=str(fashion))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte"),
        ("cifar10", "cifar-10-batches-py/data_batch_1 and 6 more"),
        ("svhn", "train_32x32.mat"),
        ("usps", "usps.bz2"),
        ("covertype", "covertype.parquet"),
    ],
)
def test_absent_files_are_named_and_nothing_is_left(
    dataset: str, file: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as error:
        load(dataset)
    message = str(error.value)
    assert file in message
    assert str(tmp_path / "cache" / "data") in message
    assert "data.root" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("offline")
def test_archives_that_are_there_are_unpacked(fashion: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load("fashion-mnist", root=str(fashion))
    resources = []
    for name, _ in torchvision.datasets.FashionMNIST.resources:
        file = fashion / "FashionMNIST" / "raw" / name.removesuffix(".gz")
        data = gzip.compress(file.read_bytes())
        file.with_name(name).write_bytes(data)
        file.unlink()
        resources.append((name, hashlib.md5(data).hexdigest()))
    monkeypatch.setattr(torchvision.datasets.FashionMNIST, "resources", resources)
    source = load("fashion-mnist", root=str(fashion))
    assert source.train.equals(expected.train)
    assert [entry.name for entry in fashion.iterdir()] == ["FashionMNIST"]


class _Pickled:
    """Pickles as a call, which lets a test write what an old NumPy wrote."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


def _old_array(values: npt.NDArray[np.uint8]) -> _Pickled:
    reconstruct, arguments, state = values.__reduce__()  # type: ignore[misc]
    dtype = _Pickled(np.dtype, ("u1", 0, 1), (3, "|", None, None, None, -1, -1, 0))
    return _Pickled(reconstruct, arguments, (state[0], state[1], dtype, *state[3:]))


def test_layout_of_cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3072), dtype=np.uint8)
    names = [name for name, _ in (*torchvision.datasets.CIFAR10.train_list, *torchvision.datasets.CIFAR10.test_list)]
    contents: dict[str, dict[str, object]] = {
        name: {"data": _old_array(pixels[2 * i : 2 * i + 2]), "labels": [i % 5, 9]} for i, name in enumerate(names)
    }
    sums = _write_pickles(tmp_path / "cifar-10-batches-py", contents | {"batches.meta": {"label_names": ["plane"]}})
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "train_list", [[name, sums[name]] for name in names[:5]])
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "test_list", [[names[5], sums[names[5]]]])
    monkeypatch.setitem(torchvision.datasets.CIFAR10.meta, "md5", sums["batches.meta"])

    source = load("cifar10", root=str(tmp_path))
    assert source.test is not None
    assert source.train.schema.field("image").type == pa.list_(pa.list_(pa.list_(pa.uint8(), 32), 32), 3)
    assert _pixels(source.train).tobytes() == pixels[:10].tobytes()
    assert _pixels(source.test).tobytes() == pixels[10:].tobytes()
    assert source.train["label"].to_pylist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]


def test_changed_cifar10_is_not_unpickled(tmp_path: Path) -> None:
    bomb = {"data": _Pickled(pytest.fail, ("unpickled",)), "labels": []}
    names = [name for name, _ in (*torchvision.datasets.CIFAR10.train_list, *torchvision.datasets.CIFAR10.test_list)]
    _write_pickles(tmp_path / "cifar-10-batches-py", dict.fromkeys([*names, "batches.meta"], bomb))
    with pytest.raises(InputError, match=r"data_batch_1 is damaged \(its MD5 sum differs\)"):
        load("cifar10", root=str(tmp_path))


def _write_pickles(folder: Path, contents: dict[str, dict[str, object]]) -> dict[str, str]:
    folder.mkdir()
    sums = {}
    for name, content in contents.items():
        data = pickle.dumps(content, protocol=2)
        (folder / name).write_bytes(data)
        sums[name] = hashlib.md5(data).hexdigest()
    return sums
