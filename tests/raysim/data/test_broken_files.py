"""Data sets' files that are wrong in some way, in the true layout: each is refused in one line that names it."""

import bz2
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from scipy.io import savemat

from partitioning import InputError
from raysim.data.sets.tabular import COVERTYPE
from raysim.data.sources import load

Write: TypeAlias = Callable[[Path], object]

LONG = "What light through yonder window breaks? It is the east, and Juliet is the sun, my lords."


def _files(contents: dict[str, bytes | str]) -> Write:
    def write(root: Path) -> None:
        for name, content in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def _parquet(name: str, **columns: Any) -> Write:
    return lambda root: pq.write_table(pa.table(columns), root / name)


def _png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (32, 32)).save(file, "PNG")
    return file.getvalue()


def _covertype(**changed: Any) -> Write:
    return _parquet("covertype.parquet", **({name: [1, 2] for name in COVERTYPE} | {"Cover_Type": [1, 2]} | changed))


def _eicu(**changed: Any) -> Write:
    return _parquet("eicu.parquet", **({"hospital": [7] * 101, "age": [1.0] * 101, "label": [0] * 101} | changed))


def _cityscapes(mask: bytes) -> Write:
    parts = {f"leftImg8bit/{part}/ulm/a_leftImg8bit.png": _png() for part in ("train", "val")}
    return _files(
        parts | dict.fromkeys([f"gtFine/{part}/ulm/a_gtFine_labelIds.png" for part in ("train", "val")], mask)
    )


PHENOTYPES = "abide/Phenotypic_V1_0b_preprocessed1.csv"
FRAMES = "\n".join(f"{i % 7} {i % 5} {i % 3}" for i in range(33))
SUBJECTS = "FILE_ID,SITE_ID,DX_GROUP\n0013,NYU,1\nb,UM_1,2\n"


def _abide(subjects: str = SUBJECTS, frames: str = FRAMES, **others: str) -> Write:
    series = {f"abide/{name}_rois_ho.1D": FRAMES for name in ("0013",)} | {"abide/b_rois_ho.1D": frames}
    return _files(
        {PHENOTYPES: subjects, **series, **{f"abide/{name}/b_rois_ho.1D": text for name, text in others.items()}}
    )


def _svhn(labels: list[Any], shape: tuple[int, ...] = (32, 32, 3)) -> Write:
    def write(root: Path) -> None:
        for part in ("train", "test"):
            savemat(root / f"{part}_32x32.mat", {"X": np.zeros((*shape, len(labels)), np.uint8), "y": labels})

    return write


SVHN = ("train_32x32.mat", "test_32x32.mat")


def _usps(label: object = 1, value: str = "0.5", first: int = 1) -> Write:
    line = f"{label} " + " ".join(f"{place}:{value}" for place in range(first, first + 256))
    return _files(dict.fromkeys(("usps.bz2", "usps.t.bz2"), bz2.compress(line.encode())))


def _mnist_m(lines: bytes | str) -> Write:
    parts = ("train", "test")
    images = {f"mnist_m/mnist_m_{part}/a.png": _png() for part in parts}
    return _files({**images, **{f"mnist_m/mnist_m_{part}_labels.txt": lines for part in parts}})


def _morpho(images: bytes | None = None, label: int = 3) -> Write:
    whole = b"\0\0\x08\3" + struct.pack(">3I", 1, 28, 28) + bytes(784)
    labels = b"\0\0\x08\1" + struct.pack(">I", 1) + bytes([label])
    contents = {"images-idx3": whole if images is None else images, "labels-idx1": labels}
    parts = ("train", "t10k")
    return _files({f"morpho-mnist/plain/{p}-{kind}-ubyte": c for p in parts for kind, c in contents.items()})


def _folder(*names: str) -> Write:
    return _files({f"own/{name}": _png() for name in names})


BROKEN: dict[str, tuple[str, Write, str]] = {
    "a play in Latin-1": (
        "shakespeare",
        _files({"shakespeare.txt": f"Roméo:\n{LONG}".encode("latin-1")}),
        r"shakespeare.txt is not text in UTF-8 .invalid continuation byte at byte 3.: convert it",
    ),
    "a play without roles": ("shakespeare", _files({"shakespeare.txt": LONG}), 'no line that is "Name:"'),
    "a short play": ("shakespeare", _files({"shakespeare.txt": "Romeo:\nAy me."}), "no speaker with more than 80 char"),
    "a play of nobody": ("shakespeare", _files({"shakespeare.csv": "who,text\na,b\n"}), "has no column 'speaker'"),
    "a play that is no table": ("shakespeare", _files({"shakespeare.parquet": "no"}), "shakespeare.parquet is damaged"),
    "a role without a name": (
        "shakespeare",
        _parquet("shakespeare.parquet", speaker=["a", None], text=[LONG, LONG]),
        "row 1, lacks its speaker",
    ),
    "a play without rows": (
        "shakespeare",
        _files({"shakespeare.csv": "speaker,text\n"}),
        "shakespeare.csv has no rows",
    ),
    "a speech of nobody": (
        "shakespeare",
        _files({"shakespeare.csv": f'speaker,text\nNA,"{LONG}"\n ,x\n'}),
        "shakespeare.csv, row 1, lacks its speaker",
    ),
    "two columns of text": (
        "shakespeare",
        _files({"shakespeare.csv": "speaker,text,text\na,b,c\n"}),
        "has 2 columns named 'text'",
    ),
    "a brain without frames": ("abide", _abide(frames=""), "b_rois_ho.1D has 0 frames"),
    "a short brain": ("abide", _abide(frames=FRAMES.rpartition("\n")[0].rpartition("\n")[0]), "b_.*1D has 31 frames"),
    "another brain": (
        "abide",
        _abide(frames=FRAMES.replace("\n", " 1\n") + " 1"),
        r"b_.* has 4 regions, but 0013_.* 3",
    ),
    "a ragged brain": ("abide", _abide(frames="1 2\n3\n"), "is not a table of numbers"),
    "no brain": ("abide", _files({PHENOTYPES: SUBJECTS}), r"0013_rois_ho.1D not found in .*abide, nor 1 others"),
    "a brain of nan": ("abide", _abide(frames=FRAMES.replace("3", "nan")), "b_rois_ho.1D has a number that is not fin"),
    "a brain too large": ("abide", _abide(frames=FRAMES.replace("3", "1e39")), "or beyond 3.4e.38"),
    "two pipelines": ("abide", _abide(filt=FRAMES), "b_rois_ho.1D and .*b_rois_ho.1D are files of one subject"),
    "a subject twice": ("abide", _abide(SUBJECTS + "b,UM_1,2\n"), "names the subject b twice"),
    "a third group": ("abide", _abide(SUBJECTS.replace("UM_1,2", "UM_1,3")), "has DX_GROUP = 3 for b: must be 1"),
    "a table that is a folder": ("abide", _files({f"{PHENOTYPES}/x": ""}), "preprocessed1.csv is damaged .*a folder"),
    "one region that varies": (
        "abide",
        _files({PHENOTYPES: "FILE_ID,SITE_ID,DX_GROUP\nb,NYU,1\n", "abide/b_rois_ho.1D": FRAMES.replace(" ", "0")}),
        "1 regions vary in the files",
    ),
    "a plot of one column": (
        "covertype",
        _parquet("covertype.parquet", Elevation=[1], label=[2]),
        "has no column 'Aspect'",
    ),
    "a plot without a slope": ("covertype", _covertype(Slope=[None, 1]), "'Slope' has nulls .* in .*covertype.parquet"),
    "a plot of nan": ("covertype", _covertype(Slope=[float("nan"), 1.0]), "'Slope' has values in .*not a number"),
    "an eighth class": ("covertype", _covertype(Cover_Type=[1, 8]), "row 1, has the label 8: must be 1 to 7"),
    "two labels": ("covertype", _covertype(label=[1, 2]), "has 2 columns named 'label'"),
    "a huge label": (
        "covertype",
        _covertype(Cover_Type=pa.array([2**63, 1], pa.uint64())),
        "label 9223372036854775808",
    ),
    "a third outcome": ("eicu", _eicu(label=[2] + [0] * 100), "row 0, has the label 2: must be 0 to 1"),
    "few admissions": ("eicu", _eicu(hospital=[*range(101)]), "no hospital with more than 100 admissions"),
    "no outcome": ("eicu", _parquet("eicu.parquet", hospital=[7] * 101, age=[1.0] * 101), "no column 'label'"),
    "a unit in words": ("eicu", _eicu(unit=["ICU"] * 101), "'unit' .* is not a number"),
    "a gap in the blood": ("eicu", _eicu(ph=[None] + [7.4] * 100), "'ph' has nulls .1 rows. in .*eicu"),
    "hospitals that are lists": ("eicu", _eicu(hospital=[[7]] * 101), "'hospital' .* must be whole numbers or strings"),
    "an age that is infinite": ("eicu", _eicu(age=[float("inf")] * 101), "'age' has values in .*infinite"),
    "no matrix": (
        "svhn",
        _files(dict.fromkeys(SVHN, "no matrix, but as long as its header" * 9)),
        "train_32x32.mat is dam",
    ),
    "a house number 11": ("svhn", _svhn([11]), "train_32x32.mat is damaged .y has other labels than 0 to 10"),
    "half a house number": ("svhn", _svhn([1.5]), "y has other labels than 0 to 10"),
    "flat house numbers": ("svhn", _svhn([1], (16, 32, 3)), r"X is uint8 \(1, 3, 16, 32\)"),
    "a postal digit 11": ("usps", _usps(11), "usps.bz2 is damaged .a line has another label than 1 to 10"),
    "a postal pixel of nan": ("usps", _usps(value="nan"), r"other numbers than 256 in \[-1, 1\]"),
    "postal pixels of other places": ("usps", _usps(first=2), "numbered from 1"),
    "a list in Latin-1": ("mnist-m", _mnist_m("é.png 3\n".encode("latin-1")), "train_labels.txt is not text in UTF-8"),
    "a list without lines": ("mnist-m", _mnist_m("\n"), "train_labels.txt has no lines"),
    "a digit in words": ("mnist-m", _mnist_m("a.png three\n"), "line 1, is 'a.png three'"),
    "a digit 77": ("mnist-m", _mnist_m("a.png 77\n"), "line 1, is 'a.png 77'"),
    "a file listed twice": ("mnist-m", _mnist_m("a.png 3\n\na.png 4\n"), "line 3, is 'a.png 4'"),
    "a file beyond the folder": ("mnist-m", _mnist_m("/etc/hostname 3\n"), "names '/etc/hostname', which is not in"),
    "tables that are none": (
        "mnist-m",
        _files({f"mnist-m-{part}.parquet": b"junk" for part in ("train", "test")}),
        "mnist-m-train.parquet is damaged",
    ),
    "images that do not end": (
        "morpho-mnist",
        _morpho(b"\0\0\x08\3" + b"\xff" * 13),
        "train-images-idx3-ubyte is damaged",
    ),
    "images of no size": ("morpho-mnist", _morpho(b"\0\0\x08\3" + struct.pack(">3I", 3, 0, 0)), "ubyte is damaged"),
    "a label 200": ("morpho-mnist", _morpho(label=200), "row 0, has the label 200: must be 0 to 9"),
    "a folder of no name": ("folder:own,", _folder("c/a.png"), "'folder:own,' has an empty path: must be folder:PATH"),
    "a file of no name": ("file:", _folder("c/a.png"), "'file:' has an empty path: must be file:PATH"),
    "a street whose mask is cut off": (
        "cityscapes",
        _cityscapes(_png()[:-30]),
        "a_gtFine_labelIds.png cannot be decoded .image file is trunc",
    ),
    "a street whose mask has colours": ("cityscapes", _cityscapes(_png()), "a_gtFine_labelIds.png has 3 channels"),
    "a street without a mask": (
        "cityscapes",
        _files(
            {f"leftImg8bit/{part}/ulm/a_leftImg8bit.png": _png() for part in ("train", "val")}
            | {f"gtFine/{part}/ulm/b_gtFine_labelIds.png": _png() for part in ("train", "val")}
        ),
        "gtFine/train/ulm/a_gtFine_labelIds.png is missing, and a_leftImg8bit.png names it",
    ),
    "streets without masks": (
        "cityscapes",
        _files({f"leftImg8bit/{part}/ulm/a_leftImg8bit.png": _png() for part in ("train", "val")}),
        "^gtFine/train not found in ",
    ),
    "a folder of nothing": ("folder:own", lambda root: (root / "own").mkdir(), "own has no images"),
    "a class of nothing": ("folder:own", lambda root: (root / "own" / "cat").mkdir(parents=True), "cat has no images"),
    "words": ("folder:own", _folder("cat/a.txt"), "a.txt is not an image: keep only files that end in .png"),
    "an image at the top": ("folder:own", _folder("a.png"), "a.png is in no class"),
    "no picture": (
        "folder:own",
        _files({"own/cat/a.png": "no"}),
        r"a.png is not a whole image \(cannot identify .*JPEG",
    ),
    "folders in folders": ("folder:own", _folder("cat/a.png", "x/cat/a.png"), "mixes images and folders of images"),
    "a test part of one folder": (
        "folder:own/a,own/b",
        _folder("a/train/cat/a.png", "a/test/cat/a.png", "b/cat/a.png"),
        "b has no test part, and others have one",
    ),
    "a third split": (
        "folder:own",
        _folder("train/c/a.png", "val/c/a.png"),
        "has the folders train, val: must be train",
    ),
    "a test part alone": ("folder:own", _folder("test/c/a.png"), "has the folders test: must be train alone"),
    "domains in one part": ("folder:own", _folder("train/d/c/a.png", "test/c/a.png"), "in only one of train and test"),
    "a name that is too long": (f"file:{'x' * 300}", _files({}), "has a name of 300 bytes, more than 255"),
    "a set that is shifted twice": ("shifted:shifted:digits", _files({}), "has 'shifted:' twice"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused(case: str, tmp_path: Path) -> None:
    dataset, write, message = BROKEN[case]
    write(tmp_path)
    with pytest.raises(InputError, match=message) as error:
        load(dataset, root=str(tmp_path))
    assert "\n" not in str(error.value)


SOUND: dict[str, tuple[str, Write, int]] = {
    "a play of another system": (
        "shakespeare",
        _files({"shakespeare.txt": b"\xef\xbb\xbf" + f"Romeo:\r\n{LONG}\r\n \r\nNurse:\r\n{LONG}\r\n".encode()}),
        18,
    ),
    "a speaker named NA": ("shakespeare", _files({"shakespeare.csv": f'speaker,text\nNA,"{LONG}"\n'}), 9),
    "a brain of another system": ("abide", _abide(SUBJECTS.replace("\n", "\r\n"), FRAMES.replace("\n", "\r\n\r\n")), 4),
    "a brain that hardly varies": ("abide", _abide(frames=FRAMES.replace(" ", "e-300 ")), 4),
    "a list with empty lines": ("mnist-m", _mnist_m("\r\na.png 3\r\n"), 1),
    "classes named as splits": ("folder:own", _folder("train/a.png", "bus/a.png"), 2),
}


@pytest.mark.parametrize("case", SOUND)
def test_an_unusual_file_is_read(case: str, tmp_path: Path) -> None:
    dataset, write, rows = SOUND[case]
    write(tmp_path)
    assert load(dataset, root=str(tmp_path)).train.num_rows == rows


def test_labels_of_several_widths_are_joined(tmp_path: Path) -> None:
    kinds = {"a": pa.int8(), "b": pa.uint64()}
    words = {"c": pa.string(), "d": pa.large_string(), "e": pa.dictionary(pa.int8(), pa.string())}
    for name, kind in (kinds | words).items():
        _parquet(f"{name}.parquet", x=[1.0], label=pa.array([3 if name in kinds else "3"]).cast(kind))(tmp_path)
    assert load("file:a.parquet,b.parquet", root=str(tmp_path)).train["label"].to_pylist() == [3, 3]
    joined = load("file:c.parquet,d.parquet,e.parquet", root=str(tmp_path)).train
    assert joined["label"].to_pylist() == ["3"] * 3
    _parquet("b.parquet", x=[1.0], label=pa.array([2**63], pa.uint64()))(tmp_path)
    with pytest.raises(InputError, match="the labels of b do not fit int64"):
        load("file:a.parquet,b.parquet", root=str(tmp_path))
