"""Labels that are no class a sample: several columns as one of numbers, and the classes of sequences."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from algorithms.training.loss import LabelKind
from partitioning.common.columns import is_image, is_label
from partitioning.sources.arrays import nested
from raysim.common.errors import InputError, unknown
from raysim.data.arrays import flat
from raysim.data.features import is_number
from raysim.data.masks import CLASSES, class_metadata


def joined_labels(table: pa.Table, labels: Sequence[str], keep: Collection[str] = ()) -> tuple[pa.Table, str]:
    """Return the table with the columns of numbers `labels` as one of lists, float32, and its name.

    Args:
        table: rows with the columns.
        labels: columns of numbers.
        keep: columns that stay beside the new one.

    Raises:
        InputError: a column is missing or holds no numbers.
    """
    for name in labels:
        if name not in table.schema.names:
            raise unknown(f"label column {name!r} of data.label", name, table.schema.names)
        if not is_number(table.schema.field(name).type):
            raise InputError(
                f"label column {name!r} of data.label is {table.schema.field(name).type}: must hold numbers, because "
                "data.label is a list; convert it, or name one column of classes without the brackets"
            )
    columns = [table[name].cast(pa.float32(), safe=False).to_numpy() for name in labels]
    whole, together = nested(np.stack(columns, axis=1)), ", ".join(labels)
    rest = table.drop_columns([name for name in labels if name not in keep])
    if together in rest.schema.names:
        raise InputError(f"a column is named {together!r} like the list data.label: rename it")
    return rest.append_column(together, whole), together


def with_classes(tables: Sequence[pa.Table], label: str) -> list[pa.Table]:
    """Return tables with the number of classes in the metadata of labels that have a class for each position.

    Args:
        tables: rows to partition, and perhaps a test set.
        label: label column; other labels stay as they are.
    """
    fields = [table.schema.field(label) for table in tables if label in table.schema.names]
    if len(fields) < len(tables) or not is_sequence(fields[0]) or (fields[0].metadata or {}).get(CLASSES):
        return list(tables)
    chunks = [flat(chunk) for table in tables for chunk in table[label].chunks if len(chunk)]
    metadata = class_metadata(max(2, 1 + max((pc.max(chunk).as_py() for chunk in chunks), default=0)))
    return [
        table.set_column(table.schema.get_field_index(label), field.with_metadata(metadata), table[label])
        for table, field in zip(tables, fields, strict=True)
    ]


def is_sequence(field: pa.Field) -> bool:
    """Return whether a label column has a class for each position: lists of a fixed size with whole numbers."""
    kind = field.type
    return bool(pa.types.is_fixed_size_list(kind) and pa.types.is_integer(kind.value_type))


def label_kind(schema: pa.Schema, label: str) -> LabelKind:
    """Return the kind of a table's labels."""
    field = schema.field(label)
    if is_label(field.type):
        return "class"
    if is_image(field.type):
        return "pixels"
    return "sequence" if is_sequence(field) else "numbers"
