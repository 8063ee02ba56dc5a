"""Test sets whose types a reader inferred in another way than those of the samples."""

from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from partitioning.common.errors import InputError
from partitioning.making.testsets import check_tests

ZONED = pa.array([datetime(2023, 4, 17)], pa.timestamp("us", "Europe/Berlin"))


def checked(samples: pa.Array, test: pa.Array) -> pa.Table:
    schema = pa.schema([("x", samples.type), ("label", pa.int64())])
    table = pa.table({"x": test, "label": [0] * len(test)})
    return check_tests(table, schema, "label", "data", ["x"])[None]


@pytest.mark.parametrize(
    ("samples", "test", "expected"),
    [
        ([0.5], [1, 2], [1.0, 2.0]),
        ([1], [2.0, None], [2, None]),
        ([0.5], [None, None], [None, None]),
        (["x"], [None], [None]),
        ([1], ["7"], [7]),
        ([datetime(2023, 4, 17, 5)], [date(2023, 4, 18)], [datetime(2023, 4, 18)]),
        (pa.array(["x"]).dictionary_encode(), ["y"], ["y"]),
        (pa.array(["x"], pa.large_string()), pa.array(["y"]).dictionary_encode(), ["y"]),
        (pa.array([1.0], pa.float32()), [0.5, 2.0], [0.5, 2.0]),
    ],
)
def test_a_test_set_gets_the_types_of_the_samples(samples: Any, test: Any, expected: list[Any]) -> None:
    samples = pa.array(samples)
    table = checked(samples, pa.array(test))
    assert table["x"].type == samples.type and table["x"].to_pylist() == expected


@pytest.mark.parametrize(
    ("samples", "test", "message"),
    [
        ([1], [2.0, 2.5, 3.5], "is double and has '2.5', but that of the samples is int64: write those of the samples"),
        ([1], ["7", "007"], "is string and has '007', but that of the samples is int64: convert it to int64"),
        (["0013"], [13], "is int64 and has '13', but that of the samples is string: store it as text"),
        (["1.0"], [1.0], "is double and has '1.0', but that of the samples is string: store it as text"),
        (["x"], [datetime(2023, 4, 17)], "is timestamp.us. and has '2023-04-17 00:00:00', but that of the samples"),
        ([1], [datetime(2023, 4, 17)], "is timestamp.us. .* but that of the samples is int64: convert it to int64"),
        ([datetime(2023, 4, 17)], [5], "is int64 and has '5', but that of the samples is timestamp"),
        ([1], [timedelta(1)], "is duration.us. and has '1 day, 0:00:00', but that of the samples is int64"),
        (
            ZONED,
            [datetime(2023, 4, 17)],
            "is timestamp.us. .* but that of the samples is timestamp.us, tz=Europe/Berlin",
        ),
        (["x"], [True], "is bool and has 'True', but that of the samples is string"),
        ([True], [1, 2], "is int64 and has '1', but that of the samples is bool"),
        ([[1, 2]], [[1.5]], "of the test set of data is list<.*has '.1.5.'"),
        (pa.array([0.5], pa.float32()), [0.5, 0.1], "is double and has '0.1'"),
        ([date(2023, 4, 17)], [datetime(2023, 4, 18, 5)], "'2023-04-18 05:00:00', but that of the samples is date32"),
    ],
)
def test_a_value_that_does_not_fit_is_named(samples: Any, test: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        checked(pa.array(samples), pa.array(test))
