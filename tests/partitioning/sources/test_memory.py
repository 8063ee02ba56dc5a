"""Data in memory: each form gives the table that one would write by hand, and a refusal shows no values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

import partitioning
from partitioning import InputError
from partitioning.sources.memory import tables_of

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 5), np.uint8)
LABELS = np.array([0, 1, 0, 1, 0, 1])
NAMES = ["ant", "bee"] * 3
NUMBERS = {"a": [1.5, 2.5, 3.5], "b": [1, 2, 3], "label": [0, 1, 0]}


class Pictures(torch.utils.data.Dataset[Any]):
    """A data set of a user's own."""

    def __init__(self, item: Callable[[int], Any]) -> None:
        self.item = item

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, place: int) -> Any:
        return self.item(place)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(zip(PIXELS, LABELS, strict=True))


def pixels_of(table: pa.Table, column: str = "x") -> np.ndarray:
    return np.array(table[column].to_pylist())


GREY = {
    "arrays": (PIXELS, LABELS),
    "labels in a list": (PIXELS, LABELS.tolist()),
    "channels last": (PIXELS[..., None], LABELS),
    "channels first": (PIXELS[:, None], LABELS),
    "Fortran order": (np.asfortranarray(PIXELS), LABELS),
    "tensors": (torch.tensor(PIXELS), torch.tensor(LABELS)),
    "tensors that are trained": (torch.tensor(PIXELS), torch.tensor(LABELS)),
    "a tensor data set": TensorDataset(torch.tensor(PIXELS), torch.tensor(LABELS)),
    "pictures": Pictures(lambda place: (Image.fromarray(PIXELS[place]), int(LABELS[place]))),
    "a subset": Subset(Pictures(lambda place: (PIXELS[place], LABELS[place])), range(6)),
    "dictionaries": Pictures(lambda place: {"x": torch.tensor(PIXELS[place])[None], "label": LABELS[place]}),
    "columns": {"x": PIXELS, "label": LABELS},
    "labels of a frame": (PIXELS, pd.DataFrame({"y": LABELS}, index=range(6, 12))["y"]),
    "labels of a hub's data set": (PIXELS, datasets.Dataset.from_dict({"y": LABELS})["y"]),
    "a hub's arrays": datasets.Dataset.from_dict(
        {"x": PIXELS, "label": LABELS},
        features=datasets.Features(
            {"x": datasets.Array2D((4, 5), "uint8"), "label": datasets.ClassLabel(names=["a", "b"])}
        ),
    ),
}


@pytest.mark.parametrize("name", GREY)
def test_grey_images_of_every_form_are_the_same_rows(name: str) -> None:
    train, test = tables_of(GREY[name], "label")
    assert test is None and train.schema.names == ["x", "label"]
    np.testing.assert_array_equal(pixels_of(train), PIXELS[:, None])
    assert train["label"].to_pylist() == LABELS.tolist()


def test_colour_images_get_their_channels_first() -> None:
    colour = np.random.default_rng(1).integers(0, 256, (6, 4, 5, 3), np.uint8)
    for given in (colour, colour.transpose(0, 3, 1, 2)):
        np.testing.assert_array_equal(pixels_of(tables_of((given, LABELS), "label")[0]), colour.transpose(0, 3, 1, 2))
    table, _ = tables_of((colour / 255, LABELS), "label")
    np.testing.assert_array_equal(pixels_of(table), colour.transpose(0, 3, 1, 2) / 255)


def test_floats_without_channels_and_masks_keep_their_shape() -> None:
    table, _ = tables_of((PIXELS / 255, PIXELS), "mask")
    assert pixels_of(table).shape == pixels_of(table, "mask").shape == (6, 4, 5)


FRAMES = {
    "pandas": pd.DataFrame(NUMBERS),
    "pandas with an index": pd.DataFrame(NUMBERS, index=[7, 3, 5]),
    "features of pandas": (pd.DataFrame(NUMBERS)[["a", "b"]], NUMBERS["label"]),
    "polars": pl.DataFrame(NUMBERS),
    "pyarrow": pa.table(NUMBERS),
    "a record batch": pa.record_batch(NUMBERS),
    "a hub's data set": datasets.Dataset.from_dict(NUMBERS),
    "a hub's rows": datasets.Dataset.from_dict(NUMBERS).select([2, 1, 0]).select([2, 1, 0]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_every_kind_are_the_same_rows(name: str) -> None:
    assert tables_of(FRAMES[name], "label")[0].to_pydict() == NUMBERS


def test_texts_of_any_length_are_kept_whole() -> None:
    data = Pictures(lambda place: {"image": b"\x89PNG" + bytes(place), "label": "x" * place})
    table, _ = tables_of(data, "label")
    assert table["image"].to_pylist() == [b"\x89PNG" + bytes(place) for place in range(6)]
    assert table["label"].to_pylist() == ["x" * place for place in range(6)]
    assert tables_of({"image": [b"a\0", b""], "label": [1, 2]}, "label")[0]["image"].to_pylist() == [b"a\0", b""]


def test_string_views_can_be_selected_afterwards() -> None:
    class Views:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"label": pa.array(["a", "b"], pa.string_view())}).__arrow_c_stream__()

    assert tables_of(Views(), "label")[0].take([1]).to_pydict() == {"label": ["b"]}


def test_lists_become_arrays_only_if_they_have_one_length() -> None:
    frame = pl.DataFrame({"one": [[1, 2], [3, 4]], "many": [[1], [2, 3]], "label": [0, 1]})
    schema = tables_of(frame, "label")[0].schema
    assert schema.field("one").type == pa.list_(pa.int64(), 2)
    assert schema.field("many").type == pa.large_list(pa.int64())


@pytest.mark.parametrize("test", ["test", "validation"])
def test_a_mapping_has_a_test_set(test: str) -> None:
    for data in (
        {"train": (PIXELS, LABELS), test: (PIXELS[:2], LABELS[:2])},
        datasets.DatasetDict({"train": FRAMES["a hub's data set"], test: FRAMES["a hub's data set"].select([0, 1])}),
    ):
        train, tested = tables_of(data, "label")
        assert tested is not None and train.num_rows > tested.num_rows == 2 and train.schema == tested.schema


REFUSED: dict[str, tuple[Any, str]] = {
    "an array alone": (PIXELS, "numpy.ndarray of shape (6, 4, 5): must be a pair (X, y)"),
    "a number": (3, "the data are int"),
    "a text": ("digits", "the data are str"),
    "a loader": (DataLoader(Pictures(lambda place: (PIXELS[place], 0))), "DataLoader: must be"),
    "a stream": (Stream(), "Stream: must be"),
    "a hub's stream": (FRAMES["a hub's data set"].to_iterable_dataset(), "IterableDataset: must be"),
    "a lazy frame": (pl.LazyFrame(NUMBERS), "LazyFrame: must be"),
    "pairs": (((PIXELS, LABELS), (PIXELS, LABELS)), "the data are tuple"),
    "a series": (pd.Series(NUMBERS["a"]), "Series of shape (3,), which is no table"),
    "fewer labels": ((PIXELS, LABELS[:2]), "different numbers of rows ('x' 6, 'label' 2)"),
    "ragged lists": (([[1.5], [1.5, 2.5]], [0, 1]), "column 'x' is list, which is no array"),
    "objects": ((np.array([[1.5], "a"], object), [0, 1]), "column 'x' is numpy.ndarray of shape (2,)"),
    "complex numbers": ((PIXELS * 1j, LABELS), "column 'x' is of type complex128"),
    "a scalar": ((np.array(1.5), LABELS), "column 'x' has the shape []"),
    "the label twice": ((pd.DataFrame(NUMBERS), LABELS[:3]), "X has a column 'label'"),
    "mixed values": (pd.DataFrame({"a": [1.5, "x", PIXELS]}), "column 'a' of the frame has the type object"),
    "a name twice": (pd.DataFrame([[1.5, 2.5]], columns=["a", "a"]), "several columns named 'a'"),
    "three tensors": (TensorDataset(*[torch.tensor(LABELS)] * 3), "is tuple: must be a pair (x, y)"),
    "items of three": (Pictures(lambda place: (PIXELS[place], 1, 2)), "is tuple: must be a pair (x, y)"),
    "images of many sizes": (
        Pictures(lambda place: (PIXELS[0, : 1 + place % 2], 0)),
        "(2, 5) and type uint8 in item 1",
    ),
    "other columns": (Pictures(lambda place: {f"x{place}": 1.5}), "item 1 of the data set has 'x1', and item 0 'x0'"),
    "no item": (Subset(Pictures(lambda place: (PIXELS[place], 0)), []), "without an item"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_has_types_and_shapes_and_no_values(name: str) -> None:
    data, expected = REFUSED[name]
    with pytest.raises(InputError) as error:
        tables_of(data, "label")
    line = str(error.value)
    assert expected in line and "\n" not in line and len(line) < 400
    assert not any(sign in line for sign in ("1.5", "2.5", str(PIXELS[0, 0, 0]) + ",", "array(", "tensor("))


def test_make_takes_data_in_memory_and_their_test_set(tmp_path: Path) -> None:
    pair, tested = (PIXELS, NAMES), (PIXELS[:2], NAMES[:2])
    given = {"scheme": "iid", "clients": 2, "label": "insect"}
    made = partitioning.make(pair, tmp_path / "a", test=tested, **given)
    partitioning.make({"train": pair, "test": tested}, tmp_path / "b", **given)
    assert made.manifest.classes == ["ant", "bee"] and made.manifest.counts.test_rows == 2
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    domains = partitioning.make([pair], tmp_path / "c", **given)
    assert domains.manifest.counts.samples == 6
    halves = partitioning.make([pair, tested], tmp_path / "e", scheme="domains", label="insect")
    assert halves.domains is not None and halves.domains.to_pylist() == ["table 1", "table 2"]
    alone = partitioning.make([{"train": pair, "test": tested}], tmp_path / "f", **given)
    assert alone.manifest == made.manifest
    with pytest.raises(InputError, match="several sources are given, and one has a test set of its own"):
        partitioning.make([{"train": pair, "test": tested}, pair], tmp_path / "d", scheme="domains", label="insect")
    with pytest.raises(InputError, match="test is given, and the source has a test set of its own"):
        partitioning.make({"train": pair, "test": tested}, tmp_path / "d", test=tested, **given)
