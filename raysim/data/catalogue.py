"""Table of the data sets by name; docs/reference/datasets.md lists their files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from raysim.common.errors import InputError, unknown

if TYPE_CHECKING:
    from partitioning.sources.memory import Tables

SHIFTED = "shifted:"
BESIDE = re.compile(rf",\s*{SHIFTED}")
"""Separator between names and a data set with shifted images, whose domains join theirs."""

PREFIXES = FILE, FOLDER, HUB, SYNTHETIC, MEMORY = "file:", "folder:", "hf:", "synthetic:", "memory:"
"""Prefixes of data sets without a name. Behind that of data in memory stands a fingerprint of the data."""


@dataclass(frozen=True)
class NamedDataSet:
    """A data set that has a name.

    Args:
        description: one line about its contents.
        reader: "module:function"; from the folder of its files, the function returns the train and test table.
        dividing: columns that identify a row's owner and are no features.
        label: name of the label column.
        drawn: whether the rows are drawn; the reader then takes a seed, too.
        test_of: data set that has these rows as well, marked as test rows by its column `split`; "" for none.
        download: size of the files that raysim downloads if they are missing; "" if it cannot.
    """

    description: str
    reader: str
    dividing: tuple[str, ...] = ()
    label: str = "label"
    drawn: bool = False
    test_of: str = ""
    download: str = ""

    @property
    def line(self) -> str:
        """Description with the size of the download."""
        return f"{self.description}; downloads {self.download}" if self.download else self.description

    def read(self, root: Path, seed: int = 0) -> Tables:
        """Read the train and test table."""
        # Import the reader late: torchvision takes seconds to import, in every client actor too.
        given = {"seed": seed} if self.drawn else {}
        tables: Tables = resolve_name(self.reader)(root, **given)
        return tables


DATASETS: Mapping[str, NamedDataSet] = {
    "digits": NamedDataSet(
        "1,797 scanned digits, 1x8x8, 10 classes; comes with scikit-learn", "raysim.data.sets.small_images:read_digits"
    ),
    "mnist": NamedDataSet(
        "handwritten digits, 60,000 and 10,000 for test, 1x28x28, 10 classes",
        "raysim.data.sets.small_images:read_mnist",
        download="12 MB",
    ),
    "fashion-mnist": NamedDataSet(
        "clothes, 60,000 and 10,000 for test, 1x28x28, 10 classes",
        "raysim.data.sets.small_images:read_fashion_mnist",
        download="31 MB",
    ),
    "cifar10": NamedDataSet(
        "photographs, 50,000 and 10,000 for test, 3x32x32, 10 classes",
        "raysim.data.sets.small_images:read_cifar10",
        download="170 MB",
    ),
    "svhn": NamedDataSet(
        "house numbers, 73,257 and 26,032 for test, 3x32x32, 10 classes",
        "raysim.data.sets.digit_domains:read_svhn",
        download="246 MB",
    ),
    "usps": NamedDataSet(
        "digits on letters, 7,291 and 2,007 for test, 1x16x16, 10 classes",
        "raysim.data.sets.digit_domains:read_usps",
        download="8 MB",
    ),
    "mnist-m": NamedDataSet(
        "digits on photographs, 59,001 and 9,001 for test, 3x32x32, 10 classes; your files",
        "raysim.data.sets.digit_domains:read_mnist_m",
    ),
    "synth-digits": NamedDataSet(
        "digits of many fonts, 479,400 and 9,553 for test, 3x32x32, 10 classes; your files",
        "raysim.data.sets.digit_domains:read_synth_digits",
    ),
    "morpho-mnist": NamedDataSet(
        "MNIST thinned, thickened, swollen and broken, 1x28x28, 10 classes, a domain a folder; your files",
        "raysim.data.sets.digit_domains:read_morpho_mnist",
        ("domain",),
    ),
    "fedprox-mnist": NamedDataSet(
        "MNIST's digits dealt to FedProx's 1,000 clients, 784 numbers, 10 classes",
        "raysim.data.sets.fedprox_mnist:read_fedprox_mnist",
        ("client",),
        drawn=True,
        download="12 MB",
    ),
    "tiny-imagenet": NamedDataSet(
        "photographs, 100,000 and 10,000 for test, 64x64, 200 classes; your files",
        "raysim.data.sets.photographs:read_tiny_imagenet",
    ),
    "imagenet": NamedDataSet(
        "photographs, 1,281,167 and 50,000 for test, many sizes, 1,000 classes; your files, licensed",
        "raysim.data.sets.photographs:read_imagenet",
    ),
    "office-caltech10": NamedDataSet(
        "objects from 4 domains, 2,533 in all, many sizes, 10 classes; your files",
        "raysim.data.sets.photographs:read_office_caltech10",
        ("domain",),
    ),
    "domainnet": NamedDataSet(
        "pictures from 6 domains, many sizes, the 10 largest classes of 345; your files",
        "raysim.data.sets.photographs:read_domainnet",
        ("domain",),
    ),
    "ham10000": NamedDataSet(
        "skin lesions, 10,015 in all, 450x600, 7 classes; your files", "raysim.data.sets.photographs:read_ham10000"
    ),
    "cityscapes": NamedDataSet(
        "streets, 2,975 and 500 for test, 3x1024x2048, a mask of 19 classes each; your files, licensed",
        "raysim.data.sets.photographs:read_cityscapes",
        ("city",),
        label="mask",
    ),
    "covertype": NamedDataSet(
        "forest plots, 581,012 in all, 54 numbers, 7 classes",
        "raysim.data.sets.tabular:read_covertype",
        download="11 MB",
    ),
    "shakespeare": NamedDataSet(
        "80 characters and the next by speaking role, 80 numbers; your file",
        "raysim.data.sets.shakespeare:read_shakespeare",
        ("speaker",),
    ),
    "plays": NamedDataSet(
        "Shakespeare's speeches by speaking role, text for [data.text]; your file",
        "raysim.data.sets.shakespeare:read_speeches",
        ("speaker",),
        label="text",
    ),
    "abide": NamedDataSet(
        "brain activity at 4 sites, 5,995 numbers, 2 classes; your files",
        "raysim.data.sets.abide:read_abide",
        ("site", "subject"),
    ),
    "heart-disease": NamedDataSet(
        "740 patients of 4 hospitals, 10 numbers, 2 classes; comes with raysim",
        "raysim.data.sets.heart_disease:read_heart_disease",
        ("hospital", "split"),
        label="disease",
    ),
    "heart-disease-test": NamedDataSet(
        "the 254 test patients of heart-disease, for data.test; comes with raysim",
        "raysim.data.sets.heart_disease:read_heart_disease_test",
        ("hospital", "split"),
        label="disease",
        test_of="heart-disease",
    ),
    "eicu": NamedDataSet(
        "admissions to hospitals, numbers, 2 classes; your table, licensed",
        "raysim.data.sets.tabular:read_eicu",
        ("hospital",),
    ),
    "gaussians": NamedDataSet(
        "points of 2 clients, 2,000 and 2,000 for test, 10 numbers, 2 classes; drawn from the seed",
        "raysim.data.sets.synthetic:read_gaussians",
        ("domain",),
        drawn=True,
    ),
}

DATASET_FORMS: Mapping[str, str] = {
    "file:PATH": "your own table, .parquet, .csv, .tsv, .npz or .arrow: columns of numbers, arrays of one shape, or "
    "encoded images; several paths, with commas between, are domains",
    "folder:PATH": "images by class: PATH/CLASS/*.png, PATH/DOMAIN/CLASS/*.png, or with masks: PATH/images/*.png and "
    "PATH/masks/*.png; or any of them below train/ and test/; several paths are domains",
    "hf:OWNER/NAME": "a data set of the Hugging Face hub, as hf:OWNER/NAME:CONFIG@REVISION too, or a folder in its "
    "layout, hf:./PATH; with the extra datasets",
    "synthetic:ALPHA,BETA,CLIENTS": "FedProx's clients whose models (ALPHA) and inputs (BETA) differ, 60 numbers, 10 "
    "classes; drawn from the seed; iid instead of ALPHA,BETA: all alike; ,ROWS at the end: their mean number",
    "NAME,NAME": "several of these data sets, a domain each",
    "shifted:NAME": "one domain for each of data.shifts: none, invert, colour, blur, contrast, noise, thin, thick, "
    "swell, fracture; behind other names, NAME,shifted:NAME, domains beside theirs",
}
"""Forms of `data.dataset` besides a name."""


def check_dataset(dataset: str, key: str = "data.dataset") -> None:
    """Check the names of data sets in `data.dataset`; the forms with a prefix are checked when they are read.

    Args:
        dataset: value of the key.
        key: name of the key, for messages.

    Raises:
        InputError: a name or a prefix is unknown.
    """
    if dataset.removeprefix(SHIFTED).startswith(PREFIXES):
        return
    for part in BESIDE.split(dataset.removeprefix(SHIFTED), maxsplit=1):
        for name in part.split(","):
            check_name(name.strip(), key)


def check_name(name: str, key: str = "data.dataset") -> None:
    """Raise InputError unless this is the name of one data set; see `check_dataset`."""
    if name in DATASETS:
        return
    if name.startswith(PREFIXES):
        raise InputError(
            f"{key} has {name!r} beside a name: must hold names alone; export the others to files, and name the files"
        )
    before, colon, _ = name.partition(":")
    # Unlike `Path.exists`, this takes a name of any length.
    if os.path.exists(name) or is_path(name):  # noqa: PTH110
        form = FOLDER if os.path.isdir(name) else FILE  # noqa: PTH112
        raise InputError(f"{key} = {name!r} is a path: must begin with {form}; write {form + name!r}")
    raise unknown(f"{key} = {name!r}", before + colon, [*DATASETS, *DATASET_FORMS])


def is_path(name: str) -> bool:
    """Return whether a name that is none of a data set's looks like a path: it has folders or an ending."""
    path = Path(name)
    return ":" not in name and (len(path.parts) > 1 or bool(path.suffix))
