"""Labels that are images, in whole runs: small files in Cityscapes' layout, DeepLabv3+, metrics worked out by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file
from torch import nn

import raysim
from partitioning import Population
from partitioning.sources.arrays import nested
from raysim.common.errors import InputError
from tests.kit.ray import SharedRay
from tests.kit.runs import quick_run

CITIES = ("aachen", "bochum")


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
    for number in range(4):
        write(root, "train", CITIES[number // 2], number)
    write(root, "val", "lindau", 6)
    return root


def experiment(root: Path, **more: Any) -> dict[str, Any]:
    return {
        "seed": 2,
        "rounds": 1,
        "data": {
            "dataset": "cityscapes",
            "root": str(root),
            "standardise": "global",
            "augment": ["crop", "flip"],
            "crop_size": 32,
            "crop_padding": 0,
        },
        "partition": {"scheme": "natural", "column": "city"},
        "model": {"name": "deeplab_v3plus"},
        "local": {"batch_size": 2, "lr": 0.001},
        "algorithm": {"name": "fedavg"},
        "evaluate": {"metrics": ["miou", "accuracy", "loss"]},
        **more,
    }


@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_deeplab_trains_to_the_same_bytes_inline_and_on_actors(
    number: int, cityscapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_ray: SharedRay
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    runs = [
        quick_run(experiment(cityscapes), tmp_path / "inline", inline=True),
        quick_run(experiment(cityscapes), tmp_path / "actors", fleet=shared_ray.actors(number)),
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


class Scaled(nn.Module):
    """Logits that are the channels, times a number that is 1 at first."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@pytest.fixture
def pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Three clients with an image of five pixels each; the channel that is 2, and not 0, is what `Scaled` predicts."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    truth = np.array([[[0, 0, 0, 1, 255]], [[2, 2, 255, 255, 255]], [[0, 1, 2, 2, 255]]], np.uint8)
    predicted = np.array([[[0, 0, 1, 1, 2]], [[2, 1, 0, 0, 1]], [[0, 1, 2, 2, 2]]])
    images = 2 * np.eye(3, dtype=np.float32)[predicted].transpose(0, 3, 1, 2)
    table = pa.table({"image": nested(images), "label": nested(truth), "client": [0, 1, 2]})
    pq.write_table(table, tmp_path / "own.parquet")
    pq.write_table(table.slice(0, 2), tmp_path / "test.parquet")
    return {
        "rounds": 1,
        "data": {"dataset": f"file:{tmp_path / 'own.parquet'}", "test": f"file:{tmp_path / 'test.parquet'}"},
        "partition": {"scheme": "natural", "column": "client"},
        "model": {"name": Scaled},
        "local": {"lr": 1e-12, "precision": "fp64"},
        "algorithm": {"name": "fedavg"},
        "evaluate": {"metrics": ["miou", "accuracy", "loss"]},
    }


def test_metrics_by_hand(pixels: dict[str, Any], tmp_path: Path) -> None:
    """Of the test set's six pixels with a class four are right; IoU: 2 of 3, 1 of 3 and 1 of 2."""
    run = quick_run(pixels, tmp_path / "run", inline=True)
    right, wrong = np.log(1 + 2 * np.exp(-2)), np.log(np.exp(2) + 2)
    wanted = {
        "test_miou": (2 / 3 + 1 / 3 + 1 / 2) / 3,
        "test_accuracy": 4 / 6,
        "test_loss": (4 * right + 2 * wrong) / 6,
    }
    assert run.results[0].metrics == pytest.approx(wanted, abs=1e-9)
    losses = pq.read_table(run.folder / "fedavg" / "metrics.parquet")["train_loss"].to_pylist()
    assert losses == pytest.approx([(8 * right + 2 * wrong) / 10])  # of all clients' pixels with a class


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluate": {"metrics": ["auc"]}}, "evaluate.metrics has 'auc' with labels that are images"),
        ({"model": {"name": "lenet"}, "data": {"image_size": 32}}, "because it must have 3 logits a pixel"),
        ({"data": {"augment": "append"}}, "data.augment with \"append\" with label column 'label'"),
        ({"data": {"classes": [1]}}, "data.classes with label column 'label': must be left out"),
        ({"data": {"augment": ["crop"], "crop_size": 9}}, "data.crop_size = [9, 9] on images of height and"),
    ],
)
def test_what_goes_with_classes_only_is_refused(
    pixels: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = {table: {**pixels[table], **changes.get(table, {})} for table in pixels if table != "rounds"}
    if "model" in changes:
        file["model"] = changes["model"]
    with pytest.raises(InputError) as error:
        raysim.run(file, tmp_path / "run", inline=True)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_model_that_takes_one_size_is_not_trained_on_crops(tmp_path: Path) -> None:
    file = {
        "data": {"dataset": "digits", "test": 0.1, "augment": ["crop"], "crop_size": 5, "crop_padding": 0},
        "partition": {"clients": 4},
        "model": {"name": "mlp"},
    }
    with pytest.raises(InputError, match=r"'mlp' with data.crop_size: must take samples \(1, 8, 8\) in evaluation"):
        raysim.run(file, tmp_path / "run", inline=True)
