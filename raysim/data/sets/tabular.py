"""Tables of numbers: a user's own, Covertype and eICU."""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from partitioning.common.bounds import check_memory
from partitioning.common.casting import cast_like
from partitioning.common.columns import check_rows, check_text, is_label, repeated
from partitioning.common.unreadable import UNREADABLE
from partitioning.sources.layout import arranged
from partitioning.sources.memory import Tables
from partitioning.sources.opening import open_source
from partitioning.sources.source import reading
from raysim.common.errors import InputError
from raysim.common.log import LOG
from raysim.data.columns import PLAIN, ColumnRules, check_features, missing_rows
from raysim.data.domains import DOMAIN
from raysim.data.features import LABEL, check_label, is_number
from raysim.data.reading import (
    check_columns,
    check_labels,
    check_values,
    damaged,
    fetch,
    missing,
    read_delimited,
    read_parquet,
    table_of,
)

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*DELIMITERS, ".npz", ".arrow", ".feather", ".ipc")
"""Suffixes of files that are read beside Parquet."""

PANDAS_INDEX = re.compile(r"__index_level_\d+__")

COVERTYPE = (
    *("Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology"),
    *("Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm"),
    "Horizontal_Distance_To_Fire_Points",
    *(f"Wilderness_Area{number}" for number in range(1, 5)),
    *(f"Soil_Type{number}" for number in range(1, 41)),
)
"""The 54 features in the order of UCI's file."""

MOST_PLOTS = 2**20
"""Largest number of rows of Covertype, which has 581,012."""

LEAST_ADMISSIONS = 100
LARGEST_MORTALITY = 0.2
"""RADFed, section IV-B, keeps hospitals of eICU with more admissions than this, and at most this mortality."""


@dataclass(frozen=True)
class TableUse:
    """Use of a table's columns.

    Args:
        label: label column; None for the data set's own.
        dividing: columns that identify a row's owner; all other columns are features.
        rules: rules for columns that are no plain numbers; None if columns beside a text are left out.
        without: columns that are dropped.
        needed: columns that the partition names. A table without one is refused for that, and not for its features.
        like: schema of the training rows. A test table gets its types, because those of text files and frames are
            inferred from each table alone.
        is_part: whether the data set has other tables of training rows.
    """

    label: str | None = None
    dividing: Collection[str] = ()
    rules: ColumnRules | None = None
    without: tuple[str, ...] = ()
    needed: Collection[str] = ()
    like: pa.Schema | None = None
    is_part: bool = False

    @property
    def words(self) -> list[str]:
        """Columns of text of the training rows."""
        return [field.name for field in self.like or () if _is_text(field)]

    def alike(self, table: pa.Table) -> pa.Table:
        """Return a test table in the types of the training rows where its values fit."""
        if self.like is None:
            return table
        rules, besides = self.rules or PLAIN, {self.label or LABEL, *self.dividing}
        words = {*self.words} - {*rules.categories, *rules.dates} if self.rules is not None else set()
        for place, field in enumerate(table.schema):
            name, values = field.name, table[field.name]
            if name in self.like.names and name not in besides | {*self.words}:
                with suppress(InputError):  # a text that is no number is refused with the other faults of its table
                    values = rules.cleaned(name, values)
            elif name in words - besides and is_number(field.type):
                values = values.cast(self.like.field(name).type)  # texts of numbers, which the rules read later
            table = table.set_column(place, field.with_type(values.type), values)
        return cast_like(table, self.like)


def _is_text(field: pa.Field) -> bool:
    return is_label(field.type) and not is_number(field.type)


ALL = TableUse()
"""Use of all columns; their types are not checked."""


def read_tables(paths: Sequence[Path], use: TableUse) -> list[pa.Table]:
    """Read a user's files and check that a model can be trained on their rows; all columns stay.

    The types of text files are inferred from each file alone. A column of text in one of them is text in all, and a
    column without a value has the type of the others.

    Args:
        paths: files whose names end in one of `SUFFIXES`, or else Parquet files.
        use: use of the columns.

    Raises:
        InputError: a file is missing or damaged, or a column, a type or a value is not allowed.
    """
    tables, use = [_read(path, use.words) for path in paths], replace(use, is_part=len(paths) > 1)
    fields = [field for table in tables for field in table.schema if field.name != (use.label or LABEL)]
    empty = {field.name for field in fields if pa.types.is_null(field.type)}
    shared = {field.name: field for field in fields if field.name in empty and not pa.types.is_null(field.type)}
    shared |= {field.name: field for field in fields if _is_text(field)}
    like = replace(use, like=use.like or pa.schema(list(shared.values())))
    others = [any(shared.get(field.name, field).type != field.type for field in table.schema) for table in tables]
    # A text where numbers belong is first refused in the file that has it, not in those that it gives its type.
    for place in sorted(range(len(tables)), key=others.__getitem__):
        path, table = paths[place], tables[place]
        if use.like is None and others[place]:
            tables[place] = usable(_read(path, like.words), str(path), like)
        else:
            tables[place] = usable(table, str(path), use)
    return tables


def _read(path: Path, words: Collection[str]) -> pa.Table:
    """Return a file's table; columns of a text file that are `words` are strings, even if they look like "0013"."""
    if not path.is_file():
        raise InputError(f"{path} is {'a folder' if path.is_dir() else 'missing'}: give the path of a file")
    if path.suffix.lower() in SUFFIXES:
        return _read_other(path, words)
    try:
        return read_parquet(path)
    except UNREADABLE as error:
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        remedy = "write it again, or copy it again"
        if path.suffix.lower() != ".parquet":
            remedy = f"other files end in {', '.join(SUFFIXES)}"
        raise InputError(f"{path} is not a whole Parquet file ({reason}): must be Parquet; {remedy}") from error


def usable(table: pa.Table, where: str, use: TableUse) -> pa.Table:
    """Return a user's table with its arrays `arranged`, after a check that a model can be trained on its rows.

    Args:
        table: rows with all their columns.
        where: name of the table, for the error message.
        use: use of the columns.

    Raises:
        InputError: a column, a type or a value is not allowed.
    """
    names, label = table.schema.names, use.label or LABEL
    if (twice := repeated(names)) is not None:
        raise InputError(f"{where} has {names.count(twice)} columns named {twice!r}: give each its own name")
    for name in names:
        if not name or PANDAS_INDEX.fullmatch(name):
            raise InputError(
                f"column {name!r} of {where} is a pandas index, not a feature: write the file with index=False"
            )
    check_text(table, name=where)
    table = use.alike(arranged(table, label))
    check_rows(table, name=where)  # first, because without rows a text file's columns have no type
    check_label(table.schema, label, where)
    besides = {label, *use.dividing, *use.without}
    if use.rules is not None and {*use.needed} <= {*names, DOMAIN}:  # joined tables get the column of domains later
        check_features(table, label, besides, where, use.rules, use.is_part or use.like is not None)
    imputed = [] if use.rules is None else use.rules.missing_allowed(table.schema, besides)
    check_values(table.drop_columns([name for name in use.without if name in names]), where, imputed)
    # A file of delimited text has labels without a character in place of nulls.
    if use.rules is not None and is_label(table[label].type) and (rows := missing_rows(table[label])):
        raise InputError(f"column {label!r} has no label in {rows} rows of {where}: fill them in, or drop the rows")
    return table


def _read_other(path: Path, words: Collection[str]) -> pa.Table:
    with reading(path, "a table"):
        source = open_source(path)
        _ = source.schema.names  # names may not be text in UTF-8
    if (delimiter := DELIMITERS.get(path.suffix.lower())) is not None:
        with reading(path, "delimited text"):
            kinds = csv.ConvertOptions(column_types=dict.fromkeys(words, pa.string()))
            table = read_delimited(path, delimiter=delimiter, convert_options=kinds)
        check_text(table, name=str(path), is_text=True)
        return table
    batches, held = [], 0
    for batch in source.batches():
        batches.append(batch)
        held += batch.nbytes
        check_memory(str(path), held)
    return pa.Table.from_batches(batches, source.schema)


def read_covertype(root: Path) -> Tables:
    """Return Covertype's table: 54 columns of numbers, and `label`, int64, 1 to 7.

    Args:
        root: folder of `covertype.parquet` (the features by name, and `label` or `Cover_Type`) or of UCI's
            `covtype.data` or `covtype.data.gz`. If it has none, scikit-learn downloads the set and raysim writes
            `covertype.parquet`. There is no test part.

    Raises:
        InputError: there is no file and no download, or the file is damaged.

    Paper: Blackard and Dean, "Comparative accuracies of artificial neural networks and discriminant analysis", 1999.
    """
    original = next((root / name for name in ("covtype.data", "covtype.data.gz") if (root / name).is_file()), None)
    path = root / "covertype.parquet"
    if original is not None and not path.is_file():
        return _labelled(_uci(original), original, 1, 7), None
    fetch(_download_covertype, root, [path.name])
    table = table_of(path)
    if "Cover_Type" in table.schema.names:
        table = table.rename_columns(["label" if name == "Cover_Type" else name for name in table.schema.names])
    check_columns(table, [*COVERTYPE, "label"], path)
    return _labelled(table.select([*COVERTYPE, "label"]), path, 1, 7), None


def read_eicu(root: Path) -> Tables:
    """Return the admissions of RADFed's hospitals in eICU: numbers, `label` (died in hospital), `hospital`.

    The table keeps hospitals with more than 100 admissions and a mortality of at most 20 %. The log counts both kinds.

    Args:
        root: folder of `eicu.parquet` or `eicu.csv`, one row per admission: `hospital` (`hospitalid` of `patient`),
            `label` (1: `hospitaldischargestatus` is "Expired", 0: "Alive"), and numbers without missing values, such
            as the columns of `apacheApsVar` and `apachePredVar` known at the time. There is no test part.

    Raises:
        InputError: there is no file, it is damaged, lacks a column, or has no hospital to keep.

    Paper: Pollard et al., Scientific Data 5, 2018; RADFed, section IV-B.
    """
    path = next((root / name for name in ("eicu.parquet", "eicu.csv") if (root / name).is_file()), None)
    if path is None:
        raise missing(
            root,
            "eicu.parquet or eicu.csv",
            "a table with hospital, label (1: died) and APACHE's numbers, made from the tables of "
            "physionet.org/content/eicu-crd, which requires a credentialed account of PhysioNet",
        )
    table = table_of(path)
    check_columns(table, ["hospital", "label"], path)
    kind = table.schema.field("hospital").type
    if not is_label(kind):
        raise InputError(f"column 'hospital' of {path} is {kind}: must be whole numbers or strings; convert it")
    table = _labelled(table, path, 0, 1, ["hospital"])
    hospitals, codes = np.unique(table["hospital"].to_numpy(zero_copy_only=False), return_inverse=True)
    admissions = np.bincount(codes)
    mortality = np.bincount(codes, weights=table["label"].to_numpy() != 0) / admissions
    selected = (admissions > LEAST_ADMISSIONS) & (mortality <= LARGEST_MORTALITY)
    LOG.info("eicu: %d of %d hospitals are large enough and of low mortality", selected.sum(), len(hospitals))
    if not selected.any():
        raise InputError(
            f"{path} has no hospital with more than {LEAST_ADMISSIONS} admissions and a mortality of at most "
            f"{LARGEST_MORTALITY:.0%}: give the whole table"
        )
    numbers = [name for name in table.schema.names if name not in ("hospital", "label")]
    return table.select([*numbers, "label", "hospital"]).filter(pa.array(selected[codes])), None


def _download_covertype(stage: str) -> None:
    from sklearn.datasets import fetch_covtype

    values, labels = fetch_covtype(data_home=stage, return_X_y=True)
    columns = [pa.array(values[:, place].astype(np.int32)) for place in range(len(COVERTYPE))]
    table = pa.table([*columns, pa.array(labels.astype(np.int64))], names=[*COVERTYPE, "label"])
    pq.write_table(table, Path(stage) / "covertype.parquet", compression="zstd")


def _uci(path: Path) -> pa.Table:
    options = csv.ReadOptions(column_names=[*COVERTYPE, "label"])
    kinds = csv.ConvertOptions(column_types=dict.fromkeys(COVERTYPE, pa.int32()) | {"label": pa.int64()})
    try:
        return read_delimited(path, MOST_PLOTS, read_options=options, convert_options=kinds)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error


def _labelled(table: pa.Table, path: Path, least: int, most: int, dividing: Sequence[str] = ()) -> pa.Table:
    """Return the table with int64 labels, after a check of their range and of all columns of numbers."""
    check_columns(table, table.schema.names, path)
    words = [field.name for field in table.schema if not is_number(field.type) and field.name not in dividing]
    if words:
        raise InputError(f"column {words[0]!r} of {path} is not a number: encode it, or drop the column")
    if not pa.types.is_integer(table.schema.field("label").type):
        raise InputError(f"column 'label' of {path} is {table.schema.field('label').type}: give whole numbers")
    check_values(table, str(path))
    check_labels(table["label"], path, least, most)
    return table.set_column(table.schema.get_field_index("label"), "label", pc.cast(table["label"], pa.int64()))
