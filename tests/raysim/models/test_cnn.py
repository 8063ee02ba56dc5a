"""The convolutional network: the images that fit it."""

import pytest
import torch
from torch import nn

from partitioning import InputError
from raysim.models.build import build


def test_norm_stands_before_the_activation() -> None:
    model = build("cnn", shape=(1, 8, 8), classes=2, seed=0, channels=[4], norm="batch")
    names = [name for name, _ in model.named_children()]
    assert names == ["conv1", "norm1", "relu1", "pool1", "flatten", "linear", "norm", "relu", "output"]
    assert isinstance(model.get_submodule("norm1"), nn.BatchNorm2d)
    assert isinstance(model.get_submodule("norm"), nn.BatchNorm1d)


def test_smallest_image() -> None:
    model = build("cnn", shape=(2, 4, 7), classes=3, seed=0)
    assert model(torch.rand(5, 2, 4, 7)).shape == (5, 3)


@pytest.mark.parametrize("shape", [(54,), (28, 28), (1, 3, 28), (1, 28, 3)])
def test_shape_that_does_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as error:
        build("cnn", shape=shape, classes=10, seed=0)
    message = str(error.value)
    assert message.startswith("model cnn on samples of shape")
    assert str(shape) in message
    assert "of at least 4x4" in message
    assert "\n" not in message


@pytest.mark.parametrize("groups", [3, 64])
def test_groups_divide_every_layer(groups: int) -> None:
    with pytest.raises(InputError, match=f"groups is {groups}"):
        build("cnn", shape=(1, 8, 8), classes=10, seed=0, norm="group", groups=groups)
