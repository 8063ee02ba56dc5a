"""Tables that the tests partition."""

import numpy as np
import pyarrow as pa
import pytest

LABELS = np.random.default_rng(3).choice(["ant", "bee", "cat"], p=[0.5, 0.3, 0.2], size=200)


def rich_table() -> pa.Table:
    """200 rows of every form of column that users bring; row numbers identify the samples."""
    pixels = np.random.default_rng(1).integers(0, 255, 200 * 12).astype("uint8")
    image = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(pa.array(pixels), 4), 3)
    tensor = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2, 3]),
        pa.FixedSizeListArray.from_arrays(pa.array(np.arange(1200, dtype="float32")), 6),
    )
    encoded = pa.StructArray.from_arrays(
        [pa.array([bytes([row]) * (row % 7) for row in range(200)]), pa.nulls(200, pa.string())],
        names=["bytes", "path"],
    )
    columns = {
        "image": image,
        "tensor": tensor,
        "encoded": encoded,
        "kind": pa.array(LABELS).dictionary_encode(),
        "label": pa.array(LABELS),
        "row": pa.array(np.arange(200)),
    }
    return pa.table(columns).replace_schema_metadata({"origin": "tests"})


@pytest.fixture
def table() -> pa.Table:
    return rich_table()
