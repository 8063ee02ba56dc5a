"""Hostile data files, drawn: a sound file of every form that a reader knows, and damage to its bytes or its table."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
from PIL import Image
from scipy.io import savemat

Rng = np.random.Generator

ROWS = 120
CLASSES = 4
SIDE = 8


@dataclass(frozen=True)
class Form:
    """A form of data that a reader knows.

    Args:
        name: name of the form.
        write: function that writes a sound file, or a folder of them, and returns its path.
        commands: commands that read it: arguments, with {path} for the file and {root} for its folder.
    """

    name: str
    write: Callable[[Path], Path]
    commands: tuple[str, ...]


MAKE = "partitioning make {path} --out made --scheme iid --clients 3"
INSPECT, VERIFY = "partitioning inspect made", "partitioning verify made"
OWN = "raysim export file:{path} exported.parquet"
RUN = "raysim run experiment.toml --inline --out ran --set data.dataset=file:{path}"
FOLDER = "raysim export folder:{path} exported.parquet"
RUN_FOLDER = "raysim run experiment.toml --inline --out ran --set data.dataset=folder:{path}"


def numbers() -> pa.Table:
    """Return a sound table of numbers."""
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {f"x{place}": rng.normal(size=ROWS).astype(np.float32) for place in range(3)}
    return pa.table({**columns, "n": rng.integers(9, size=ROWS), "label": np.arange(ROWS) % CLASSES})


def picture(side: int = SIDE, mode: str = "L", form: str = "PNG", shade: int = 90) -> bytes:
    """Return a small sound picture."""
    with io.BytesIO() as file:
        Image.new(mode, (side, side), shade if mode == "L" else (shade, 20, 30)).save(file, form)
        return file.getvalue()


def pictures(content: bytes | None = None, masks: bool = False, count: int = 24) -> pa.Table:
    """Return a table of encoded pictures; `content` stands for the last one."""
    each = [picture(shade=shade) for shade in range(count)]
    shown = [*each[:-1], content or each[-1]]
    rows: dict[str, Any] = {"image": pa.array([{"bytes": one, "path": None} for one in shown], ENCODED)}
    return pa.table({**rows, "label": each if masks else [place % CLASSES for place in range(count)]})


ENCODED = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def _parquet(table: pa.Table, folder: Path, name: str = "data.parquet", **options: Any) -> Path:
    pq.write_table(table, folder / name, **options)
    return folder / name


def _stream(table: pa.Table, folder: Path) -> Path:
    with pa.ipc.new_stream(folder / "data.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return folder / "data.arrow"


def _feather(table: pa.Table, folder: Path) -> Path:
    feather.write_feather(table, str(folder / "data.feather"), compression="zstd")
    return folder / "data.feather"


def _delimited(table: pa.Table, folder: Path, name: str = "data.csv") -> Path:
    csv.write_csv(table, folder / name, csv.WriteOptions(delimiter="\t" if name.endswith("tsv") else ","))
    return folder / name


def _npz(table: pa.Table, folder: Path) -> Path:
    arrays = {name: table[name].to_numpy() for name in table.column_names}
    np.savez_compressed(folder / "data.npz", **arrays, wide=np.zeros((len(table), 3, 2), ">f4", order="F"))
    return folder / "data.npz"


def _images(folder: Path) -> Path:
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        for shade in range(8):
            kind = ("PNG", "JPEG", "WEBP")[shade % 3]
            (folder / "images" / name / f"{shade}.{kind.lower()}").write_bytes(picture(form=kind, mode="RGB"))
    return folder / "images"


def _masks(folder: Path) -> Path:
    for kind in ("images", "masks"):
        (folder / "masked" / kind).mkdir(parents=True)
        for shade in range(8):
            (folder / "masked" / kind / f"{shade}.png").write_bytes(picture(shade=shade % CLASSES))
    return folder / "masked"


def _idx(folder: Path) -> Path:
    place = folder / "MNIST" / "raw"
    place.mkdir(parents=True)
    for part, count in (("train", 60), ("t10k", 20)):
        images = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + bytes(count * 784)
        labels = struct.pack(">4B1I", 0, 0, 8, 1, count) + bytes(number % 10 for number in range(count))
        for name, content in (("images-idx3", images), ("labels-idx1", labels)):
            (place / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content, 1))
    return place


def _usps(folder: Path) -> Path:
    line = " ".join(f"{place}:{-1 + place / 200:.2f}" for place in range(1, 257))
    for name in ("usps.bz2", "usps.t.bz2"):
        (folder / name).write_bytes(bz2.compress("".join(f"{1 + row % 10} {line}\n" for row in range(40)).encode()))
    return folder / "usps.bz2"


def _svhn(folder: Path) -> Path:
    for part in ("train", "test"):
        values = {"X": np.zeros((32, 32, 3, 30), np.uint8), "y": 1 + np.arange(30).reshape(-1, 1) % 10}
        savemat(folder / f"{part}_32x32.mat", values, do_compression=True)
    return folder / "train_32x32.mat"


def _spoken(folder: Path) -> Path:
    speech = "To be, or not to be: that is the question.\n" * 4
    (folder / "shakespeare.txt").write_text("\n\n".join(f"{who}:\n{speech}" for who in ("HAMLET", "OPHELIA") * 3))
    return folder / "shakespeare.txt"


def _covertype(folder: Path) -> Path:
    rows = "\n".join(",".join(["3"] * 54 + [str(1 + row % 7)]) for row in range(60))
    (folder / "covtype.data.gz").write_bytes(gzip.compress(f"{rows}\n".encode()))
    return folder / "covtype.data.gz"


def _eicu(folder: Path) -> Path:
    rows = "\n".join(f"{row % 2},{int(row % 20 == 0)},{row / 7:.3f}" for row in range(400))
    (folder / "eicu.csv").write_text(f"hospital,label,score\n{rows}\n")
    return folder / "eicu.csv"


def _abide(folder: Path) -> Path:
    place = folder / "abide"
    place.mkdir()
    who = "\n".join(f"s{row},NYU,{1 + row % 2}" for row in range(4))
    (place / "Phenotypic_V1_0b_preprocessed1.csv").write_text(f"FILE_ID,SITE_ID,DX_GROUP\n{who}\n")
    series = np.random.default_rng(1).normal(size=(40, 5))
    for row in range(4):
        np.savetxt(place / f"s{row}_rois_ho.1D", series + row, header="regions")
    return place


def _set(name: str) -> tuple[str, ...]:
    run = f"raysim run experiment.toml --inline --out ran --set data.dataset={name} --set data.root={{root}}"
    return f"raysim export {name} exported.parquet --root {{root}}", run


FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (
        Form("parquet", lambda folder: _parquet(numbers(), folder), (MAKE, OWN, RUN)),
        Form("arrow", lambda folder: _stream(numbers(), folder), (MAKE,)),
        Form("feather", lambda folder: _feather(numbers(), folder), (MAKE,)),
        Form("csv", lambda folder: _delimited(numbers(), folder), (MAKE,)),
        Form("tsv", lambda folder: _delimited(numbers(), folder, "data.tsv"), (MAKE,)),
        Form("npz", lambda folder: _npz(numbers(), folder), (MAKE,)),
        Form("pictures", lambda folder: _parquet(pictures(), folder), (MAKE, OWN, RUN)),
        Form("masks", lambda folder: _parquet(pictures(masks=True), folder), (MAKE, OWN, RUN)),
        Form("folder", _images, (MAKE, FOLDER, RUN_FOLDER)),
        Form("folder of masks", _masks, (FOLDER, RUN_FOLDER)),
        Form("mnist", _idx, _set("mnist")),
        Form("usps", _usps, _set("usps")),
        Form("svhn", _svhn, _set("svhn")),
        Form("shakespeare", _spoken, _set("shakespeare")),
        Form("covertype", _covertype, _set("covertype")),
        Form("eicu", _eicu, _set("eicu")),
        Form("abide", _abide, _set("abide")),
    )
}


def file_of(path: Path, rng: Rng) -> Path:
    """Return the file itself, or one drawn from a folder."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    return files[int(rng.integers(len(files)))]


def flip(path: Path, rng: Rng) -> str:
    """Flip bits anywhere, or only near the ends, where formats keep their headers and footers."""
    content = bytearray(path.read_bytes())
    near = min(len(content), int(rng.choice([64, 1024, len(content)])))
    first = 0 if rng.random() < 0.5 else len(content) - near
    for place in first + rng.integers(near, size=int(rng.integers(1, 9))):
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    return f"bits of {near} bytes from {first}"


def number(path: Path, rng: Rng) -> str:
    """Write an extreme number over some bytes, as a header that lies has it."""
    content = bytearray(path.read_bytes())
    places = min(len(content), int(rng.choice([64, len(content)])))
    place, width = int(rng.integers(places)), int(rng.choice([1, 2, 4, 8]))
    place = place if rng.random() < 0.5 else max(0, len(content) - 1 - place)
    value = int(rng.choice([0, 1, 127, 128, 255])) if width == 1 else int(rng.choice([0, 2**15, 2**31 - 1, 2**31]))
    value = min(value, 256**width - 1) if rng.random() < 0.7 else 256**width - 1
    content[place : place + width] = value.to_bytes(width, str(rng.choice(["little", "big"])))
    path.write_bytes(content)
    return f"{value} at {place}"


def truncate(path: Path, rng: Rng) -> str:
    """Cut the end off."""
    length = int(rng.integers(path.stat().st_size + 1)) if rng.random() < 0.8 else 0
    os.truncate(path, length)
    return f"cut to {length}"


def extend(path: Path, rng: Rng) -> str:
    """Append bytes, or a hole of a hundred gigabytes."""
    if rng.random() < 0.3:
        os.truncate(path, 10**11)
        return "a hole of 100 GB at its end"
    with path.open("ab") as file:
        file.write(rng.bytes(int(rng.integers(1, 9000))))
    return "bytes at its end"


def overwrite(path: Path, rng: Rng) -> str:
    """Write zeros, noise, or text of another form over some bytes."""
    content = path.read_bytes()
    start = int(rng.integers(len(content)))
    length = int(rng.integers(1, 1 + len(content) - start))
    own = (bytes(length), rng.bytes(length), b"PAR1", b"\xff" * length, b"\n" * length, b'"', b"\0", b"ARROW1", b"PK")
    path.write_bytes(content[:start] + own[int(rng.integers(len(own)))] + content[start + length :])
    return f"{length} bytes from {start}"


def other(path: Path, rng: Rng) -> str:
    """Put a file of another form there."""
    png, empty, text = picture(), b"", b"\xff\xfea,b\n1,2\n"
    bodies = (png, empty, text, b"{}" * 99, gzip.compress(png), picture(form="GIF"), picture(form="TIFF"), b"\x93NUMPY")
    chosen = int(rng.integers(len(bodies)))
    path.write_bytes(bodies[chosen])
    return f"a file of another form ({chosen})"


def no_file(path: Path, rng: Rng) -> str:
    """Put something there that is no regular file."""
    path.unlink()
    kind = str(rng.choice(["folder", "pipe", "socket", "loop", "nowhere", "endless", "zero", "full"]))
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            here = os.open(".", os.O_RDONLY)
            os.chdir(path.parent)  # a socket's path is short
            try:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(path.name)
            finally:
                os.chdir(here)
                os.close(here)
        case "loop":
            path.symlink_to(path)
        case "nowhere":
            path.symlink_to(path.with_name("nowhere"))
        case _:
            path.symlink_to({"endless": "/dev/urandom", "zero": "/dev/zero", "full": "/dev/full"}[kind])
    return kind


BYTES: Mapping[str, Callable[[Path, Rng], str]] = {
    "bits flipped": flip,
    "extreme numbers": number,
    "truncated": truncate,
    "extended": extend,
    "overwritten": overwrite,
    "of another form": other,
    "no regular file": no_file,
}
