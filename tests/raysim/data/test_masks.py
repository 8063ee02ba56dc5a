"""Labels that are images: decoded, resized, counted, and read from tables and folders."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import partitioning
from partitioning import InputError, Population
from partitioning.sources.arrays import nested
from partitioning.store.verification import verify
from raysim.config.experiment import Experiment
from raysim.data.decoding import decode_population
from raysim.data.folders import ENCODED
from raysim.data.images import ImageFormat
from raysim.data.prepare import select_classes
from raysim.data.sources import load
from raysim.data.targets import mask_of
from raysim.data.tensors import decoder_of
from raysim.simulation.population import population_of

MASK = np.array([[0, 1, 2, 255], [2, 2, 1, 0]], np.uint8)


def file(values: np.ndarray, form: str = "PNG", mode: str | None = None) -> bytes:
    sink = io.BytesIO()
    image = Image.fromarray(values)
    (image if mode is None else image.convert(mode)).save(sink, form)
    return sink.getvalue()


def column(files: list[bytes]) -> pa.Array:
    return pa.array([{"bytes": each, "path": f"{i}.png"} for i, each in enumerate(files)], ENCODED)


def table(masks: pa.Array, height: int = 2, width: int = 4) -> pa.Table:
    colours = np.arange(len(masks) * height * width * 3, dtype=np.uint8).reshape(-1, height, width, 3)
    return pa.table({"image": column([file(each) for each in colours]), "mask": masks})


def decoded(rows: pa.Table, tmp_path: Path, picture: ImageFormat = ImageFormat()) -> Population:
    made = partitioning.make(rows, tmp_path / "p", scheme="iid", clients=2, label="mask", test=rows.slice(0, 1))
    return Population.open(decode_population(made, picture))


def test_masks_become_classes_of_pixels(tmp_path: Path) -> None:
    """Grey, palette and 16-bit files, arrays of wider integers: all one; 255 is none, and the largest counts."""
    palette = Image.fromarray(MASK, "L").convert("P")
    palette.putdata(MASK.flatten().tolist())
    sink = io.BytesIO()
    palette.save(sink, "PNG")
    files = column([file(MASK), sink.getvalue(), file(MASK.astype(np.uint16))])
    for name, masks in {"files": files, "arrays": nested(np.stack([MASK] * 3).astype(np.int64))}.items():
        population = decoded(table(masks), tmp_path / name)
        decode = decoder_of(population)
        assert (decode.shape, decode.labels.outputs, decode.labels.kind, decode.nbytes) == ((3, 2, 4), 3, "pixels", 104)
        for client in range(2):
            x, y = decode(population.batch(client))
            assert x.shape == (population.sizes[client], 3, 2, 4)
            assert all(np.array_equal(mask, MASK) for mask in y.numpy())
        assert decode(population.test_batch(0))[1].tolist() == [MASK.tolist()]
        assert verify(population.path) == [] and population.manifest.classes == ["mask"]
        assert decode_population(population) == population.path


def test_labels_are_resized_by_the_nearest_pixel(tmp_path: Path) -> None:
    population = decoded(table(column([file(MASK)] * 2)), tmp_path, ImageFormat((4, 8)))
    x, y = decoder_of(population)(population.batch(0))
    assert x.shape == (1, 3, 4, 8) and np.array_equal(y[0].numpy(), MASK.repeat(2, 0).repeat(2, 1))


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (column([file(MASK[:1]), file(MASK)]), "has the height and width (1, 4), but its image has (2, 4)"),
        (column([file(MASK, mode="RGB"), file(MASK)]), "has 3 channels: must have one"),
        (column([file(MASK, "JPEG"), file(MASK)]), "cannot be decoded"),
        (column([file(MASK.astype(np.uint16) * 300), file(MASK)]), "has values from 0 to 10964"),
        (nested(np.stack([MASK.astype(np.int64) - 1] * 2)), "has values from -1 to 254"),
        (column([file(np.where(MASK == 255, 255, 0).astype(np.uint8))] * 2), "has only pixels of class 0"),
    ],
)
def test_what_is_no_label_is_named(masks: pa.Array, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        decoded(table(masks), tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert "mask" in str(error.value)
    assert all(path.suffix == ".lock" for path in tmp_path.glob("cache/decoded/*"))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("2", "row 0 (0.png), has pixels of the class 2: must be from 0 to 1, or 255 for none"),
        (
            "road, car",
            "column 'mask' has the metadata classes = 'road, car': must be a number of classes, from 2 to 255",
        ),
        ("256", "has the metadata classes = '256'"),
        ("0000000050x", "has the metadata classes = '0000000050x'"),
    ],
)
def test_what_the_column_says_of_its_classes_is_held_to(classes: str, message: str, tmp_path: Path) -> None:
    rows = table(column([file(MASK)] * 2))
    rows = rows.set_column(1, rows.schema.field(1).with_metadata({"classes": classes}), rows["mask"])
    with pytest.raises(InputError) as error:
        decoded(rows, tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_masks_of_few_bits_have_their_values_and_not_their_shades(bits: int) -> None:
    values = np.arange(8).reshape(2, 4) % 2**bits
    rows = [np.unpackbits(row.astype(np.uint8)[:, None], axis=1)[:, -bits:].ravel() for row in values]
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", 4, 2, bits, 0, 0, 0, 0),
        b"IDAT": zlib.compress(b"".join(b"\0" + np.packbits(row).tobytes() for row in rows)),
        b"IEND": b"",
    }
    packed = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks.items()]
    assert np.array_equal(mask_of(b"\x89PNG\r\n\x1a\n" + b"".join(packed), "it"), values)


def test_a_table_with_two_columns_of_images(tmp_path: Path) -> None:
    rows = table(column([file(MASK)] * 4))
    pq.write_table(rows, tmp_path / "plain.parquet")
    pq.write_table(rows.append_column("city", pa.array(["a", "b", "a", "b"])), tmp_path / "own.parquet")

    def made(name: str, **partition: Any) -> Population:
        data = {"dataset": f"file:{tmp_path / name}.parquet", "label": "mask"}
        return population_of(Experiment.of({"data": data, "partition": partition}), tmp_path / name)

    assert made("own", scheme="natural", column="city").sizes.tolist() == [2, 2]
    with pytest.raises(InputError, match="scheme 'shards' divides by classes, and the label 'mask' of file:"):
        made("plain", scheme="shards", clients=2)
    assert not (tmp_path / "plain").exists()
    source = load(f"file:{tmp_path / 'own'}.parquet", label="mask", dividing=["city"])
    with pytest.raises(InputError, match=r"data\.classes with label column 'mask': must be left out"):
        select_classes(source, [1])


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("19", "19", 19),
        ("19", None, 19),
        (None, "19", 19),
        (None, None, 3),
        ("19", "7", 19),
        ("7", "19", 19),
    ],
)
def test_files_that_are_joined_have_the_largest_number_of_classes_that_one_states(
    first: str | None, second: str | None, found: int, tmp_path: Path
) -> None:
    for name, classes in (("a", first), ("b", second)):
        rows = table(nested(np.stack([MASK] * 3)))
        field = rows.schema.field("mask").with_metadata({} if classes is None else {"classes": classes})
        pq.write_table(rows.set_column(1, field, rows["mask"]), tmp_path / f"{name}.parquet")
    joined = load("file:a.parquet,b.parquet", root=str(tmp_path), label="mask").train
    assert decoder_of(decoded(joined, tmp_path)).labels.outputs == found


def test_folders_of_images_and_masks(tmp_path: Path) -> None:
    for name in ("train/images/b/1.png", "train/images/a/2.jpg", "test/images/a/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((2, 4, 3), np.uint8)).save(tmp_path / name)
        mask = (tmp_path / name.replace("images", "masks")).with_suffix(".png")
        mask.parent.mkdir(parents=True, exist_ok=True)
        mask.write_bytes(file(MASK))
    source = load(f"folder:{tmp_path}", dividing=["domain"])
    assert source.train["domain"].to_pylist() == ["a", "b"] and source.dividing == ("domain",)
    assert [each["path"] for each in source.train["label"].to_pylist()] == ["masks/a/2.png", "masks/b/1.png"]
    assert source.test is not None and source.test.num_rows == 1
    (tmp_path / "train/masks/a/2.png").unlink()
    with pytest.raises(InputError, match=r"masks/a/2.png is missing: give each image a mask"):
        load(f"folder:{tmp_path}")
