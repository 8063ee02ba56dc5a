"""Data sets of the Hugging Face hub, and folders in its layout, read by the library `datasets`."""

import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from partitioning.common.paths import expanded
from partitioning.sources.memory import TRAIN, Tables, tables_of
from partitioning.sources.opening import open_source
from partitioning.sources.source import Source, difference
from raysim.common.distribution import require
from raysim.common.errors import InputError
from raysim.common.hub import LONGEST, check_data_folder, is_inside, own_places, quiet_hub, reason_of
from raysim.common.log import LOG
from raysim.data.catalogue import HUB
from raysim.data.features import LABEL
from raysim.data.folders import SUFFIXES

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
        by_name = "begin the names of its files with train, " if name[0] == "/" else ""
        raise InputError(
            f"{dataset} has no split 'train', but {', '.join(map(repr, parts))}: {by_name}name a configuration that "
            "has one, or give a split from Python"
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


def tables_in(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder where the hub keeps them, or else its CSV files if it has no folders.

    A folder `train`, here or in `data`, and those beside it may also hold Parquet files, if they hold no image.
    """
    patterns = ["*.parquet", "data/*.parquet"]
    if not any(each.is_dir() for each in folder.glob("[!.]*")):  # beside images by class, a CSV file is no data set
        patterns.append("*.csv")
    found = next((found for pattern in patterns if (found := sorted(folder.glob(pattern)))), [])
    base = next((each for each in (folder, folder / "data") if (each / TRAIN).is_dir()), None)
    if found or base is None:
        return found
    nested = sorted(each for each in base.glob("[!.]*/[!._]*") if each.is_file())
    has_images = any(each.suffix.lower() in SUFFIXES for each in nested)
    return [each for each in nested if each.suffix == ".parquet" and not has_images]


def _load(dataset: str, name: str, config: str | None, revision: str | None, cache: str | None) -> Mapping[str, Any]:
    require("datasets", f"data.dataset = {dataset!r}")
    import datasets  # late, because it takes seconds

    places, named = list[Path](), list[str]()
    if is_folder := Path(name).is_absolute():
        check_data_folder("data.dataset", Path(name))
        places = own_places(Path(name))
    try:
        with quiet_hub(), _silent():
            builder = datasets.load_dataset_builder(name, config, revision=revision, cache_dir=cache)
            named = [file for files in (builder.config.data_files or {}).values() for file in files]
            _check_places(dataset, [file for file in named if is_folder or "://" not in file], places)
            builder.download_and_prepare()
            parts: Mapping[str, Any] = builder.as_dataset()
            columns = [column for part in parts.values() for column in part.with_format("arrow")[:].columns]
            linked = (path for column in columns for path in _linked(column))
            _check_places(dataset, linked, [*places, *_cached(cache)])
        return parts
    except InputError:
        raise
    except Exception as error:  # the library and its readers may raise anything
        is_wrapped = isinstance(error, datasets.exceptions.DatasetGenerationError)
        reason = reason_of(error.__cause__ or error if is_wrapped else error)
        remedy = "check the name, the network, and HF_HUB_OFFLINE and HF_TOKEN"
        if is_folder:
            reason = _differing(list(map(Path, named)), reason) or reason
            remedy = f"correct the files in {name}" + (", or name another configuration" if config else "")
        raise InputError(f"data.dataset = {dataset!r} cannot be loaded ({reason}): {remedy}") from error


def _differing(files: Sequence[Path], reason: str) -> str:
    """Return in words how the columns of a file differ from those of the first one; "" if no file is known to.

    Args:
        files: files of the data set.
        reason: error of the library, which may quote a value.
    """
    value = re.search(r"string: ('.*') as", reason)
    first: Source | None = None
    for file in files:
        with suppress(InputError):  # a kind of file that only the library reads
            source = open_source(file)
            first = first or source
            if found := difference(source.schema, first.schema):
                such = f", such as {value[1]}" if value else ""
                return f"{file.name} {found}{such}, unlike {first.name}: must be the same in all files"
    return ""


@contextmanager
def _silent() -> Iterator[None]:
    """Silence the library's progress bars, and its log of errors that it also raises."""
    import datasets

    level, shows_progress = datasets.logging.get_verbosity(), not datasets.are_progress_bars_disabled()
    datasets.logging.set_verbosity(logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if shows_progress:
            datasets.enable_progress_bars()


def _cached(cache: str | None) -> list[Path]:
    import datasets
    from huggingface_hub.constants import HF_HUB_CACHE

    downloads = Path(cache) / "downloads" if cache else datasets.config.DOWNLOADED_DATASETS_PATH
    return [Path(HF_HUB_CACHE), Path(downloads), Path(datasets.config.EXTRACTED_DATASETS_PATH)]


def _linked(column: pa.ChunkedArray) -> Iterator[str]:
    """Yield the paths of a column's images and sounds that are in other files, however deep they are."""
    kind = column.type
    if pa.types.is_struct(kind) and {"bytes", "path"} <= {field.name for field in kind}:
        lacks_bytes = pc.is_null(pc.struct_field(column, "bytes"))
        yield from pc.drop_null(pc.unique(pc.struct_field(column, "path").filter(lacks_bytes))).to_pylist()
    elif pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            yield from _linked(pc.struct_field(column, [place]))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _linked(pc.list_flatten(column))


def _check_places(dataset: str, paths: Iterable[str], places: Collection[Path]) -> None:
    # Links of the folder's own files are checked before, so one file of each folder is enough.
    for path in {path.rpartition("/")[0]: path for path in paths}.values():
        if not is_inside(path, *places):
            raise InputError(
                f"data.dataset = {dataset!r} reads {path[:LONGEST]!r}, which is not in the data set: must have its "
                "files in it; take it from a source that you trust, or copy the file"
            )


def _kinds(schema: pa.Schema) -> dict[str, str]:
    """Return the hub's kind of each column, such as "Image"; none if the table has no features."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        kinds = {name: str(feature.get("_type")) for name, feature in features.items()}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return {}
    return kinds if kinds.keys() == set(schema.names) else {}
