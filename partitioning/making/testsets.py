"""Test sets outside all clients: the global test set and one per domain."""

from collections.abc import Collection, Mapping

import pyarrow as pa

from partitioning.common.casting import cast_like, is_text, value_without_cast
from partitioning.common.columns import check_columns, check_rows, check_values
from partitioning.common.errors import InputError
from partitioning.sources.source import difference
from partitioning.store.writing import test_file_name

Tests = Mapping[str | None, pa.Table]
"""Test sets by name of their domain; None names the global one."""

_LONGEST = 100  # characters of a name: short enough for the file names of every file system


def check_tests(
    test: pa.Table | Tests | None, schema: pa.Schema, label: str, dataset: str, missing: Collection[str] = ()
) -> dict[str | None, pa.Table]:
    """Return the test sets by name, each cast to the schema of the samples; `missing` is that of `make`.

    Raises:
        InputError: a test set has other columns or no rows, or a value that the type of its column in the samples
            cannot hold, or its name gives no file name of its own.
    """
    tests = dict(test) if isinstance(test, Mapping) else {} if test is None else {None: test}
    _check_names(list(tests))
    return {name: _check_test(part, schema, label, _title(name, dataset), missing) for name, part in tests.items()}


def _check_names(names: list[str | None]) -> None:
    files: dict[str, str | None] = {}
    for name in names:
        if name is not None and not (isinstance(name, str) and 0 < len(name) <= _LONGEST):
            raise InputError(f"test names the test set {name!r}: give names of 1 to {_LONGEST} characters")
        if any("\ud800" <= letter <= "\udfff" for letter in name or ""):
            raise InputError(f"test names the test set {name!r}, which is not UTF-8: give it another name")
        file = test_file_name(name).casefold()  # some file systems ignore case
        if file in files:
            raise InputError(f"test names {files[file]!r} and {name!r}, whose files are both {file}: rename one")
        files[file] = name


def _check_test(test: pa.Table, schema: pa.Schema, label: str, title: str, missing: Collection[str]) -> pa.Table:
    check_columns(test.schema, label, name=title)
    check_rows(test, name=title)
    check_values(test, name=title, missing=missing)
    if test.schema.names != schema.names:
        raise InputError(
            f"{title} {difference(test.schema, schema)}, unlike the samples: give both the same names, in the same "
            "order"
        )
    test = cast_like(test, schema)
    for field in schema:
        if (kind := test.schema.field(field.name).type) != field.type:
            value = value_without_cast(test[field.name], field.type)
            is_narrower = pa.types.is_integer(field.type) and pa.types.is_floating(kind)
            other = (
                "store it as text, for example in a Parquet file"
                if is_text(field.type)
                else f"convert it to {field.type}"
            )
            remedy = "write those of the samples as fractions, such as 1.0" if is_narrower else other
            raise InputError(
                f"column {field.name!r} of {title} is {kind} and has {str(value)[:40]!r}, but that of the samples is "
                f"{field.type}: {remedy}, or leave the column out of both"
            )
    # Equal types may still name a list's inner field differently: Parquet says "element", memory "item".
    return test.cast(schema)


def _title(name: str | None, dataset: str) -> str:
    return f"the test set of {dataset}" if name is None else f"the test set {name!r} of {dataset}"
