"""Options of a partition: wrong types are refused in one line, before anything is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import partitioning


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"label": 1}, "label is 1: give a name as text"),
        ({"label": ["label"]}, r"label is \['label'\]: give a name as text"),
        ({"by": 3}, "by is 3: give a name as text"),
        ({"site": 1}, "site is 1: give a name as text"),
        ({"scheme": ["iid"]}, r"scheme is \['iid'\]: give a name as text"),
        ({"features": 5}, "features is 5: give a list of columns' names"),
        ({"features": [1]}, r"features is \[1\]: give a list of columns' names"),
        ({"missing": 5}, "missing is 5: give a list of columns' names"),
        ({"standardise": "yes"}, "standardise is 'yes': give True or False"),
        ({"index_only": 1}, "index_only is 1: give True or False"),
        ({"dataset": 1}, "dataset is 1: give a name as text"),
    ],
)
def test_a_wrong_type_is_refused_in_one_line(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(20.0), "label": np.arange(20) % 2})
    with pytest.raises(partitioning.InputError, match=f"^{text}$"):
        partitioning.make(table, tmp_path / "made", **{"scheme": "iid", "clients": 2, **options})
    assert not (tmp_path / "made").exists()


def test_one_column_may_stand_alone(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(20.0), "label": np.arange(20) % 2})
    made = partitioning.make(table, tmp_path / "made", scheme="iid", clients=2, features="x")
    assert list(made.feature_counts) == ["x"]
