"""Files of every data set that the papers use, in the set's own layout, with few drawn samples in the place of many."""

import bz2
import hashlib
import io
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from scipy.io import savemat

from raysim.common.vision import torchvision
from raysim.data.sets.tabular import COVERTYPE

Bytes = npt.NDArray[np.uint8]

DRAW = np.random.default_rng(1)

LESIONS = {"akiec": 327, "bcc": 514, "bkl": 1099, "df": 115, "mel": 1113, "nv": 6705, "vasc": 142}
"""HAM10000's classes, with all their images: FedMMB's clients take most of them."""


def write_all(root: Path) -> None:
    """Write the files of all the sets into a folder, `data.root`."""
    for folder in ("MNIST/raw", "FashionMNIST/raw", "morpho-mnist/global", "morpho-mnist/local"):
        write_idx(root / folder)
    write_cifar10(root / torchvision.datasets.CIFAR10.base_folder)
    write_matlab(root, "")
    write_matlab(root, "synth_")
    write_usps(root)
    write_mnist_m(root)
    write_tiny_imagenet(root / "tiny-imagenet-200")
    write_imagenet(root / "imagenet")
    write_office(root / "office_caltech_10")
    write_domainnet(root / "domainnet")
    write_ham10000(root)
    write_cityscapes(root)
    write_covertype(root)
    write_shakespeare(root)
    write_abide(root / "abide")
    write_eicu(root)


def write_idx(folder: Path, train: int = 1500, test: int = 100) -> None:
    """MNIST's four files."""
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("t10k", test)):
        for kind, values in (("images-idx3", pixels(count, 28, 28)), ("labels-idx1", classes(count, 10))):
            head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
            (folder / f"{part}-{kind}-ubyte").write_bytes(head + values.tobytes())


def write_cifar10(folder: Path, of_each: int = 300) -> None:
    """The six batches and their names; see `sums_of_cifar10`."""
    folder.mkdir()
    for name, _ in (*torchvision.datasets.CIFAR10.train_list, *torchvision.datasets.CIFAR10.test_list):
        content: dict[str, Any] = {"data": pixels(of_each, 3072), "labels": classes(of_each, 10).tolist()}
        (folder / name).write_bytes(pickle.dumps(content))
    (folder / torchvision.datasets.CIFAR10.meta["filename"]).write_bytes(
        pickle.dumps({"label_names": list("0123456789")})
    )


def sums_of_cifar10(folder: Path) -> Mapping[str, Any]:
    """torchvision's lists of CIFAR-10's files, with the sums of those that were drawn."""
    kind = torchvision.datasets.CIFAR10

    def summed(names: Iterable[str]) -> list[list[str]]:
        return [[name, hashlib.md5((folder / name).read_bytes()).hexdigest()] for name in names]

    ((_, of_meta),) = summed([kind.meta["filename"]])
    train, test = (summed(name for name, _ in part) for part in (kind.train_list, kind.test_list))
    return {"train_list": train, "test_list": test, "meta": {**kind.meta, "md5": of_meta}}


def write_matlab(root: Path, prefix: str) -> None:
    """The files of SVHN, or of SynthDigits."""
    for part, count in (("train", 1500), ("test", 100)):
        images, labels = pixels(32, 32, 3, count), classes(count, 10) + 1
        savemat(root / f"{prefix}{part}_32x32.mat", {"X": images, "y": labels[:, None]})


def write_usps(root: Path) -> None:
    """LIBSVM's lines, packed."""
    for name, count in (("usps.bz2", 1000), ("usps.t.bz2", 100)):
        values = DRAW.uniform(-1, 1, (count, 256)).round(3)
        lines = [
            f"{label + 1} " + " ".join(f"{place}:{value}" for place, value in enumerate(row, 1))
            for label, row in zip(classes(count, 10), values, strict=True)
        ]
        (root / name).write_bytes(bz2.compress("\n".join(lines).encode()))


def write_mnist_m(root: Path) -> None:
    """Two tables of encoded images."""
    for part, count in (("train", 1500), ("test", 100)):
        images = [{"bytes": encoded(pixels(32, 32, 3)), "path": ""} for _ in range(count)]
        table = pa.table({"image": images, "label": classes(count, 10).astype(np.int64)})
        pq.write_table(table, root / f"mnist-m-{part}.parquet")


def write_tiny_imagenet(folder: Path) -> None:
    """Two hundred classes of ten images."""
    names = [f"n{number:08d}" for number in range(200)]
    for name in names:
        for place in range(10):
            write_image(folder / "train" / name / "images" / f"{name}_{place}.JPEG", 64, 64)
    for place in range(50):
        write_image(folder / "val" / "images" / f"val_{place}.JPEG", 64, 64)
    lines = [f"val_{place}.JPEG\t{names[place]}\t0\t0\t9\t9" for place in range(50)]
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines))


def write_imagenet(folder: Path) -> None:
    """A thousand classes of four images."""
    for number in range(1000):
        for place in range(4):
            write_image(folder / "train" / f"n{number:08d}" / f"{place}.JPEG", 50 + number % 7, 60)
    for number in range(20):
        write_image(folder / "val" / f"n{number:08d}" / "0.JPEG", 60, 50)


def write_office(folder: Path) -> None:
    """Four domains of ten classes."""
    for domain in ("amazon", "caltech10", "dslr", "webcam"):
        for number in range(10):
            for place in range(9):
                write_image(folder / domain / f"class{number}" / f"{place}.jpg", 40 + number, 50)


def write_domainnet(folder: Path) -> None:
    """Six domains of twelve classes, of which ten are used."""
    for domain in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"):
        for part, count in (("train", 12), ("test", 2)):
            lines = []
            for number in range(12):
                for place in range(count if number < 10 else 1):
                    lines.append(f"{domain}/class{number}/{part}{place}.jpg {number}")
                    write_image(folder / lines[-1].rpartition(" ")[0], 40, 50 + number)
            (folder / f"{domain}_{part}.txt").write_text("\n".join(lines))


def write_ham10000(root: Path) -> None:
    """All ten thousand images, small ones."""
    lines = ["image_id,dx"]
    parts = [root / f"HAM10000_images_part_{part}" for part in (1, 2)]
    for part in parts:
        part.mkdir()
    image = encoded(pixels(6, 8, 3))
    for name, count in LESIONS.items():
        for _ in range(count):
            lines.append(f"ISIC_{len(lines):07d},{name}")
            (parts[len(lines) % 2] / f"ISIC_{len(lines) - 1:07d}.png").write_bytes(image)
    (root / "HAM10000_metadata.csv").write_text("\n".join(lines))


def write_cityscapes(root: Path) -> None:
    """Two cities of two images to train on, and one image for test, at their full size."""
    for part, city, count in (("train", "aachen", 2), ("train", "bochum", 2), ("val", "lindau", 1)):
        for place in range(count):
            stem = f"{city}_{place:06d}_000019"
            write_image(root / "leftImg8bit" / part / city / f"{stem}_leftImg8bit.png", 1024, 2048)
            ids = np.kron(DRAW.integers(0, 34, (32, 64), dtype=np.uint8), np.ones((32, 32), np.uint8))
            write_image(root / "gtFine" / part / city / f"{stem}_gtFine_labelIds.png", image=ids)


def write_covertype(root: Path) -> None:
    """A table of features by name; elevations differ, and each row is of one area."""
    count = 8000
    table: dict[str, Any] = {name: DRAW.integers(0, 200, count) for name in COVERTYPE}
    area = DRAW.integers(1, 5, count)
    table |= {f"Wilderness_Area{number}": (area == number).astype(np.int64) for number in range(1, 5)}
    pq.write_table(pa.table({**table, "label": DRAW.integers(1, 8, count)}), root / "covertype.parquet")


def write_shakespeare(root: Path) -> None:
    """A play of sixty roles that say letters."""
    letters = np.array(list("abcdefghij klmnopqrstuvwxyz"))
    speeches = ["".join(DRAW.choice(letters, DRAW.integers(200, 400))) for _ in range(60)]
    text = "\n\n".join(f"Role {chr(65 + i // 26)}{chr(65 + i % 26)}:\n{said}" for i, said in enumerate(speeches))
    (root / "shakespeare.txt").write_text(text)


def write_abide(folder: Path) -> None:
    """Four sites of six subjects, with 110 regions."""
    folder.mkdir()
    lines = ["SITE_ID,FILE_ID,DX_GROUP"]
    for site in ("NYU", "UM_1", "USM", "UCLA_1"):
        for subject in range(6):
            lines.append(f"{site},{site}_{subject},{subject % 2 + 1}")
            np.savetxt(folder / f"{site}_{subject}_rois_ho.1D", DRAW.normal(size=(60, 110)), fmt="%.3f", delimiter="\t")
    (folder / "Phenotypic_V1_0b_preprocessed1.csv").write_text("\n".join(lines))


def write_eicu(root: Path) -> None:
    """Twenty hospitals of low mortality."""
    count = 20 * 120
    numbers = {f"x{place}": DRAW.normal(size=count) for place in range(20)}
    table = {"hospital": np.repeat(np.arange(20), 120), "label": np.arange(count) % 10 == 0, **numbers}
    pq.write_table(pa.table({**table, "label": table["label"].astype(np.int64)}), root / "eicu.parquet")


def pixels(*shape: int) -> Bytes:
    """Drawn bytes."""
    return DRAW.integers(0, 256, shape, dtype=np.uint8)


def classes(count: int, of: int) -> Bytes:
    """Labels in random order, equally many of each class."""
    return DRAW.permutation(np.arange(count) % of).astype(np.uint8)


def encoded(image: Bytes, kind: str = "PNG") -> bytes:
    """An image's file."""
    sink = io.BytesIO()
    Image.fromarray(image).save(sink, kind)
    return sink.getvalue()


def write_image(path: Path, height: int = 0, width: int = 0, image: Bytes | None = None) -> None:
    """An image, by default a drawn one in colour, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = pixels(height, width, 3) if image is None else image
    path.write_bytes(encoded(drawn, "PNG" if path.suffix == ".png" else "JPEG"))
