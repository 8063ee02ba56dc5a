"""UCI Heart Disease, patients of four hospitals; the table is part of the package."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from partitioning.sources.memory import Tables
from raysim.data.reading import check_columns, table_of

FILE = Path(__file__).parent / "bundled" / "heart-disease.csv"
"""Table of the package; README.md beside it has the licence, the authors and the changes."""

WHOLE = ("age", "sex", "cp", "fbs", "restecg", "exang", "disease")
"""Columns of whole numbers."""

COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("hospital", "split", "disease"),
)
"""Columns of the table: ten features, the owner, the division into training and test rows, and the label."""


def read_heart_disease(root: Path) -> Tables:
    """Return the patients of Heart Disease: ten columns of numbers, `hospital`, `split`, and `disease`, 0 or 1.

    Args:
        root: unused, because the file is part of raysim.

    Raises:
        InputError: the file is missing or damaged.

    Paper: Janosi, Steinbrunn, Pfisterer and Detrano, "Heart Disease", UCI Machine Learning Repository, 1988,
        doi:10.24432/C52P4X, CC BY 4.0. The rows and the split are those of FLamby (Ogier du Terrail et al., 2022).
    """
    table = table_of(FILE)
    check_columns(table, COLUMNS, FILE)
    kinds = {name: pa.int64() for name in WHOLE}
    columns = [pc.cast(table[name], kinds.get(name, table[name].type)) for name in COLUMNS]
    return pa.table(columns, names=list(COLUMNS)), None


def read_heart_disease_test(root: Path) -> Tables:
    """Return FLamby's test patients of all hospitals, a global test set beside the hospitals' own test parts.

    Args:
        root: unused, because the file is part of raysim.

    Errors and paper as for `read_heart_disease`.
    """
    patients, _ = read_heart_disease(root)
    return patients.filter(pc.equal(patients["split"], "test")), None
