"""Labels that are images, in whole runs: small files in Cityscapes' layout, DeepLabv3+, metrics worked out by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

CITIES = ("aachen", "bochum", "bremen")


def write(root: Path, part: str, city: str, number: int, size: tuple[int, int] = (64, 32)) -> None:
    """One image of a width and a height, and its label ids: 0 (not trained on), 7, 8, 11 and 33 in blocks."""
    rng = np.random.default_rng(number)
    stem = f"{city}_{number:06d}_000019"
    image = root / "leftImg8bit" / part / city / f"{stem}_leftImg8bit.png"
    mask = root / "gtFine" / part / city / f"{stem}_gtFine_labelIds.png"
    for path in (image, mask):
        path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    ids = np.repeat(np.repeat(rng.choice([0, 7, 8, 11, 33], (height // 8, width // 8)), 8, 0), 8, 1).astype(np.uint8)
    Image.fromarray(ids).save(mask)
    pixels = np.stack([ids * 7, 255 - ids * 3, rng.integers(0, 255, ids.shape)], 2).astype(np.uint8)
    Image.fromarray(pixels).save(image)


@pytest.fixture(scope="module")
def cityscapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cityscapes")
    for number in range(6):
        write(root, "train", CITIES[number // 2], number)
    write(root, "val", "lindau", 6)
    return root


def experiment(root: Path, **more: Any) -> dict[str, Any]:
    return {
        "seed": 2,
        "rounds": 2,
        "data": {
            "dataset": "cityscapes",
            "root": str(root),
            "standardise": "global",
            "augment": ["crop", "flip"],
            "crop_size": 16,
            "crop_padding": 0,
        },
        "partition": {"scheme": "natural", "column": "city"},
        "model": {"name": "deeplab_v3plus"},
        "local": {"batch_size": 2, "lr": 0.05},
        "algorithm": {"name": "fedavg"},
        "evaluate": {"metrics": ["miou", "accuracy", "loss"]},
        **more,
    }


def test_deeplab_trains_to_the_same_bytes_inline_and_on_two_actors(
    cityscapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    runs = [
        raysim.run(experiment(cityscapes), tmp_path / "inline", inline=True),
        raysim.run(experiment(cityscapes), tmp_path / "two", actors=2),
    ]
    one, two = (run.folder / "fedavg" / "model.safetensors" for run in runs)
    assert one.read_bytes() == two.read_bytes()
    assert runs[0].results[0].metrics == runs[1].results[0].metrics
    metrics = runs[0].results[0].metrics
    assert set(metrics) == {"test_miou", "test_accuracy", "test_loss"} and np.isfinite(list(metrics.values())).all()
    weights = load_file(one)
    assert weights["decoder.6.bias"].shape == (19,) and all(np.isfinite(each).all() for each in weights.values())
    population = Population.open(runs[0].folder / "population")
    assert population.names is not None and population.names.to_pylist() == list(CITIES)
    assert "scheme" in (runs[0].folder / "report.html").read_text()


def thirds(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Logits that are the channels, in which nothing can be learnt but their scale."""
    return nn.Conv2d(shape[0], classes, 1, bias=False, groups=classes)


def test_metrics_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pixel's largest channel is what is predicted; two of three clients are for test, the third trains at rate 0.

    True 0 1 2 and predicted 0 1 2 1, over 10 pixels, 4 of them without a class:
    IoU 0: 2 of 3, IoU 1: 1 of 3, IoU 2: 1 of 2.
    """
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    truth = np.array([[[0, 0, 0, 1, 255]], [[2, 2, 255, 255, 255]], [[0, 1, 2, 2, 255]]], np.uint8)
    predicted = np.array([[[0, 0, 1, 1, 2]], [[2, 1, 0, 0, 1]], [[0, 1, 2, 2, 2]]])
    images = (np.eye(3, dtype=np.float32)[predicted] * 2).transpose(0, 3, 1, 2)
    table = pa.table({"image": nested(images), "label": nested(truth), "client": [0, 1, 2]})
    pq.write_table(table, tmp_path / "own.parquet")
    pq.write_table(table.slice(0, 2), tmp_path / "test.parquet")
    file = {
        "rounds": 1,
        "data": {"dataset": f"file:{tmp_path / 'own.parquet'}", "test": f"file:{tmp_path / 'test.parquet'}"},
        "partition": {"scheme": "natural", "column": "client"},
        "model": {"name": thirds},
        "local": {"lr": 0.0, "precision": "fp64"},
        "algorithm": {"name": "fedavg"},
        "evaluate": {"metrics": ["miou", "accuracy", "loss", "macro_f1"]},
    }
    run = raysim.run(file, tmp_path / "run", inline=True)
    weights = load_file(run.folder / "fedavg" / "model.safetensors")["weight"].flatten()
    assert (weights > 0).all()
