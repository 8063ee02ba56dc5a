"""Record batches as tensors."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from partitioning import InputError
from partitioning.sources.arrays import nested
from raysim.data.sources import load
from raysim.data.tensors import BatchDecoder


def _batch(columns: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_digits_are_taken_as_they_are() -> None:
    table = load("digits").train
    decoder = BatchDecoder(table.schema, "label", range(10))
    assert (decoder.shape, decoder.labels.outputs) == ((1, 8, 8), 10)
    x, y = decoder(table.to_batches()[0])
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert x.shape == (1797, 1, 8, 8)
    assert x[5].tolist() == table["image"][5].as_py()
    assert y.tolist() == table["label"].to_pylist()


@settings(deadline=None)  # a busy machine is no failure
@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.int16, np.float32, np.float64]),
        arrays.array_shapes(min_dims=2, max_dims=4, max_side=4),
        elements=st.integers(0, 255),
    )
)
def test_arrays_of_any_shape(values: np.ndarray[Any, Any]) -> None:
    batch = _batch({"x": nested(values), "label": np.zeros(len(values), dtype=np.int64)})
    x, _ = BatchDecoder(batch.schema, "label", [0])(batch)
    scale = 255 if values.dtype == np.uint8 else 1
    assert np.array_equal(x.numpy(), values.astype(np.float32) / np.float32(scale))


def test_fixed_shape_tensors() -> None:
    values = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    batch = _batch({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(values), "label": [0, 0]})
    decoder = BatchDecoder(batch.schema, "label", [0])
    assert decoder.shape == (2, 3)
    assert decoder(batch)[0].tolist() == values.tolist()
    assert decoder(batch.slice(1))[0].tolist() == values[1:].tolist()


def test_numbers_keep_the_order_of_columns() -> None:
    batch = _batch({"b": [0.5, 1.5], "label": [7, 3], "a": pa.array([200, 3], pa.uint8()), "c": [True, False]})
    decoder = BatchDecoder(batch.schema, "label", [3, 5, 7])
    assert (decoder.shape, decoder.labels.outputs) == ((3,), 3)
    x, y = decoder(batch)
    assert x.tolist() == [[0.5, 200, 1], [1.5, 3, 0]]
    assert y.tolist() == [2, 0]


def test_slices_and_no_rows() -> None:
    table = load("digits").train
    decoder = BatchDecoder(table.schema, "label", range(10))
    batch = table.to_batches()[0]
    whole, labels = decoder(batch)
    x, y = decoder(batch.slice(10, 5))
    assert torch.equal(x, whole[10:15])
    assert torch.equal(y, labels[10:15])
    assert decoder(batch.slice(0, 0))[0].shape == (0, 1, 8, 8)


@pytest.mark.parametrize("kind", [pa.float32(), pa.uint8(), pa.int64()])
def test_tensors_own_their_memory(kind: pa.DataType, tmp_path: Path) -> None:
    columns = {"x": pa.array([[1, 2]], pa.list_(kind, 2)), "label": pa.array([0], pa.int64())}
    with (
        pa.OSFile(str(tmp_path / "shard.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, _batch(columns).schema) as writer,
    ):
        writer.write(_batch(columns))
    mapped = pa.ipc.open_file(pa.memory_map(str(tmp_path / "shard.arrow"))).get_batch(0)
    x, y = BatchDecoder(mapped.schema, "label", [0])(mapped)
    x.add_(1)
    y.add_(1)
    assert mapped.to_pydict() == {"x": [[1, 2]], "label": [0]}


@pytest.mark.parametrize("label", [-1, 4, 9])
def test_label_outside_the_classes(label: int) -> None:
    batch = _batch({"x": [1.0, 2.0], "label": [3, label]})
    with pytest.raises(InputError, match=f"label {label} is not one of the classes 3, 5"):
        BatchDecoder(batch.schema, "label", [5, 3])(batch)


@pytest.mark.parametrize(("kind", "largest"), [(pa.int64(), 2**63 - 1), (pa.uint64(), 2**64 - 1)])
@pytest.mark.parametrize("small", [True, False])
def test_large_labels_stay_apart(kind: pa.DataType, largest: int, small: bool) -> None:
    classes = [2**53, 2**53 + 1, 2**53 + 2] if small else [3, largest - 1, largest]
    batch = _batch({"x": [1.0, 2.0, 3.0], "label": pa.array(classes[::-1], kind)})
    assert BatchDecoder(batch.schema, "label", classes)(batch)[1].tolist() == [2, 1, 0]


@pytest.mark.parametrize("encode", [False, True])
def test_labels_may_be_words(encode: bool) -> None:
    words = pa.array(["dog", "ant", "dog", "cat"])
    batch = _batch({"x": [1.0, 2.0, 3.0, 4.0], "label": words.dictionary_encode() if encode else words})
    assert BatchDecoder(batch.schema, "label", ["cat", "ant", "dog"])(batch)[1].tolist() == [2, 0, 2, 1]


def test_schemas_that_cannot_be_decoded() -> None:
    with pytest.raises(InputError, match="'label'"):
        BatchDecoder(pa.schema({"x": pa.float32(), "label": pa.int64()}), "lable", [0])
    with pytest.raises(InputError, match="'label' is list<item: double>, but must hold whole numbers, strings"):
        BatchDecoder(pa.schema({"x": pa.float32(), "label": pa.list_(pa.float64())}), "label", [0])
    with pytest.raises(InputError, match="encoded images"):
        BatchDecoder(pa.schema({"x": pa.binary(), "label": pa.int64()}), "label", [0])
