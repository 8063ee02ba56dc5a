"""The data sets by name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

import pyarrow as pa

from raysim.data.cache import cache
from raysim.data.features import check_label
from raysim.data.table import read_table
from raysim.errors import unknown

FILE = "file:"


@dataclass(frozen=True)
class Source:
    """A data set as tables: the rows to partition, and the global test set where there is one.

    Args:
        name: what was asked for, "digits" or "file:PATH.parquet".
        train: the label column and the features.
        test: the same columns, or None.
        label: name of the label column.
    """

    name: str
    train: pa.Table
    test: pa.Table | None
    label: str


@dataclass(frozen=True)
class DataSet:
    """A data set that has a name.

    Args:
        description: one line that says what it is.
        reader: "module:function"; the function, given the folder of the files, returns the train and test table.
    """

    description: str
    reader: str

    def read(self, root: Path) -> tuple[pa.Table, pa.Table | None]:
        """Read the tables."""
        # The reader is found only now: torchvision takes seconds to import, in every client actor too.
        tables: tuple[pa.Table, pa.Table | None] = resolve_name(self.reader)(root)
        return tables


DATASETS: Mapping[str, DataSet] = {
    "digits": DataSet(
        "1,797 scanned digits, 1x8x8, 10 classes; comes with scikit-learn", "raysim.data.digits:read_digits"
    ),
    "mnist": DataSet(
        "handwritten digits, 60,000 and 10,000 for test, 1x28x28, 10 classes", "raysim.data.vision:read_mnist"
    ),
    "fashion-mnist": DataSet(
        "clothes, 60,000 and 10,000 for test, 1x28x28, 10 classes", "raysim.data.vision:read_fashion_mnist"
    ),
    "cifar10": DataSet(
        "photographs, 50,000 and 10,000 for test, 3x32x32, 10 classes", "raysim.data.vision:read_cifar10"
    ),
}


def load(dataset: str, *, root: str | None = None, label: str | None = None, dividing: Collection[str] = ()) -> Source:
    """Load a data set by name, or a user's own table.

    Args:
        dataset: one of `DATASETS`, or "file:PATH.parquet".
        root: folder of the data set's files, where a relative PATH starts too; by default raysim's cache, and
            for a PATH the working directory.
        label: name of the label column, by default "label".
        dividing: columns of a user's table that say whose a row is, and are no features.

    Raises:
        InputError: an unknown name, files that are missing or damaged, or a table that cannot be trained on.
    """
    label = "label" if label is None else label
    if dataset.startswith(FILE):
        path = Path(root or "").expanduser() / Path(dataset.removeprefix(FILE)).expanduser()
        return Source(dataset, read_table(path, label, dividing), None, label)
    if dataset not in DATASETS:
        raise unknown(f"data set {dataset!r}", dataset, [*DATASETS, "file:PATH.parquet"])
    train, test = DATASETS[dataset].read(Path(root).expanduser() if root else cache() / "data")
    check_label(train.schema, label, dataset)
    return Source(dataset, train, test, label)
