"""A population's encoded images, decoded once."""

import io
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import partitioning
from partitioning import InputError, Population
from partitioning.common.errors import ElsewhereError
from partitioning.sources.arrays import nested
from raysim.data import decoding
from raysim.data.decoding import decode_population, drop_columns, rewritten
from raysim.data.images import ImageFormat, png
from raysim.data.sources import load
from raysim.data.tensors import decoder_of

HUB = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def _png(seed: int, height: int = 4, width: int = 6) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "PNG")
    return sink.getvalue()


def _table(images: list[bytes], *, plain: bool = False) -> pa.Table:
    column = (
        pa.array(images, pa.binary()) if plain else pa.array([{"bytes": image, "path": None} for image in images], HUB)
    )
    return pa.table({"image": column, "label": [i % 3 for i in range(len(images))]})


def _population(folder: Path, images: list[bytes], *, plain: bool = False) -> Population:
    table = _table(images, plain=plain)
    return partitioning.make(
        table, folder, scheme="iid", clients=4, test=table.slice(0, 5), test_clients=1, local_test=0.25
    )


def _decoded(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "cache" / "decoded").iterdir() if each.suffix != ".lock")


@pytest.mark.parametrize("plain", [False, True])
def test_everything_but_the_images_stays(plain: bool, tmp_path: Path) -> None:
    images = [_png(i) for i in range(30)]
    population = _population(tmp_path / "population", images, plain=plain)
    decoded = Population.open(decode_population(population))
    partitioning.verify(decoded.path)
    assert decoded.schema.field("image").type == pa.list_(pa.list_(pa.list_(pa.uint8(), 6), 4), 3)
    assert decoded.schema.names == population.schema.names
    for name in ("sizes", "test_sizes", "splits", "class_counts"):
        assert np.array_equal(getattr(decoded, name), getattr(population, name))
    assert decoded.test_slices == population.test_slices
    for before, after in [
        *((population.batch(client), decoded.batch(client)) for client in range(4)),
        (population.test_batch(0), decoded.test_batch(0)),
    ]:
        assert after.column("label").equals(before.column("label"))
        for image, pixels in zip(before.column("image").to_pylist(), after.column("image").to_pylist(), strict=True):
            data = image if plain else image["bytes"]
            assert np.array_equal(np.moveaxis(np.asarray(Image.open(io.BytesIO(data))), 2, 0), pixels)


def test_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    population = _population(tmp_path / "population", [_png(i) for i in range(12)])
    first = decode_population(population)
    monkeypatch.setattr(decoding, "rewrite", pytest.fail)
    assert decode_population(population) == first
    assert _decoded(tmp_path) == [first.name]


def test_another_process_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    population = _population(tmp_path / "population", [_png(i) for i in range(12)])
    folder = decode_population(population)
    theirs, seen = folder.rename(tmp_path / "theirs"), []

    def finish(done: int, of: int) -> None:
        seen.append((done, of))
        if done == of:
            theirs.rename(folder)

    monkeypatch.setattr(decoding, "rewrite", partial(partitioning.rewrite, progress=finish))
    decoded = decode_population(population)
    partitioning.verify(decoded)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert _decoded(tmp_path) == [folder.name]


KILLED = """
import sys, time
from partitioning import Population
from raysim.data.decoding import rewritten

def convert(batch, owner):
    if owner == "client 1":
        print("writing", flush=True)
        time.sleep(600)
    return batch

rewritten(Population.open(sys.argv[1]), "same", convert)
"""


def test_drafts_of_killed_processes_go(tmp_path: Path) -> None:
    population = _population(tmp_path / "population", [_png(i) for i in range(12)])
    for _ in range(2):
        command = [sys.executable, "-c", KILLED, str(population.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "writing\n"
            process.send_signal(signal.SIGKILL)
        (draft,) = _decoded(tmp_path)  # the second process removed the first one's
        assert draft.endswith(".draft")
    others = [draft.replace("-same", "-other"), f"{draft[:-14]}{int(draft[-14:-10], 16) ^ 1:04x}0123.draft"]
    for name in others:
        (tmp_path / "cache" / "decoded" / name).mkdir()
    folder = rewritten(population, "same", lambda batch, _: batch)
    assert _decoded(tmp_path) == sorted([*others, folder.name])  # those of other folders and machines stay


def test_a_cache_without_locks_is_written_all_the_same(tmp_path: Path) -> None:
    population = _population(tmp_path / "population", [_png(i) for i in range(12)])
    (tmp_path / "cache" / "decoded" / f".{population.digest}-same.lock").mkdir(parents=True)  # cannot be opened
    assert rewritten(population, "same", lambda batch, _: batch).is_dir()


def test_population_without_images_is_its_own_result(tmp_path: Path) -> None:
    population = partitioning.make(load("digits").train.slice(0, 60), tmp_path / "digits", scheme="iid", clients=3)
    assert decode_population(population) == population.path
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (_png(0)[:40], "cannot be decoded"),
        (_png(0, 5, 6), "has the shape (3, 5, 6), but the first image has (3, 4, 6)"),
    ],
)
def test_odd_image_is_named_and_nothing_is_left(odd: bytes, message: str, tmp_path: Path) -> None:
    images = [_png(i) for i in range(11)] + [odd]
    population = _population(tmp_path / "population", images)
    client, row = next(
        (client, row)
        for client in range(4)
        for row, image in enumerate(population.batch(client).column("image").to_pylist())
        if image["bytes"] == odd
    )
    assert (client, row) != (0, 0)  # the first image sets the shape
    with pytest.raises(InputError) as error:
        decode_population(population)
    assert f"client {client}, row {row}," in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert _decoded(tmp_path) == []


def test_odd_image_of_the_test_set_is_named(tmp_path: Path) -> None:
    table = _table([_png(i) for i in range(8)])
    test = _table([_png(0), _png(1, 9, 9)])
    population = partitioning.make(table, tmp_path / "population", scheme="iid", clients=2, test=test)
    with pytest.raises(InputError, match="test slice 0, row 1, has the shape"):
        decode_population(population)


def _file(pixels: np.ndarray) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "PNG")
    return sink.getvalue()


def _pixels(population: Population) -> list[list[int]]:
    batches = [population.batch(client) for client in range(len(population))] + [population.test_batch(0)]
    return [image for batch in batches for image in batch.column("image").to_pylist()]


@pytest.mark.parametrize(("channels", "mode"), [(None, "RGB"), (3, "RGB"), (1, "L")])
@pytest.mark.parametrize("size", [None, (3, 9), (8, 12)])
def test_encoded_images_are_resized_and_converted_as_pillow_does(
    size: tuple[int, int] | None, channels: int | None, mode: str, tmp_path: Path
) -> None:
    population = _population(tmp_path / "population", [_png(i) for i in range(8)])
    folder = decode_population(population, picture=ImageFormat(size, channels))
    expected = []
    for image in _pixels(population):
        opened = Image.open(io.BytesIO(image["bytes"])).convert(mode)  # type: ignore[call-overload]
        array = np.asarray(opened.resize((size or (4, 6))[::-1], Image.Resampling.BILINEAR) if size else opened)
        expected.append((array[None] if mode == "L" else np.moveaxis(array, 2, 0)).tolist())
    assert _pixels(Population.open(folder)) == expected
    partitioning.verify(folder)


def test_images_of_every_size_and_colour_become_alike(tmp_path: Path) -> None:
    grey = _file(np.arange(35, dtype=np.uint8).reshape(5, 7))
    population = _population(tmp_path / "population", [_png(0), grey, _png(2, 9, 5), _png(3), grey, grey])
    folder = decode_population(population, picture=ImageFormat((4, 4), 3))
    assert np.array(_pixels(Population.open(folder))).shape == (11, 3, 4, 4)


def test_a_grey_image_in_a_colour_set_is_refused(tmp_path: Path) -> None:
    grey = _file(np.zeros((4, 6), np.uint8))
    population = _population(tmp_path / "population", [_png(0), grey, _png(2), _png(3)])
    with pytest.raises(InputError, match=r"of (client|test).*set data.channels = 3, or 1") as error:
        decode_population(population)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"data\.channels"):
        decode_population(population, picture=ImageFormat((4, 4)))


def test_size_and_colour_are_refused_together(tmp_path: Path) -> None:
    grey, large = _file(np.zeros((4, 6), np.uint8)), _file(np.zeros((5, 6, 3), np.uint8))
    population = partitioning.make(_table([_png(0), grey, large]), tmp_path / "population", scheme="iid", clients=1)
    with pytest.raises(InputError, match=r"set data.image_size = \[HEIGHT, WIDTH\] and data.channels = 3, or 1$"):
        decode_population(population)
    numbers = partitioning.make(
        pa.table({"a": [1.0] * 4, "label": [0] * 4}), tmp_path / "n", scheme="iid", clients=2, seed=0
    )
    with pytest.raises(InputError, match=r"^data\.image_size and data\.channels on columns of numbers"):
        decode_population(numbers, picture=ImageFormat((2, 2), 1))


def test_each_picture_has_a_folder_of_its_own(tmp_path: Path) -> None:
    population = _population(tmp_path / "population", [_png(i) for i in range(8)])
    pictures = [
        ImageFormat(),
        ImageFormat((3, 3)),
        ImageFormat((3, 4)),
        ImageFormat((3, 3), 1),
        ImageFormat(None, 1),
        ImageFormat(None, 3),
    ]
    folders = [decode_population(population, picture=picture) for picture in pictures]
    assert len(set(folders)) == 6 and folders[0].name.endswith("-1") and folders[3].name.endswith("-1-3x3-c1")
    assert decode_population(population, ImageFormat((3, 4))) == folders[2]


@pytest.mark.parametrize(
    ("channels", "picture"), [(1, ImageFormat((5, 3))), (1, ImageFormat((2, 2), 3)), (3, ImageFormat(None, 1))]
)
def test_arrays_are_resized_and_converted_as_images_are(channels: int, picture: ImageFormat, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (12, channels, 4, 6)).astype(np.uint8)
    files = [_file(image[0] if channels == 1 else image.transpose(1, 2, 0)) for image in values]
    encoded = _population(tmp_path / "encoded", files)
    table = pa.table({"image": nested(values), "label": [i % 3 for i in range(12)]})
    arrays = partitioning.make(
        table, tmp_path / "arrays", scheme="iid", clients=4, test=table.slice(0, 5), test_clients=1, local_test=0.25
    )
    found = [_pixels(Population.open(decode_population(each, picture=picture))) for each in (encoded, arrays)]
    assert found[0] == found[1]
    floats = picture.of_arrays(values.astype(np.float32) / 255)
    assert np.abs(floats * 255 - picture.of_arrays(values)).max() <= 1  # which are rounded, twice for a colour's luma
    assert floats.dtype == np.float32


def test_a_copy_in_the_cache_is_not_for_samples_of_other_sites(tmp_path: Path) -> None:
    rows = pa.table({"a": [1.0, 2.0] * 4, "b": [0.5] * 8, "site": ["x", "y"] * 4, "label": [0, 1, 1, 0] * 2})
    whole = partitioning.make(rows, tmp_path / "p", scheme="natural", column="site", site="site")
    assert drop_columns(whole, ["b"]).is_dir()
    for sites in ((), ("x",)):
        here = Population.open(whole.path, sites=sites)
        with pytest.raises(ElsewhereError, match=f"without the site of client {len(sites)}: its samples must be read"):
            drop_columns(here, ["b"])


def test_arrays_that_are_so_already_stay(tmp_path: Path) -> None:
    population = partitioning.make(load("digits").train.slice(0, 60), tmp_path / "digits", scheme="iid", clients=3)
    assert decode_population(population, picture=ImageFormat((8, 8), 1)) == population.path
    resized = decode_population(population, picture=ImageFormat((16, 12), 3))
    assert decoder_of(Population.open(resized)).shape == (3, 16, 12)


def test_only_images_are_resized(tmp_path: Path) -> None:
    numbers = pa.table({"a": [1.0, 2.0], "label": [0, 1]})
    wide = pa.table({"a": nested(np.zeros((2, 7), np.uint8)), "label": [0, 1]})
    for name, table in {"columns of numbers": numbers, r"column 'a' of uint8 arrays of shape \(7,\)": wide}.items():
        population = partitioning.make(table, tmp_path / f"p{len(name)}", scheme="iid", clients=1)
        for key, picture in {
            "image_size and data.channels": ImageFormat((2, 2), 3),
            "channels": ImageFormat(None, 3),
        }.items():
            with pytest.raises(InputError, match=f"^data.{key} on {name}.* remove it$"):
                decode_population(population, picture=picture)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("row", [0, 1])
def test_a_fault_of_an_image_names_its_file(masked: bool, row: int, tmp_path: Path) -> None:
    images = [{"bytes": _png(i), "path": f"{i}.png"} for i in range(3)]
    mask = {"bytes": png(np.eye(4, 6, dtype=np.uint8)[None]), "path": None}
    labels = pa.array([mask] * 3, HUB) if masked else pa.array([0, 1, 0])

    def population(name: str) -> Population:
        table = pa.table({"image": pa.array(images, HUB), "label": labels})
        return partitioning.make(table, tmp_path / name, scheme="iid", clients=1)

    path = population("whole").batch(0).column("image")[row].as_py()["path"]
    images[int(path[0])]["bytes"] = b"no image"
    with pytest.raises(InputError, match=rf"column 'image' of client 0, row {row} \({path}\), cannot be decoded"):
        decode_population(population("damaged"))
