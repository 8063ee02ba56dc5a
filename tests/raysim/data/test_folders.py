"""Folders of images, and the named sets of photographs in their true layout."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import partitioning
from partitioning import InputError
from raysim.common.vision import torchvision
from raysim.data import folders
from raysim.data.decoding import decode_population
from raysim.data.sources import load, read
from tests.kit.images import write


def test_folder_of_classes(tmp_path: Path) -> None:
    for name in ("dog/b.png", "cat/z.jpg", "dog/a.webp"):
        write(tmp_path / name)
    (tmp_path / "dog" / ".DS_Store").write_bytes(b"clutter")
    source = load("folder:.", root=str(tmp_path))
    assert source.train["label"].to_pylist() == ["cat", "dog", "dog"]
    assert [image["path"].as_py() for image in source.train["image"]] == ["cat/z.jpg", "dog/a.webp", "dog/b.png"]
    assert source.train["image"][0]["bytes"].as_py() == (tmp_path / "cat/z.jpg").read_bytes()
    assert source.test is None and source.dividing == ()


def test_folder_of_train_and_test(tmp_path: Path) -> None:
    for name in ("train/cat/a.png", "train/dog/a.png", "test/dog/a.png"):
        write(tmp_path / "own" / name)
    source = load("folder:own", root=str(tmp_path))
    assert source.test is not None
    assert source.train["label"].to_pylist() == ["cat", "dog"]
    assert source.test["label"].to_pylist() == ["dog"]
    write(tmp_path / "own/test/cow/a.png")
    with pytest.raises(InputError, match="class 'cow' of column 'label' is in the test set of folder:own"):
        load("folder:own", root=str(tmp_path))


def test_folder_of_domains_and_several_folders(tmp_path: Path) -> None:
    for name in ("photo/cat/a.png", "photo/dog/a.png", "sketch/cat/a.png"):
        write(tmp_path / name)
    inside = load(f"folder:{tmp_path}", dividing=["domain"]).train
    beside = load(f"folder:{tmp_path}/photo,{tmp_path}/sketch", dividing=["domain"]).train
    for table in (inside, beside):
        assert table["domain"].to_pylist() == ["photo", "photo", "sketch"]
        assert table["label"].to_pylist() == ["cat", "dog", "cat"]
    assert load(f"folder:{tmp_path}").train.schema.names == ["image", "label"]


def test_large_folder_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(5):
        write(tmp_path / f"own/cat/{i}.png", size=(4 + i, 4))
    expected = load(f"folder:{tmp_path}/own").train
    monkeypatch.setattr(folders, "MAPPED", 1)
    monkeypatch.setattr(folders, "BATCH_BYTES", 150)
    mapped = load(f"folder:{tmp_path}/own").train
    assert mapped["image"].num_chunks > 1
    assert mapped.equals(expected)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), r"row \d \(cat/b.png\), cannot be decoded"),
        (lambda path: write(path, mode="L"), r"row \d \(cat/b.png\), has the shape \(1, 4, 4\)"),
    ],
)
def test_images_that_do_not_decode_are_named(change: object, message: str, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        write(tmp_path / f"own/cat/{name}.png")
    change(tmp_path / "own/cat/b.png")  # type: ignore[operator]
    train = load(f"folder:{tmp_path}/own").train
    population = partitioning.make(train, tmp_path / "population", scheme="iid", clients=1, seed=0)
    with pytest.raises(InputError, match=message):
        decode_population(population)


def test_layout_of_tiny_imagenet(tmp_path: Path) -> None:
    folder = tmp_path / "tiny-imagenet-200"
    for name in ("n01", "n02"):
        write(folder / "train" / name / "images" / f"{name}_0.JPEG")
        (folder / "train" / name / f"{name}_boxes.txt").write_text("boxes")
    for i in range(2):
        write(folder / "val" / "images" / f"val_{i}.JPEG")
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n")
    source = load("tiny-imagenet", root=str(tmp_path))
    assert source.test is not None
    assert source.train["label"].to_pylist() == ["n01", "n02"]
    assert source.test["label"].to_pylist() == ["n02", "n01"]
    assert load("tiny-imagenet", root=str(folder)).train.equals(source.train)
    (folder / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(InputError, match=r"val_1.JPEG is missing, and .*val_annotations.txt names it"):
        load("tiny-imagenet", root=str(tmp_path))


def test_layout_of_imagenet(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("n01440764", "n01443537"):
            write(tmp_path / "imagenet" / part / name / "a.JPEG")
    source = load("imagenet", root=str(tmp_path))
    assert source.test is not None
    assert source.train["label"].to_pylist() == source.test["label"].to_pylist() == ["n01440764", "n01443537"]


@pytest.mark.parametrize("caltech", ["caltech", "caltech10"])
def test_layout_of_office_caltech10(caltech: str, tmp_path: Path) -> None:
    for i, domain in enumerate(("amazon", caltech, "dslr", "webcam")):
        for name in ("back_pack", "bike"):
            write(tmp_path / "office_caltech_10" / domain / name / "frame_0001.jpg", size=(4 + i, 4))
    table = load("office-caltech10", root=str(tmp_path), dividing=["domain"]).train
    domains = ["amazon", "amazon", "caltech", "caltech", "dslr", "dslr", "webcam", "webcam"]
    assert table["domain"].to_pylist() == domains
    assert table["label"].to_pylist() == ["back_pack", "bike"] * 4


def test_layout_of_domainnet(tmp_path: Path) -> None:
    folder = tmp_path / "domainnet"
    for domain in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"):
        lists: dict[str, list[str]] = {"train": [], "test": []}
        for number in range(12):
            # Classes c00 and c11 are the smallest: they have an image in each list, others have one more to train on.
            copies = {"train": 1 if number in (0, 11) else 2, "test": 1}
            for part, count in copies.items():
                for i in range(count):
                    name = f"{domain}/c{number:02d}/{part}_{i}.jpg"
                    write(folder / name)
                    lists[part].append(f"{name} {number}")
        for part, lines in lists.items():
            (folder / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
    source = load("domainnet", root=str(tmp_path), dividing=["domain"])
    assert source.test is not None
    largest = [f"c{number:02d}" for number in range(1, 11)]
    assert sorted(set(source.train["label"].to_pylist())) == largest
    assert (source.train.num_rows, source.test.num_rows) == (6 * 10 * 2, 6 * 10)
    assert sorted(set(source.test["domain"].to_pylist()))[:2] == ["clipart", "infograph"]
    (folder / "clipart/c03/train_0.jpg").unlink()
    with pytest.raises(InputError, match=r"c03/train_0.jpg is missing, and clipart_train.txt names it: unpack"):
        load("domainnet", root=str(tmp_path))


def test_layout_of_ham10000(tmp_path: Path) -> None:
    write(tmp_path / "HAM10000_images_part_1" / "ISIC_0000001.jpg")
    write(tmp_path / "HAM10000_images_part_2" / "ISIC_0000002.jpg")
    lines = "lesion_id,image_id,dx,dx_type,age\nHAM_2,ISIC_0000002,mel,histo,50\nHAM_1,ISIC_0000001,bkl,histo,\n"
    table = tmp_path / "HAM10000_metadata.csv"
    table.write_text(lines)
    assert load("ham10000", root=str(tmp_path)).train["label"].to_pylist() == ["mel", "bkl"]
    table.write_text(lines + "HAM_3,ISIC_0000003,nv,histo,40\n")
    with pytest.raises(InputError, match=r"ISIC_0000003.jpg is in neither"):
        load("ham10000", root=str(tmp_path))
    table.write_text("image_id,diagnosis\nISIC_0000002,mel\n")
    with pytest.raises(InputError, match=r"has no column 'image_id'|has no column 'dx'") as error:
        load("ham10000", root=str(tmp_path))
    assert "\n" not in str(error.value)


def test_layout_of_cityscapes(tmp_path: Path) -> None:
    for part, city in (("train", "aachen"), ("train", "bochum"), ("val", "lindau")):
        stem = f"{city}_000000_000019"
        write(tmp_path / "leftImg8bit" / part / city / f"{stem}_leftImg8bit.png")
        write(tmp_path / "gtFine" / part / city / f"{stem}_gtFine_labelIds.png", mode="L")
        write(tmp_path / "gtFine" / part / city / f"{stem}_gtFine_color.png")
    ids = np.arange(-1, 35).clip(0).astype(np.uint8)[None]
    Image.fromarray(ids).save(tmp_path / "gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png")
    source = read("cityscapes", root=str(tmp_path))
    assert source.train["city"].to_pylist() == ["aachen", "bochum"]
    assert source.train.schema.names == ["image", "mask", "city"]
    mask = source.train["mask"][0].as_py()
    assert mask["path"] == "gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png"
    known = {each.id: each.train_id for each in torchvision.datasets.Cityscapes.classes if 0 <= each.train_id < 19}
    assert np.asarray(Image.open(io.BytesIO(mask["bytes"])))[0].tolist() == [known.get(i, 255) for i in ids[0]]
    assert len(known) == 19 and source.train.schema.field("mask").metadata == {b"classes": b"19"}
    assert load("cityscapes", root=str(tmp_path), dividing=["city"]).label == "mask"
    with pytest.raises(InputError, match="cityscapes has no column of classes"):
        load("cityscapes", root=str(tmp_path), label="city", dividing=["city"])
