"""Sets of photographs in the layout of their archives: classes, domains, lists and tables of labels."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from algorithms.training.loss import NO_PIXEL
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.data.folders import ImageRow, beside_masks, by_class, checked_image, image_table, images_in
from raysim.data.images import png
from raysim.data.reading import home, missing, named_in, text_of, words_of
from raysim.data.targets import class_metadata, mask_of

BY_LABEL = {"label": pa.string()}
BY_LABEL_AND_DOMAIN = {"label": pa.string(), "domain": pa.string()}

OFFICE_DOMAINS = {"amazon": ("amazon",), "caltech": ("caltech", "caltech10"), "dslr": ("dslr",), "webcam": ("webcam",)}
DOMAINNET_DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
TRAIN_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
"""Cityscapes' label ids of the 19 training classes, the first of class 0: road, sidewalk, building, ... bicycle."""

DOMAINNET_CLASSES = 10
"""Number of DomainNet's classes to keep: FedBN, section 5.2."""


def read_tiny_imagenet(root: Path) -> Tables:
    """Return Tiny-ImageNet's train and validation tables: encoded `image`, 64x64, and `label`, the WordNet id.

    Args:
        root: folder of `tiny-imagenet-200/`: `train/ID/images/*.JPEG`, `val/images/*.JPEG` and
            `val/val_annotations.txt`. The archive's own test images have no labels and are not read.

    Raises:
        InputError: files are missing, or are not images.

    Paper: Le and Yang, "Tiny ImageNet visual recognition challenge", 2015.
    """
    source = "cs231n.stanford.edu/tiny-imagenet-200.zip, non-commercial research"
    folder = home(root, "tiny-imagenet-200", ("train", "val/val_annotations.txt"), source)
    classes = sorted(path for path in (folder / "train").iterdir() if path.is_dir())
    train: list[ImageRow] = [(image, (path.name,)) for path in classes for image in images_in(path / "images")]
    listing = folder / "val" / "val_annotations.txt"
    lines = [line.split("\t") for line in text_of(listing).splitlines() if line.strip()]
    if short := next((row for row in lines if len(row) < 2), None):
        raise InputError(
            f"{listing} has the line {short[0][:40]!r}: must be a file's name, a tab and a class; correct it"
        )
    test: list[ImageRow] = [(named_in(folder / "val" / "images", row[0], listing), (row[1],)) for row in lines]
    return _table(folder, train), _table(folder, test)


def read_imagenet(root: Path) -> Tables:
    """Return ImageNet's train and validation tables (ILSVRC 2012): encoded `image` and `label`, the WordNet id.

    Args:
        root: folder of `train/ID/*.JPEG` and `val/ID/*.JPEG`, as torchvision unpacks the archives.

    Raises:
        InputError: files are missing, or are not images.

    Paper: Russakovsky et al., arXiv:1409.0575.
    """
    source = (
        "image-net.org, after you have agreed to its terms: ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, "
        "unpacked into a folder a class by torchvision.datasets.ImageNet"
    )
    folder = home(root, "imagenet", ("train", "val"), source)
    return by_class(folder / "train"), by_class(folder / "val")


def read_office_caltech10(root: Path) -> Tables:
    """Return Office-Caltech10's table: encoded `image` of many sizes, `label` and `domain`.

    Args:
        root: folder of `office_caltech_10/`: `amazon/`, `caltech/` (or `caltech10/`), `dslr/`, `webcam/`, each
            with a folder per class. There is no test part: set data.test, a share of the rows.

    Raises:
        InputError: files are missing, or are not images.

    Paper: Gong et al., "Geodesic flow kernel for unsupervised domain adaptation", CVPR 2012; FedBN, section 5.2.
    """
    source = "Office-31 and Caltech-256, research use"
    folder = home(root, "office_caltech_10", ("amazon", "dslr", "webcam"), source)
    rows: list[ImageRow] = []
    for domain, names in OFFICE_DOMAINS.items():
        place = next((folder / name for name in names if (folder / name).is_dir()), None)
        if place is None:
            raise missing(folder, f"{domain}/", source)
        classes = sorted(path for path in place.iterdir() if path.is_dir())
        rows += [(image, (path.name, domain)) for path in classes for image in images_in(path)]
    return _table(folder, rows, BY_LABEL_AND_DOMAIN), None


def read_domainnet(root: Path) -> Tables:
    """Return train and test tables of DomainNet's ten largest classes: encoded `image`, `label` and `domain`.

    The largest classes have the most images in all domains and both lists together. Of equal ones the first by name
    counts.

    Args:
        root: folder of `domainnet/`: `clipart/CLASS/*.jpg` and the lists `clipart_train.txt` and
            `clipart_test.txt` (lines of a path and a number), and likewise for the five other domains.

    Raises:
        InputError: files are missing, or are not images.

    Paper: Peng et al., arXiv:1812.01754; FedBN, section 5.2 and appendix D.3.
    """
    source = "ai.bu.edu/M3SDA, the cleaned version with its lists, research use"
    lists = [f"{domain}_{part}.txt" for domain in DOMAINNET_DOMAINS for part in ("train", "test")]
    folder = home(root, "domainnet", lists, source)
    parts = [
        [line for domain in DOMAINNET_DOMAINS for line in _listed(folder / f"{domain}_{part}.txt")]
        for part in ("train", "test")
    ]
    sizes = Counter(path.parent.name for lines in parts for path, _ in lines)
    largest = {name for name, _ in sorted(sizes.items(), key=lambda size: (-size[1], size[0]))[:DOMAINNET_CLASSES]}
    train, test = (
        [
            (named_in(folder, str(path), listing), (path.parent.name, path.parent.parent.name))
            for path, listing in lines
            if path.parent.name in largest
        ]
        for lines in parts
    )
    return _table(folder, train, BY_LABEL_AND_DOMAIN), _table(folder, test, BY_LABEL_AND_DOMAIN)


def read_ham10000(root: Path) -> Tables:
    """Return HAM10000's table: encoded `image`, 450x600 in colour, and `label`, the diagnosis.

    Args:
        root: folder of `HAM10000_metadata.csv` (columns `image_id` and `dx`), `HAM10000_images_part_1/` and
            `HAM10000_images_part_2/`, or of a folder `ham10000/` with them. There is no test part.

    Raises:
        InputError: files are missing, or are not images.

    Paper: Tschandl et al., Scientific Data 5, 2018.
    """
    source = "doi.org/10.7910/DVN/DBW86T, CC BY-NC 4.0"
    parts = ("HAM10000_images_part_1", "HAM10000_images_part_2")
    folder = home(root, "ham10000", ("HAM10000_metadata.csv", *parts), source)
    images = {path.stem: path for part in parts for path in images_in(folder / part)}
    pictures: list[ImageRow] = []
    for name, diagnosis in words_of(folder / "HAM10000_metadata.csv", "image_id", "dx"):
        if name not in images:
            raise InputError(f"{name}.jpg is in neither {parts[0]} nor {parts[1]} of {folder}: unpack them again")
        pictures.append((images[name], (diagnosis,)))
    return _table(folder, pictures), None


def read_cityscapes(root: Path) -> Tables:
    """Return Cityscapes' train and validation tables: `image`, `mask`, both encoded, 1024x2048, and `city`.

    A mask has the size of its image. Its values are 0 to 18 for the training classes, and 255 for all other label ids.

    Args:
        root: folder of `leftImg8bit/PART/CITY/NAME_leftImg8bit.png` and
            `gtFine/PART/CITY/NAME_gtFine_labelIds.png`, or of a folder `cityscapes/` with them.

    Raises:
        InputError: files are missing, or are not images.

    Paper: Cordts et al., arXiv:1604.01685; FixBN, appendix B.
    """
    source = (
        "cityscapes-dataset.com, after you have registered there: leftImg8bit_trainvaltest.zip, gtFine_trainvaltest.zip"
    )
    marks = [f"{kind}/{part}" for kind in ("leftImg8bit", "gtFine") for part in ("train", "val")]
    folder = home(root, "cityscapes", marks, source)
    return _cities(folder, "train"), _cities(folder, "val")


def _cities(folder: Path, part: str) -> pa.Table:
    cities = sorted(path for path in (folder / "leftImg8bit" / part).iterdir() if path.is_dir())
    images = [image for city in cities for image in images_in(city)]
    places = [f"{image.parent.name}/{image.name.replace('_leftImg8bit', '_gtFine_labelIds')}" for image in images]
    masks = [named_in(folder / "gtFine" / part, *pair) for pair in zip(places, images, strict=True)]
    table = _table(folder, [(image, (image.parent.name,)) for image in images], {"city": pa.string()})
    return beside_masks(table, "mask", folder, masks, _as_training_classes, class_metadata(len(TRAIN_IDS)))


def _as_training_classes(path: Path) -> bytes:
    """Return a file of label ids as a PNG of training classes."""
    ids = mask_of(checked_image(path), str(path))
    classes = np.full(256, NO_PIXEL, np.uint8)
    classes[list(TRAIN_IDS)] = np.arange(len(TRAIN_IDS))
    return png(classes[ids][np.newaxis])


def _listed(listing: Path) -> list[tuple[Path, Path]]:
    """Return the path that each line of a list names, and the list."""
    lines = text_of(listing).splitlines()
    return [(Path(line.rpartition(" ")[0]), listing) for line in lines if line.strip()]


def _table(folder: Path, rows: Sequence[ImageRow], kinds: dict[str, pa.DataType] = BY_LABEL) -> pa.Table:
    if not rows:
        raise InputError(f"{folder} has no images in their places: unpack the archive again")
    return image_table(folder, rows, kinds)
