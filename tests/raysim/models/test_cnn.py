"""The convolutional network: the images that fit it."""

from torch import nn

from raysim.models.build import build


def test_norm_stands_before_the_activation() -> None:
    model = build("cnn", shape=(1, 8, 8), classes=2, seed=0, channels=[4], norm="batch")
    names = [name for name, _ in model.named_children()]
    assert names == ["conv1", "norm1", "pool1", "relu1", "flatten", "linear", "norm", "relu", "output"]
    assert isinstance(model.get_submodule("norm1"), nn.BatchNorm2d)
    assert isinstance(model.get_submodule("norm"), nn.BatchNorm1d)
