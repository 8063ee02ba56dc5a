"""Data sets of the Hugging Face hub, and folders in its layout, read by the library `datasets`."""

import json
import logging
import re
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from partitioning.common.paths import expanded
from partitioning.sources.memory import TRAIN, Tables, tables_of
from raysim.common.distribution import install
from raysim.common.errors import InputError
from raysim.common.hub import check_data_folder, quiet_hub, reason_of
from raysim.data.catalogue import HUB
from raysim.data.features import LABEL

LOG = logging.getLogger("raysim")

FORM = re.compile(r"(?P<name>[./~][^:@]*|[\w.-]+/[\w.-]+)(:(?P<config>[^:@/]+))?(@(?P<revision>[^:@]+))?", re.ASCII)


def read_hub(dataset: str, root: str | None, label: str | None) -> Tables:
    """Read the split `train` and the test set of a data set.

    Args:
        dataset: `hf:OWNER/NAME`, with `:CONFIG` and `@REVISION` if wanted, or `hf:./PATH` for a folder.
        root: start of a relative PATH; for a name the cache of the library, by default its own.
        label: label column, whose arrays stay as they are.

    Raises:
        InputError: the library is missing, or it cannot load the data set, or there is no split `train`.
    """
    form = FORM.fullmatch(dataset.removeprefix(HUB))
    if form is None:
        raise InputError(
            f"data.dataset = {dataset[:80]!r}: must be hf:OWNER/NAME, hf:OWNER/NAME:CONFIG@REVISION, or hf:./PATH for "
            'a folder; for example, set data.dataset = "hf:ylecun/mnist"'
        )
    name, cache = form["name"], root
    if name[0] in "./~":
        folder, cache = Path(root or ".").absolute() / expanded("data.dataset", name), None
        if not folder.is_dir():
            raise InputError(f"{folder} is {'a file' if folder.exists() else 'missing'}: give the path of a folder")
        name = str(folder)
    parts = _load(dataset, name, form["config"], form["revision"], cache)
    if TRAIN not in parts:
        raise InputError(
            f"{dataset} has no split 'train', but {', '.join(map(repr, parts))}: name a configuration that has one, or "
            "give a split from Python"
        )
    return tables_of(parts, label or LABEL)


def by_features(tables: Tables, label: str | None, others: Collection[str], where: str) -> tuple[Tables, str]:
    """Choose the columns of images and of labels by the features that the hub stores with a table.

    Args:
        tables: training and test table; those without features keep all columns.
        label: name of the label column; None to find it.
        others: further columns to keep.
        where: name of the data set, for the message.

    Returns:
        The tables and the name of the label column.

    Raises:
        InputError: several columns have classes, and none of them is named "label".
    """
    kinds = _kinds(tables[0].schema)
    classes = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    if label is None and len(classes) > 1 and LABEL not in classes:
        raise InputError(f'{where} has classes in {", ".join(classes)}: set data.label = "{classes[0]}", or another')
    label = label or (LABEL if len(classes) != 1 else classes[0])
    images = [name for name, kind in kinds.items() if kind == "Image" and name != label]
    kept = (*images, label, *others) if images and label in kinds else kinds
    dropped = [name for name in kinds if name not in kept]
    if dropped:
        LOG.info("%s: columns beside images and labels are left out: %s", where, ", ".join(dropped))
    train, test = (None if table is None else table.drop_columns(dropped).replace_schema_metadata() for table in tables)
    return (train, test), label


def is_hub_folder(path: Path) -> bool:
    """Return whether a folder has Parquet files where the hub keeps them."""
    return any(next(path.glob(pattern), None) for pattern in ("*.parquet", "data/*.parquet"))


def _load(dataset: str, name: str, config: str | None, revision: str | None, cache: str | None) -> Mapping[str, Any]:
    if find_spec("datasets") is None:
        raise InputError(
            f"data.dataset = {dataset!r}: must have the package datasets, which is missing; {install('datasets')}"
        )
    import datasets  # late, because it takes seconds

    if Path(name).is_absolute():
        check_data_folder("data.dataset", Path(name))
    try:
        with quiet_hub():
            builder = datasets.load_dataset_builder(name, config, revision=revision, cache_dir=cache)
            builder.download_and_prepare()
            parts: Mapping[str, Any] = builder.as_dataset()
        return parts
    except Exception as error:  # the library and its readers may raise anything
        raise InputError(
            f"data.dataset = {dataset!r} cannot be loaded ({reason_of(error)}): check the name, the network, and "
            "HF_HUB_OFFLINE and HF_TOKEN"
        ) from error


def _kinds(schema: pa.Schema) -> dict[str, str]:
    """Return the hub's kind of each column, such as "Image"; none if the table has no features."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        kinds = {name: str(feature.get("_type")) for name, feature in features.items()}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return {}
    return kinds if kinds.keys() == set(schema.names) else {}
