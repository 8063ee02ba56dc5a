"""Rows before they are partitioned: splits, classes, augmented copies."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from algorithms import Purpose, torch_seed
from partitioning.sources.arrays import nested
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.data.augment import AugmentationChain, ColourJitter, Crop, Flip
from raysim.data.images import pixels
from raysim.data.prepare import append_augmented, select_classes, select_split, take_rows
from raysim.data.sources import LoadedDataSet
from raysim.simulation.population import population_of

NAMES = ("crop", "flip", "colour-jitter")
STRENGTHS = {"padding": 1, "size": None, "brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "hue": 0.05}
CHANGE = AugmentationChain((Crop(1), Flip(), ColourJitter()))


def table(labels: list[Any], shape: tuple[int, ...] = (1, 2, 3), kind: type = np.uint8, seed: int = 0) -> pa.Table:
    values = np.random.default_rng(seed).integers(0, 256, (len(labels), *shape))
    scale = 255 if kind is not np.uint8 else 1
    return pa.table({"image": nested((values / scale).astype(kind)), "label": labels})


def source(train: list[Any], test: list[Any] | None) -> LoadedDataSet:
    return LoadedDataSet("own", table(train), None if test is None else table(test, seed=1), "label")


def test_a_split_chooses_the_rows() -> None:
    own = source([0, 1, 2], [2, 1])
    assert select_split(own, "train") is own
    pooled, tested = select_split(own, "all"), select_split(own, "test")
    assert own.test is not None
    assert pooled.train.to_pylist() == own.train.to_pylist() + own.test.to_pylist() and pooled.test is None
    assert tested.train.equals(own.test) and tested.test is None
    assert select_split(source([0, 1], None), "all").train.num_rows == 2
    with pytest.raises(InputError, match=r'data\.split = "test": must be "train" or "all", because own has no test'):
        select_split(source([0, 1], None), "test")


@pytest.mark.parametrize("encode", [False, True])
def test_classes_keep_their_values(encode: bool) -> None:
    words = pa.array(["ant", "dog", "cat", "dog"])
    own = source([0] * 4, [0] * 4)
    both = [part.set_column(1, "label", words.dictionary_encode() if encode else words) for part in (own.train,) * 2]
    chosen = select_classes(LoadedDataSet("own", both[0], both[1], "label"), ["dog", "cat"])
    assert chosen.test is not None
    for part in (chosen.train, chosen.test):
        assert part["label"].to_pylist() == ["dog", "cat", "dog"]
        assert part["image"].to_pylist() == [own.train["image"].to_pylist()[i] for i in (1, 2, 3)]


@pytest.mark.parametrize(("classes", "named"), [([1, 9], "9"), (["1"], "'1'")])
def test_a_class_that_is_not_there_is_refused(classes: list[int | str], named: str) -> None:
    with pytest.raises(InputError) as error:
        select_classes(source([2, 1, 5], None), classes)
    assert str(error.value) == f"data.classes has {named}: must be among the classes 1, 2, 5; name those"


def test_a_test_set_without_the_classes_is_none() -> None:
    assert select_classes(source([0, 1, 2], [2, 1]), [0]).test is None


def test_rows_of_sliced_nested_lists_are_the_right_ones() -> None:
    whole = table(list(range(15)))
    rows = take_rows(whole.slice(5), np.array([8, 0, 3]))
    assert rows.to_pylist() == [whole.to_pylist()[i] for i in (13, 5, 8)]


@pytest.mark.parametrize(("shape", "kind"), [((3, 4, 4), np.uint8), ((1, 4, 4), np.float32), ((3, 2, 5), np.float64)])
def test_copies_double_the_rows(shape: tuple[int, ...], kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    own = table(list(range(7)), shape, kind)
    doubled = append_augmented(own, "label", (), NAMES, STRENGTHS, seed=3)
    assert doubled.schema == own.schema and doubled.slice(0, 7).to_pylist() == own.to_pylist()
    assert doubled["label"].to_pylist() == [*range(7)] * 2
    monkeypatch.setattr("raysim.data.prepare.ROWS_AT_ONCE", 3)
    assert append_augmented(own, "label", (), NAMES, STRENGTHS, seed=3).to_pylist() == doubled.to_pylist()
    assert append_augmented(own, "label", (), NAMES, STRENGTHS, seed=4).to_pylist() != doubled.to_pylist()
    x = torch.tensor(np.array(own["image"].to_pylist())).float() / (255 if kind is np.uint8 else 1)
    numbers = torch.Generator().manual_seed(torch_seed(3, Purpose.AUGMENT))
    expected = CHANGE(x, torch.rand(7, CHANGE.numbers, generator=numbers))
    found = torch.tensor(np.array(doubled.slice(7)["image"].to_pylist())).float()
    if kind is np.uint8:
        expected = (expected * 255).round()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("plain", [False, True])
def test_copies_of_encoded_images_are_as_those_of_arrays(plain: bool) -> None:
    arrays = table([0, 1, 0], (3, 4, 5))
    files = []
    for image in arrays["image"].to_pylist():
        sink = io.BytesIO()
        Image.fromarray(np.array(image, np.uint8).transpose(1, 2, 0)).save(sink, "PNG")
        files.append(sink.getvalue())
    hub = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    column = pa.array(files, pa.binary()) if plain else pa.array([{"bytes": f, "path": "p"} for f in files], hub)
    images = arrays.set_column(0, "image", column)
    doubled = append_augmented(images, "label", (), NAMES, STRENGTHS, seed=3)
    assert doubled.schema == images.schema and doubled.slice(0, 3).equals(images)
    copies = doubled.slice(3)["image"].to_pylist()
    made = [pixels(each if plain else each["bytes"], "here").tolist() for each in copies]
    assert made == append_augmented(arrays, "label", (), NAMES, STRENGTHS, seed=3).slice(3)["image"].to_pylist()


def test_copies_are_of_images() -> None:
    numbers = pa.table({"a": [1.0, 2.0], "b": [1, 2], "label": [0, 1]})
    for wrong in (numbers, table([0, 1], (4,)), table([0, 1], (2, 4, 4))):
        with pytest.raises(InputError, match=r'data\.augment with "append" on .* must be on images'):
            append_augmented(wrong, "label", (), NAMES, STRENGTHS, seed=0)


def test_copies_of_what_is_no_pixel_or_too_small_are_refused(tmp_path: Path) -> None:
    standardised = table([0, 1], (1, 4, 4), np.float32)
    values = np.array(standardised["image"].to_pylist(), np.float32) * 3 - 1
    standardised = standardised.set_column(0, "image", nested(values))
    with pytest.raises(
        InputError, match=r"colour-jitter\" on rows 0 to 1 of column 'image' with values of -.* \[0, 1\]"
    ):
        append_augmented(standardised, "label", (), NAMES, STRENGTHS, seed=0)
    assert append_augmented(standardised, "label", (), ("crop", "flip"), STRENGTHS, seed=0).num_rows == 4
    with pytest.raises(InputError, match=r"data\.crop_padding = 4 on images of 4x4: must be below the smaller side"):
        append_augmented(standardised, "label", (), ("crop",), {**STRENGTHS, "padding": 4}, seed=0)
    broken = pa.table({"image": pa.array([{"bytes": b"x", "path": "cat/1.png"}]), "label": [0]})
    with pytest.raises(InputError, match=r"the data set's row 0 \(cat/1.png\), cannot be decoded"):
        append_augmented(broken, "label", (), NAMES, STRENGTHS, seed=0)


def made(folder: Path, data: dict[str, Any], seed: int = 0) -> Any:
    data = {"dataset": "digits", **data}
    experiment = Experiment.of({"seed": seed, "data": data, "partition": {"clients": 3}})
    return population_of(experiment, folder)


def test_a_population_of_some_classes(tmp_path: Path) -> None:
    population = made(tmp_path / "p", {"classes": [3, 8], "test": 0.2})
    assert population.manifest.classes == [3, 8]
    assert int(population.sizes.sum()) + sum(population.test_slices) == 183 + 174


def test_a_population_with_copies(tmp_path: Path) -> None:
    flips = {"augment": ["append", "flip"], "test": 0.2}
    population, again = made(tmp_path / "p", flips), made(tmp_path / "q", flips)
    assert int(population.sizes.sum()) == 2 * (1797 - 359) and sum(population.test_slices) == 359
    assert population.digest == again.digest


def test_a_split_of_a_set_with_a_test_set(tmp_path: Path, real: Callable[[str], Path]) -> None:
    real("MNIST")
    root = str(real("MNIST").parent)
    found = {}
    for split in ("train", "test", "all"):
        keys = {"dataset": "mnist", "root": root, "classes": [7], "split": split}
        population = made(tmp_path / split, keys)
        found[split] = int(population.sizes.sum()), sum(population.test_slices)
    assert found == {"train": (6265, 1028), "test": (1028, 0), "all": (6265 + 1028, 0)}
