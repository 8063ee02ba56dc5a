"""Tables of numbers: Covertype and eICU."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from partitioning.common.columns import is_label
from raysim.common.errors import InputError
from raysim.data.features import is_number
from raysim.data.fetching import damaged, fetch, missing
from raysim.data.folders import Tables
from raysim.data.reading import check_columns, check_labels, check_values, table_of

LOG = logging.getLogger("raysim")

COVERTYPE = (
    "Elevation",
    "Aspect",
    "Slope",
    "Horizontal_Distance_To_Hydrology",
    "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways",
    "Hillshade_9am",
    "Hillshade_Noon",
    "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
    *(f"Wilderness_Area{number}" for number in range(1, 5)),
    *(f"Soil_Type{number}" for number in range(1, 41)),
)
"""The 54 features in the order of UCI's file."""

ADMISSIONS = 100
MORTALITY = 0.2
"""Hospitals of eICU have more admissions than this, and at most this mortality: RADFed, section IV-B."""


def read_covertype(root: Path) -> Tables:
    """Return Covertype's table: 54 columns of numbers, and `label`, int64, 1 to 7.

    Args:
        root: the folder of `covertype.parquet` (the features by name, and `label` or `Cover_Type`) or UCI's
            `covtype.data` or `covtype.data.gz`. Where it has none, scikit-learn downloads the set and the first is
            written. There is no test part.

    Raises:
        InputError: there is no file and no download, or the file is damaged.

    Blackard and Dean, "Comparative accuracies of artificial neural networks and discriminant analysis", 1999.
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
    """Return the admissions of eICU's hospitals of RADFed: numbers, `label` (died in hospital), `hospital`.

    Kept are hospitals with more than 100 admissions of which at most 20 % died; the log says how many were left out.

    Args:
        root: the folder of `eicu.parquet` or `eicu.csv`, a row an admission: `hospital` (`hospitalid` of `patient`),
            `label` (1: `hospitaldischargestatus` is "Expired", 0: "Alive"), and numbers without missing values, such
            as the columns of `apacheApsVar` and `apachePredVar` that are known at the time. There is no test part.

    Raises:
        InputError: there is no file, it is damaged, lacks a column, or has no hospital to keep.

    Pollard et al., Scientific Data 5, 2018; RADFed, section IV-B.
    """
    path = next((root / name for name in ("eicu.parquet", "eicu.csv") if (root / name).is_file()), None)
    if path is None:
        raise missing(
            root,
            "eicu.parquet or eicu.csv",
            "a table with hospital, label (1: died) and APACHE's numbers, made from the tables of "
            "physionet.org/content/eicu-crd, for which PhysioNet asks for a credentialed account",
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
    kept = (admissions > ADMISSIONS) & (mortality <= MORTALITY)
    LOG.info("eicu: %d of %d hospitals are large enough and of low mortality", kept.sum(), len(hospitals))
    if not kept.any():
        raise InputError(
            f"{path} has no hospital with more than {ADMISSIONS} admissions and a mortality of at most "
            f"{MORTALITY:.0%}: give the whole table"
        )
    features = [name for name in table.schema.names if name not in ("hospital", "label")]
    return table.select([*features, "label", "hospital"]).filter(pa.array(kept[codes])), None


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
        return csv.read_csv(path, read_options=options, convert_options=kinds)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error


def _labelled(table: pa.Table, path: Path, least: int, most: int, dividing: Sequence[str] = ()) -> pa.Table:
    """The table with int64 labels, within a range; all its columns but the dividing ones are sound numbers."""
    check_columns(table, table.schema.names, path)
    words = [field.name for field in table.schema if not is_number(field.type) and field.name not in dividing]
    if words:
        raise InputError(f"column {words[0]!r} of {path} is no number: encode it, or drop the column")
    if not pa.types.is_integer(table.schema.field("label").type):
        raise InputError(f"column 'label' of {path} is {table.schema.field('label').type}: give whole numbers")
    check_values(table, str(path))
    check_labels(table["label"], path, least, most)
    return table.set_column(table.schema.get_field_index("label"), "label", pc.cast(table["label"], pa.int64()))
