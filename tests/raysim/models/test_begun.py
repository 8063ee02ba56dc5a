"""What a model begins with: initial weights, weights of a file or of torchvision, and the part that trains."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from algorithms import Layout
from algorithms.core.head import head_layers
from raysim.common.errors import InputError
from raysim.common.vision import torchvision
from raysim.models.build import MODELS, build
from raysim.models.initialisation import freeze_before, initialise, load_weights

IMAGES: dict[str, Any] = {"shape": (1, 8, 8), "classes": 3, "seed": 5}


def test_glorot_is_kerass() -> None:
    model = build("cnn", **IMAGES, norm="batch", init="glorot")
    for name, inputs, outputs in (("conv1", 9, 9 * 32), ("conv2", 9 * 32, 9 * 64), ("linear", 256, 128)):
        w, a = model.get_parameter(f"{name}.weight"), np.sqrt(6 / (inputs + outputs))
        assert w.abs().max() <= a and w.abs().max() > 0.95 * a
        assert w.std().item() == pytest.approx(a / np.sqrt(3), rel=0.1)
        assert not model.get_parameter(f"{name}.bias").any()
    assert bool((model.get_parameter("norm1.weight") == 1).all())


def test_normal_draws_biases_too() -> None:
    model = build("mlp", shape=(100,), classes=50, seed=1, hidden=[400], init="normal", init_std=10.0)
    for name, value in model.named_parameters():
        assert value.std().item() == pytest.approx(10, rel=0.25), name
        assert abs(value.mean().item()) < 5


@pytest.mark.parametrize("keys", [{"init": "glorot"}, {"init": "normal", "init_std": 2.0}])
def test_draws_are_keyed_and_global_state_stays(keys: dict[str, Any]) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = build("cnn", **IMAGES, **keys).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    torch.testing.assert_close(build("cnn", **IMAGES, **keys).state_dict(), first, rtol=0, atol=0)
    other = build("cnn", **{**IMAGES, "seed": 6}, **keys).state_dict()
    assert not torch.equal(other["conv1.weight"], first["conv1.weight"])


def test_a_layer_that_init_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="layer 0, a Embedding: must be linear"):
        initialise(nn.Sequential(nn.Embedding(3, 4)), "glorot", None, 0)


def saved(path: Path, **changes: torch.Tensor | None) -> str:
    """The entries of a convolutional network of seven classes, with changes, in a file."""
    model = build("cnn", shape=(1, 8, 8), classes=7, seed=9, norm="batch")
    values = {**model.state_dict(), **{name.replace("__", "."): value for name, value in changes.items()}}
    save_file({name: value.contiguous() for name, value in values.items() if value is not None}, path)
    return str(path)


def test_a_file_gives_all_but_the_classifier(tmp_path: Path) -> None:
    told: list[str] = []
    file = saved(tmp_path / "w.safetensors", norm1__num_batches_tracked=None)
    model = build("cnn", **IMAGES, norm="batch", weights=file, tell=told.append)
    source, fresh = build("cnn", shape=(1, 8, 8), classes=7, seed=9), build("cnn", **IMAGES, norm="batch")
    assert torch.equal(model.get_parameter("conv1.weight"), source.get_parameter("conv1.weight"))
    for name in ("output.weight", "output.bias"):
        assert torch.equal(model.get_parameter(name), fresh.get_parameter(name))
    assert told == [f"model cnn starts from {file}; made anew for 3 classes: output.weight, output.bias"]
    told.clear()
    whole = build("cnn", **{**IMAGES, "classes": 7}, norm="batch", weights=file, tell=told.append)
    assert torch.equal(whole.get_parameter("output.bias"), source.get_parameter("output.bias"))
    assert told == [f"model cnn starts from {file}"]


@pytest.mark.parametrize(
    ("changes", "keys", "message"),
    [
        ({"conv1__weight": None}, {}, "is without conv1.weight"),
        ({"more": torch.zeros(2)}, {}, "is with unexpected more"),
        ({"conv1__bias": torch.zeros(31)}, {}, "is of another shape or type in conv1.bias"),
        ({"conv1__bias": torch.zeros(32, dtype=torch.int64)}, {}, "is of another shape or type in conv1.bias"),
        ({"output__weight": torch.zeros(7, 127)}, {}, "is of another shape or type in output.weight"),
        ({}, {"norm": "group"}, "with unexpected norm.*num_batches_tracked"),
        ({}, {"norm": "none"}, "and 12 more"),
        ({}, {"hidden": 64}, "in linear.weight, linear.bias, norm.weight and"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path: Path, changes: Any, keys: dict[str, Any], message: str) -> None:
    file = saved(tmp_path / "w.safetensors", **changes)
    with pytest.raises(InputError, match=message) as error:
        build("cnn", **IMAGES, **{"norm": "batch", **keys}, weights=file)
    assert "\n" not in str(error.value)


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", 9) + b"[1, 2, 3]")
    with pytest.raises(InputError, match=r"readable \.safetensors file") as error:
        build("cnn", **IMAGES, weights=str(tmp_path / "w.safetensors"))
    assert "\n" not in str(error.value)


RESNET = "resnet18-f37072fd.pth"


def test_torchvisions_weights_are_read_from_where_it_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    source = torchvision.models.resnet18()
    torch.save(source.state_dict(), folder / RESNET)
    model = torchvision.models.resnet18(num_classes=4)
    made = load_weights(model, "DEFAULT", "resnet18", 4)
    assert made == ("fc.weight", "fc.bias")
    assert torch.equal(model.get_parameter("layer1.0.conv1.weight"), source.get_parameter("layer1.0.conv1.weight"))


def test_torchvisions_weights_without_internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    model = torchvision.models.resnet18(num_classes=4)
    with pytest.raises(InputError, match="put the file at ") as error:
        load_weights(model, "IMAGENET1K_V1", "resnet18", 4)
    assert str(tmp_path / "hub" / "checkpoints" / RESNET) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(InputError, match="IMAGENET1K_V1, DEFAULT, FILE"):
        load_weights(model, "IMAGENET_V1", "resnet18", 4)


def nested() -> nn.Module:
    inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False))
    return nn.Sequential(nn.Linear(4, 4), inner, nn.ModuleDict({"1": nn.Linear(4, 4), "10": nn.Linear(4, 4)}))


@pytest.mark.parametrize(
    ("part", "count"),
    [("all", 0), ("0", 0), ("0.bias", 1), ("1", 2), ("1.1", 4), ("2", 7), ("2.1", 7), ("2.10", 9), ("2.10.bias", 10)],
)
def test_everything_before_a_part_is_frozen(part: str, count: int) -> None:
    module = nested()
    freeze_before(module, part)
    entries = Layout.of(module).entries
    assert [entry.frozen for entry in entries] == [True] * count + [False] * (len(entries) - count)
    trained = {name for name, value in module.named_parameters() if value.requires_grad}
    assert trained == {entry.name for entry in entries if entry.is_parameter}


def test_a_part_without_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="must have parameters in it or behind it"):
        freeze_before(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)), "1")


@pytest.mark.parametrize("change", [lambda: {"norm": "batch"}, lambda: {"init": "glorot"}])
def test_a_part_trains_after_any_beginning(change: Callable[[], dict[str, Any]]) -> None:
    model = build("cnn", **IMAGES, **change(), train="linear")
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    assert trained[0] == "linear.weight" and "conv2.weight" not in trained


APART = ("vgg16", "alexnet_bn", "cnn4", "digit_cnn", "transformer")
"""Large models, and one with a test of its own."""

SHAPES = {"logistic": (54,), "lstm": (80,), "deeplab_v3plus": (3, 64, 64), "alexnet_bn": (3, 256, 256)}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in APART])
def test_every_model_says_which_entries_are_its_head(name: str) -> None:
    model = build(name, shape=SHAPES.get(name, (3, 32, 32)), classes=10, seed=1)
    heads = [entry for entry in Layout.of(model).entries if entry.head]
    assert [entry.name.rpartition(".")[2] for entry in heads] == ["weight", "bias"]
    assert all(entry.shape[0] == 10 for entry in heads)


@pytest.mark.parametrize("head", ["linear", ["output", "linear"]])
def test_the_head_is_what_the_key_says_in_the_order_of_the_layers(head: Any) -> None:
    model = build("cnn", **IMAGES, head=head)
    assert head_layers(model) == (("linear",) if head == "linear" else ("linear", "output"))
