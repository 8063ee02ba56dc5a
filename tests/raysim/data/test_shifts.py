"""Domains made of any set of images."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partitioning import InputError
from partitioning.sources.arrays import nested
from raysim.data.arrays import flat
from raysim.data.catalogue import DATASETS, NamedDataSet
from raysim.data.images import pixels
from raysim.data.shifts import SHIFTS, fractured, shifted, swollen, thickened, thinned
from raysim.data.sources import load


def _images(table: pa.Table) -> npt.NDArray[np.uint8]:
    shape = []
    kind = table.schema.field("image").type
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    return np.concatenate([flat(chunk).to_numpy() for chunk in table["image"].chunks]).reshape(-1, *shape)


def _table(n: int, channels: int = 1, side: int = 12) -> pa.Table:
    """Images with a stroke each; the label says which row it was."""
    images = np.random.default_rng(0).integers(0, 60, (n, channels, side, side), dtype=np.uint8)
    images[:, :, 2:10, 4:8] = 255
    return pa.table({"image": nested(images), "label": np.arange(n)})


def _by_hand(name: str, image: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    return {"none": image, "invert": 255 - image, "contrast": np.rint(0.3 * image.astype(float) + 0.7 * 127.5)}[name]


def test_every_row_is_in_one_domain_and_changed_as_its_name_says() -> None:
    names = ["none", "invert", "contrast"]
    base = _table(11)
    train, test = shifted((base, _table(5)), "label", names, seed=1)
    assert test is not None
    assert train["domain"].to_pylist() == ["none"] * 4 + ["invert"] * 4 + ["contrast"] * 3
    assert sorted(train["label"].to_pylist()) == list(range(11))
    assert sorted(test["label"].to_pylist()) == list(range(5))
    source, made = _images(base), _images(train)
    assert made.shape == (11, 1, 12, 12)
    for place, (name, row) in enumerate(zip(train["domain"].to_pylist(), train["label"].to_pylist(), strict=True)):
        assert np.abs(made[place] - _by_hand(name, source[row]).astype(float)).max() <= 0.5


@pytest.mark.parametrize("names", [["none", "colour", "thin"], list(SHIFTS), ["swell"]])
def test_the_key_decides(names: Sequence[str]) -> None:
    base = _table(20)
    train, test = shifted((base, None), "label", names, seed=1)
    assert test is None
    assert train.equals(shifted((base, None), "label", names, seed=1)[0])
    assert not train.equals(shifted((base, None), "label", names, seed=2)[0])
    assert _images(train).shape[1] == (3 if "colour" in names else 1)


def test_colour_is_the_difference_to_a_background() -> None:
    black = pa.table({"image": nested(np.zeros((1, 1, 8, 8), np.uint8)), "label": [0]})
    white = pa.table({"image": nested(np.full((1, 1, 8, 8), 255, np.uint8)), "label": [0]})
    grounds = [_images(shifted((table, None), "label", ["colour"], seed=0)[0]) for table in (black, white)]
    assert grounds[0].std() > 30
    assert np.abs(grounds[0].astype(int) + grounds[1] - 255).max() <= 1


def test_noise_and_blur_have_their_strength() -> None:
    grey = np.full((40, 1, 20, 20), 128, np.uint8)
    table = pa.table({"image": nested(grey), "label": np.zeros(40, int)})
    noisy = _images(shifted((table, None), "label", ["noise"], seed=0)[0])
    assert noisy.std() == pytest.approx(0.2 * 255, rel=0.05)  # a little is cut at black and white
    point = np.zeros((1, 1, 40, 40), np.uint8)
    point[0, 0, :, 20] = 255
    blurred = _images(shifted((pa.table({"image": nested(point), "label": [0]}), None), "label", ["blur"], seed=0)[0])
    width = 0.05 * 40
    expected = 255 * np.exp(-((np.arange(40) - 20.0) ** 2) / (2 * width**2)) / (width * np.sqrt(2 * np.pi))
    assert np.abs(blurred[0, 0, 20] - expected).max() < 1.5


def _bar() -> npt.NDArray[np.uint8]:
    image = np.zeros((28, 28), np.uint8)
    image[4:24, 11:17] = 255  # 6 wide, 20 long
    return image


def _changed(change: Any, image: npt.NDArray[np.uint8], random: np.random.Generator) -> npt.NDArray[np.uint8]:
    made: npt.NDArray[np.uint8] = change(image[None, None], random)[0, 0]
    return made


def _ink(image: npt.NDArray[np.uint8]) -> float:
    return float(image.astype(float).sum() / 255)


def test_strokes_change_as_they_should() -> None:
    bar = _bar()
    random = np.random.default_rng(0)
    row = 14
    assert 1 <= _ink(_changed(thinned, bar, random)[row : row + 1]) <= 3  # of 6, less 0.7 of the thickness
    assert 11 <= _ink(_changed(thickened, bar, random)[row : row + 1]) <= 13  # of 6, and as much again
    assert _ink(_changed(thinned, bar, random)) < _ink(bar) < _ink(_changed(thickened, bar, random))
    swelling = _changed(swollen, bar, random)
    assert _ink(swelling) > _ink(bar) + 8
    assert (swelling[:, [0, 27]] == 0).all()
    broken = _changed(fractured, bar, random)
    assert _ink(broken) < _ink(bar) - 3
    assert ((broken <= bar) | (bar == 255)).all()


def test_a_fracture_cuts_the_stroke_through() -> None:
    gaps = [_changed(fractured, _bar(), np.random.default_rng(seed))[5:23].max(axis=1).min() for seed in range(10)]
    assert np.mean(np.asarray(gaps) < 128) > 0.8


@pytest.mark.parametrize("change", [thinned, thickened, swollen, fractured])
def test_an_image_without_ink_stays(change: Callable[..., npt.NDArray[np.uint8]]) -> None:
    blank = np.zeros((8, 8), np.uint8)
    assert (_changed(change, blank, np.random.default_rng(0)) == 0).all()


@pytest.mark.parametrize(
    ("table", "names", "message"),
    [
        (_table(4), [], "data.shifts is empty"),
        (_table(4), ["blurr"], "'blur'"),
        (_table(4), ["none", "none"], "names 'none' twice"),
        (_table(1), ["none", "blur"], "1 images for 2 domains"),
        (_table(4, channels=3), ["none", "thin"], "'thin' with images in colour"),
        (pa.table({"x": [1.0], "label": [0]}), ["none"], "there are no images to shift"),
        (pa.table({"image": nested(np.full((1, 1, 2, 2), 3.0)), "label": [0]}), ["none"], "beyond black and white"),
    ],
)
def test_refusals(table: pa.Table, names: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        shifted((table, None), "label", names, seed=0)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_of_a_data_set_by_name(tmp_path: Path) -> None:
    source = load("shifted:digits", shifts=["none", "invert"], dividing=["domain"], seed=5)
    assert source.train.num_rows == 1797
    assert source.dividing == ("domain",)
    assert source.train.schema.names == ["image", "label", "domain"]
    pq.write_table(_table(6).rename_columns(["image", "kind"]), tmp_path / "own.parquet")
    own = load("shifted:file:own.parquet", root=str(tmp_path), label="kind", shifts=["none", "noise"])
    assert own.train.schema.names == ["image", "kind"]


def test_domains_beside_those_of_other_sets() -> None:
    made = load("digits,shifted:digits", shifts=["invert", "blur"], dividing=["domain"], seed=3).train
    domains = np.asarray(made["domain"].to_pylist())
    assert {name: int((domains == name).sum()) for name in ("digits", "invert", "blur")} == {
        "digits": 1797,
        "invert": 899,
        "blur": 898,
    }
    # Of floats and bytes, so as PNG.
    images = np.stack([pixels(each["bytes"].as_py(), "image") for each in made["image"]])
    alone = load("shifted:digits", shifts=["invert", "blur"], seed=3).train
    assert (images[domains != "digits"] == _images(alone)).all()
    assert images[domains == "digits"].mean() == pytest.approx(255 - images[domains == "invert"].mean(), abs=2)
    assert load("digits, shifted:digits", shifts=["invert", "blur"], dividing=["domain"], seed=3).train.equals(made)
    with pytest.raises(InputError, match=r"data.dataset = 'digit': .*did you mean 'digits'"):
        load("digits,shifted:digit", shifts=["invert"])


def test_domains_of_two_sets_that_are_called_the_same_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would stand for the first, whose rows nobody would miss."""
    own = NamedDataSet("digits by domain", f"{__name__}:own_domains", ("domain",))
    for module in ("sources", "catalogue"):
        monkeypatch.setattr(f"raysim.data.{module}.DATASETS", {**DATASETS, "own": own})
    with pytest.raises(InputError, match="domain 'invert' twice"):
        load("own,shifted:digits", shifts=["invert"], dividing=["domain"])


def own_domains(root: Path) -> tuple[pa.Table, None]:
    """A data set with domains of its own."""
    table = load("digits").train
    return table.append_column("domain", pa.array(["invert"] * table.num_rows, pa.string())), None
