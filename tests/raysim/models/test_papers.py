"""The papers' models: parameter counts worked out by hand, the logits' shape, and the samples that they refuse."""

import pytest
import torch
from torch import nn

from algorithms.core.batch_norm import is_batch_norm
from partitioning import InputError
from raysim.models.build import build
from raysim.models.module_checks import WithoutDraws
from tests.kit.counts import PAPERS


@pytest.mark.parametrize(("name", "shape", "classes", "parameters", "by_hand", "count"), PAPERS)
def test_parameter_count(
    name: str, shape: tuple[int, ...], classes: int, parameters: dict[str, object], by_hand: int, count: int
) -> None:
    with torch.device("meta"), WithoutDraws():  # shapes without values: some of the models take a third of a gigabyte
        model = build(name, shape=shape, classes=classes, seed=0, **parameters)
    assert sum(p.numel() for p in model.parameters()) == by_hand == count


SMALLEST = [
    ("cnn", 4),
    ("lenet", 16),
    ("cnn3", 4),
    ("cnn4", 8),
    ("fedbs_mnist", 4),
    ("fedbs_cifar", 2),
    ("digit_cnn", 4),
    ("alexnet_bn", 63),
    ("vgg16", 32),
    ("resnet20", 1),
    ("resnet18", 1),
    ("mobilenet_v2", 1),
    ("deeplab_v3plus", 1),
]
"""The smallest height and width of each model of images."""


@pytest.mark.parametrize(("name", "least"), SMALLEST)
@torch.no_grad()
def test_smallest_image(name: str, least: int) -> None:
    shape = (2, least, least + 3)
    logits = build(name, shape=shape, classes=4, seed=0).eval()(torch.rand(3, *shape))
    assert logits.shape == ((3, 4, *shape[1:]) if name == "deeplab_v3plus" else (3, 4))
    if least == 1:
        return
    # It could not be smaller: without the check, some layer has nothing left to give.
    with pytest.raises(InputError) as error:
        build(name, shape=(2, least + 3, least - 1), classes=4, seed=0)
    message = str(error.value)
    assert f"model {name} on samples of shape (2, {least + 3}, {least - 1})" in message
    assert f"of at least {least}x{least}" in message and "data.image_size" in message and "\n" not in message


@pytest.mark.parametrize("name", [name for name, _ in SMALLEST])
@pytest.mark.parametrize("shape", [(54,), (28, 28), (1, 3, 28, 28)])
def test_samples_that_are_no_images(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as error:
        build(name, shape=shape, classes=10, seed=0)
    message = str(error.value)
    assert f"model {name} on samples of shape {shape}: must be images" in message and "\n" not in message


NORMS = {
    "lenet": 4,
    "cnn3": 3,
    "cnn4": 4,
    "fedbs_mnist": 2,
    "fedbs_cifar": 4,
    "digit_cnn": 5,
    "resnet20": 19,
    "resnet18": 20,
    "mobilenet_v2": 52,
    "deeplab_v3plus": 60,
}
"""Layers of batch norm: behind each convolution but those that end a model, and behind hidden layers."""


@pytest.mark.parametrize(("name", "layers"), NORMS.items())
def test_norms(name: str, layers: int) -> None:
    for kind, count in (("batch", layers), ("none", 0)):
        model = build(name, shape=(3, 16, 16), classes=4, seed=0, norm=kind)
        assert sum(is_batch_norm(layer) for layer in model.modules()) == count
        assert model.eval()(torch.rand(2, 3, 16, 16)).isfinite().all()


@pytest.mark.parametrize("name", [*NORMS, "mlp"])
def test_activations_keep_their_input(name: str) -> None:
    layers = build(name, shape=(3, 16, 16), classes=4, seed=0).modules()
    assert not any(layer.inplace for layer in layers if isinstance(layer, (nn.ReLU, nn.ReLU6)))


def test_tables_number_their_layers() -> None:
    model = build("digit_cnn", shape=(3, 28, 28), classes=10, seed=0)
    names = [name for name, _ in model.named_children()]
    assert names == [
        *("conv1", "norm1", "pool1", "relu1", "conv2", "norm2", "pool2", "relu2", "conv3", "norm3", "relu3"),
        *("flatten", "linear4", "norm4", "relu4", "linear5", "norm5", "relu5", "output"),
    ]
