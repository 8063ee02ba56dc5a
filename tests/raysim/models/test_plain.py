"""Networks without branches: their layers, in order."""

from torch import nn

from raysim.models.build import build


def _layers(name: str, **parameters: object) -> list[str]:
    model = build(name, shape=(1, 2, 2), classes=3, seed=0, **parameters)
    return [type(layer).__name__ for layer in model.children()]


def test_layers() -> None:
    assert _layers("logistic") == ["Flatten", "Linear"]
    assert _layers("logistic", norm="none") == ["Flatten", "Linear"]
    assert _layers("mlp", hidden=[8]) == ["Flatten", "Linear", "ReLU", "Linear"]
    assert _layers("mlp", hidden=(8,), norm="batch") == ["Flatten", "Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert _layers("mlp", hidden=[8], norm="group", groups=4) == ["Flatten", "Linear", "GroupNorm", "ReLU", "Linear"]


def test_norm_stands_before_the_activation() -> None:
    model = build("cnn", shape=(1, 8, 8), classes=2, seed=0, channels=[4], norm="batch")
    names = [name for name, _ in model.named_children()]
    assert names == ["conv1", "norm1", "pool1", "relu1", "flatten", "linear", "norm", "relu", "output"]
    assert isinstance(model.get_submodule("norm1"), nn.BatchNorm2d)
    assert isinstance(model.get_submodule("norm"), nn.BatchNorm1d)
