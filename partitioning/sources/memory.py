"""Data in memory as tables: arrays, frames, and data sets of other libraries, which are known by their methods."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.bounds import check_memory, check_row_count
from partitioning.common.columns import repeated
from partitioning.common.errors import InputError, listing
from partitioning.common.text import described
from partitioning.sources.arrays import check_array, nested
from partitioning.sources.layout import arranged

FORMS = (
    "a pair (X, y) of arrays, a data set of PyTorch or Hugging Face, a frame of pandas or polars, a pyarrow table, a "
    "dictionary of columns, or a dictionary of these with the keys train and test"
)
"""Data in memory that are tables."""

FEATURES = "x"
"""Column of the arrays X of a pair."""

TRAIN = "train"
TESTS = ("test", "validation", "valid", "val")
"""Names of the training set, and of the test set, of which the first one present is it."""

_TEXT = (str, bytes)
"""Values that NumPy would cut: it pads texts to one length, and drops zero bytes at the end of bytes."""

Tables: TypeAlias = tuple[pa.Table, pa.Table | None]
"""Training table, and test table if there is one."""


def tables_of(data: object, label: str) -> Tables:
    """Return data in memory as a training table, and a test table if a mapping has one.

    Args:
        data: see `FORMS`.
        label: column for the labels of a pair (X, y).

    Raises:
        InputError: the data are of another form; the message has types and shapes, but no values.
    """
    if not isinstance(data, Mapping) or TRAIN not in data:
        return table_of(data, label), None
    test = next((name for name in TESTS if name in data), None)
    return table_of(data[TRAIN], label), None if test is None else table_of(data[test], label)


def table_of(data: object, label: str) -> pa.Table:
    """Return data in memory as one table; arguments and errors as in `tables_of`.

    A pyarrow table stays as it is. All other columns of arrays are `arranged`.
    """
    if isinstance(data, pa.Table):
        return data
    read = next((read for is_form, read in _READERS if is_form(data)), None)
    if read is None:
        raise InputError(f"the data are {described(data)}: must be {FORMS}")
    table = arranged(read(data, label), label)
    check_row_count("the data", table.num_rows)
    return table


def is_pair(data: object) -> bool:
    """Return whether an object is a pair (X, y), whose labels are an array and no table."""
    if not isinstance(data, tuple) or len(data) != 2 or isinstance(data[1], str | bytes | tuple | Mapping):
        return False
    is_values = hasattr(data[1], "__array__") or _has("__iter__", "__len__")(data[1])
    return is_values and not any(hasattr(data[1], name) for name in ("columns", "column_names"))


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda data: not isinstance(data, type | str | bytes) and all(hasattr(data, name) for name in names)


def _has_items(data: object) -> bool:
    is_array = isinstance(data, tuple) or hasattr(data, "__array__")
    return not is_array and _has("__getitem__", "__len__")(data)


def _is_pandas(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")


def _read_hub(data: Any, label: str) -> pa.Table:
    from datasets.table import embed_table_storage  # loaded already, because the data are its own

    # Rows that were shuffled or selected are those of the data set, not of its file. Images may lie in other files.
    return embed_table_storage(data.with_format("arrow")[:], remote_files=False)


def _read_pandas(data: Any, label: str) -> pa.Table:
    # The index is no column: rows that were filtered or sorted have one of numbers.
    names = [str(name) for name in data.columns]
    if (twice := repeated(names)) is not None:
        raise InputError(f"the frame has several columns named {twice!r}: rename them")
    columns = {}
    for place, name in enumerate(names):
        try:
            columns[name] = pa.array(data.iloc[:, place], from_pandas=True)
        except (pa.ArrowException, ValueError, TypeError) as error:
            kind = type(error).__name__
            raise InputError(
                f"column {name!r} of the frame has the type {data.dtypes.iloc[place]}, and not all of its values are "
                f"of one kind ({kind}): convert or drop the column"
            ) from None
    return pa.table(columns)


def _read_stream(data: Any, label: str) -> pa.Table:
    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError(f"the data are {described(data)}, which is no table: must be {FORMS}") from None
    fields = [field.with_type(_VIEWS.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def _read_pair(data: Any, label: str) -> pa.Table:
    features, labels = data
    is_table = isinstance(features, Mapping) or hasattr(features, "columns")
    table = table_of(features, label) if is_table else _columns({FEATURES: features})
    if label in table.schema.names:
        raise InputError(f"X has a column {label!r}, and y is the label: drop the column, or name the label otherwise")
    return _columns(dict(zip(table.schema.names, table.columns, strict=True)) | {label: labels})


def _asked(data: Any, place: int, label: str) -> dict[str, Any]:
    """Return an item of a data set by column; raise InputError if the data set's own code fails."""
    try:
        item = data[place]
    except Exception as error:  # a user's data set may raise anything
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise InputError(f"item {place} of the data set cannot be read ({reason}): correct the data set") from error
    return _item(item, label)


def _read_items(data: Any, label: str) -> pa.Table:
    try:
        rows = len(data)
    except TypeError:
        raise InputError(f"the data are {described(data)}, which has no length: must be {FORMS}") from None
    if not rows:
        raise InputError(f"the data are {described(data)} without an item: give at least one")
    first = _asked(data, 0, label)
    columns = {name: _Filled(f"{name!r} of the data set", rows, value) for name, value in first.items()}
    for place in range(rows):
        item = first if not place else _asked(data, place, label)
        if item.keys() != columns.keys():
            raise InputError(
                f"item {place} of the data set has {listing(item)}, and item 0 {listing(columns)}: must all have the "
                "same; correct it"
            )
        for name, value in item.items():
            columns[name].put(place, value)
    return _columns({name: column.values for name, column in columns.items()})


def _item(item: object, label: str) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return {str(name): value for name, value in item.items()}
    if isinstance(item, tuple | list) and len(item) == 2:
        return {FEATURES: item[0], label: item[1]}
    raise InputError(f"an item of the data set is {described(item)}: must be a pair (x, y), or a dictionary")


class _Filled:
    """Column of values with the shape and type of the first, filled one by one."""

    def __init__(self, title: str, rows: int, first: object) -> None:
        self.title = title
        self.values: Any = [None] * rows
        if isinstance(first, _TEXT):
            return
        sample = _numpy(title, first)
        check_memory(title, rows * sample.nbytes)
        self.values = np.empty((rows, *sample.shape), sample.dtype)

    def put(self, place: int, value: object) -> None:
        """Enter a value; raise InputError if it is of another shape or type."""
        if isinstance(self.values, list):
            self.values[place] = value
            return
        array, shape, dtype = _numpy(self.title, value), self.values.shape[1:], self.values.dtype
        if array.shape != shape or array.dtype != dtype:
            raise InputError(
                f"{self.title} has the shape {array.shape} and type {array.dtype} in item {place}, and {shape} and "
                f"{dtype} in item 0: must be equal in all items; resize or convert them"
            )
        self.values[place] = array


def _columns(columns: Mapping[Any, Any]) -> pa.Table:
    made = {str(name): _column(f"column {str(name)!r}", values) for name, values in columns.items()}
    lengths = {name: len(column) for name, column in made.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise InputError(f"the columns have different numbers of rows ({listed}): give each one value per sample")
    return pa.table(made)


def _column(title: str, values: Any) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    is_text = isinstance(values, list) and bool(values) and isinstance(values[0], _TEXT)
    array = np.empty(0, object) if is_text else _numpy(title, values)
    if array.dtype.kind == "O":
        try:
            return pa.array(values if is_text else array.tolist())
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            raise InputError(
                f"{title} is {described(values)}, and its values are not of one type and shape: must be numbers or "
                "texts; convert it"
            ) from None
    check_array(title, (array.shape, False, array.dtype))
    try:
        return nested(array)
    except pa.ArrowNotImplementedError:
        raise InputError(f"{title} is {described(values)}, a type that Arrow lacks: convert it to float64") from None


def _numpy(title: str, values: Any) -> npt.NDArray[Any]:
    if np.ma.is_masked(values):
        raise InputError(f"{title} is {described(values)} with masked values: fill them in, or drop the rows")
    values = values.detach().cpu() if hasattr(values, "detach") else values  # a tensor, perhaps of another device
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{title} is {described(values)}, which is no array: must be one; convert it") from None


_VIEWS: Mapping[pa.DataType, pa.DataType] = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Types of which Arrow selects no rows, and those that they become."""

_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], pa.Table]], ...] = (
    (_has("with_format", "features", "__len__", "__getitem__"), _read_hub),
    (_is_pandas, _read_pandas),
    (_has("to_arrow", "columns"), lambda data, label: data.to_arrow()),
    (_has("__arrow_c_stream__"), _read_stream),
    (is_pair, _read_pair),
    (lambda data: isinstance(data, Mapping), lambda data, label: _columns(data)),
    (_has_items, _read_items),
)
"""Forms by test, in order, and their readers. `torch`, `datasets`, pandas and polars are not imported."""
